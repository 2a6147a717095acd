"""Words of a context as LiveKit's aligned transcript: pieces that make up the text exactly."""

from __future__ import annotations

from livekit.agents.types import TimedString
from realtime_tts_client import Word


class Transcript:
    """Cuts a context's text into one piece for each word: the word with what stands before it and was not given yet.

    The server's words have the punctuation that touches them: "Hello, world." is "Hello," and " world.".
    """

    def __init__(self) -> None:
        self.num_pieces = 0
        self._num_given = 0
        self._end_s = 0.0

    def piece(self, word: Word, text: str) -> TimedString:
        """Args:
        text: of the context so far; the word's offsets count in it.
        """
        end = max(word.end, self._num_given)
        piece = text[self._num_given : end]
        self._num_given, self._end_s = end, word.end_ms / 1000
        self.num_pieces += 1
        return TimedString(piece, start_time=word.start_ms / 1000, end_time=self._end_s)

    def rest(self, text: str) -> TimedString | None:
        """What follows the last word, once everything was spoken; None if there is nothing, or was no word."""
        rest = text[self._num_given :]
        if not rest or not self._num_given:
            return None
        self._num_given = len(text)
        return TimedString(rest, start_time=self._end_s, end_time=self._end_s)
