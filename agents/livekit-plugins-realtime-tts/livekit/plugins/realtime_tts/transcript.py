"""Words of a context as LiveKit's aligned transcript: pieces that make up the text exactly."""

from __future__ import annotations

from collections.abc import Iterable

from livekit.agents.types import TimedString
from realtime_tts_client import Word


class Transcript:
    """Cuts a context's text into one piece for each word: the word with what stands before it and was not given yet.

    The server's words have the punctuation that touches them: "Hello, world." is "Hello," and " world.".
    """

    def __init__(self) -> None:
        self._num_given = 0
        self._end_s = 0.0

    def pieces(self, words: Iterable[Word], text: str) -> list[TimedString]:
        """Of the words that had none yet. Those that are told again, since the server lost the session, had theirs.

        Args:
            text: of the context so far; the words' offsets count in it.
        """
        made = []
        for word in words:
            if word.start >= self._num_given:
                piece, start_s = text[self._num_given : word.end], max(word.start_ms / 1000, self._end_s)
                self._num_given, self._end_s = word.end, max(word.end_ms / 1000, start_s)
                made.append(TimedString(piece, start_time=start_s, end_time=self._end_s))
        return made

    def rest(self, text: str) -> TimedString | None:
        """What follows the last word, once everything was spoken; None if there is nothing, or was no word."""
        rest = text[self._num_given :]
        if not rest or not self._num_given:
            return None
        self._num_given = len(text)
        return TimedString(rest, start_time=self._end_s, end_time=self._end_s)
