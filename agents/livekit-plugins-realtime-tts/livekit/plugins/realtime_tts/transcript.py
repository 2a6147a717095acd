"""Words of a context as LiveKit's aligned transcript: pieces that join to the exact text."""

from __future__ import annotations

from collections.abc import Iterable

from livekit.agents.types import TimedString
from realtime_tts_client import Word


class Transcript:
    """Cutter of a context's text into one piece for each word: the word and the text since the previous piece.

    The server's words include adjacent punctuation: "Hello, world." gives "Hello," and " world.".
    """

    def __init__(self) -> None:
        self._num_given = 0
        self._end_s = 0.0

    def pieces(self, words: Iterable[Word], text: str) -> list[TimedString]:
        """Return pieces for new words. Words that are repeated because the server lost the session are skipped.

        Args:
            text: the context's text so far, in which the words' offsets count.
        """
        made = []
        for word in words:
            if word.start >= self._num_given:
                piece, start_s = text[self._num_given : word.end], max(word.start_ms / 1000, self._end_s)
                self._num_given, self._end_s = word.end, max(word.end_ms / 1000, start_s)
                made.append(TimedString(piece, start_time=start_s, end_time=self._end_s))
        return made

    def rest(self, text: str) -> TimedString | None:
        """Return the text after the last word, once all was spoken; None if it is empty or there was no word."""
        rest = text[self._num_given :]
        if not rest or not self._num_given:
            return None
        self._num_given = len(text)
        return TimedString(rest, start_time=self._end_s, end_time=self._end_s)
