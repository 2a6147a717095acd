"""Times of the characters of a text, from the times of its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from realtime_tts.session.messages import TimedWord


class TimedCharacter(NamedTuple):
    """A character of a text, with its times in whole ms of the text's audio."""

    char: str
    start_ms: int
    end_ms: int


class CharacterTimes:
    """Assigns times to the characters of one context: each once, in order, and with times that do not decrease.

    A word's characters share its time evenly, and characters between two words share the time between them. Blanks
    after a word take no time if the next word is not known yet, so that clients see the end of the word.
    """

    def __init__(self) -> None:
        self._text = ""  # text without times so far
        self._offset = 0  # position of its first character in the context's text
        self._end_ms = 0.0  # end of the last character with times

    def push(self, text: str) -> None:
        """Append text of the context, as the session received it."""
        self._text += text

    def place(self, words: Sequence[TimedWord]) -> list[TimedCharacter]:
        """Return the characters up to the last word and the blanks after it. Words must come once and in order."""
        placed: list[TimedCharacter] = []
        for word in words:
            start_ms = max(self._end_ms, word.start_ms)
            self._place(placed, word.start - self._offset, start_ms)
            self._end_ms = start_ms
            self._place(placed, word.end - self._offset, max(start_ms, word.end_ms))
        self._place(placed, len(self._text) - len(self._text.lstrip()), self._end_ms)
        return placed

    def finish(self, audio_ms: float) -> list[TimedCharacter]:
        """Return the remaining characters, up to the end of the audio at `audio_ms`."""
        placed: list[TimedCharacter] = []
        self._place(placed, len(self._text), max(self._end_ms, audio_ms))
        return placed

    def _place(self, placed: list[TimedCharacter], num_chars: int, end_ms: float) -> None:
        """Spread the next characters evenly, up to `end_ms`."""
        num_chars = max(0, min(num_chars, len(self._text)))
        if num_chars == 0:
            return
        edges = [self._end_ms + (end_ms - self._end_ms) * i / num_chars for i in range(num_chars + 1)]
        whole = [round(edge) for edge in edges]
        placed += map(TimedCharacter, self._text[:num_chars], whole[:-1], whole[1:])
        self._text = self._text[num_chars:]
        self._offset += num_chars
        self._end_ms = end_ms
