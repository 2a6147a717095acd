"""When each character of a text is spoken, from the times of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from realtime_tts.session.messages import TimedWord


@dataclass(slots=True)
class Characters:
    """Consecutive characters of one text: from when to when each is spoken, whole ms of its audio."""

    chars: list[str] = field(default_factory=list)
    starts_ms: list[int] = field(default_factory=list)
    ends_ms: list[int] = field(default_factory=list)

    def extend(self, more: Characters) -> None:
        """The characters that follow."""
        self.chars += more.chars
        self.starts_ms += more.starts_ms
        self.ends_ms += more.ends_ms


class CharacterTimes:
    """Places the characters of one context: every one once and in order, and no time before the one in front of it.

    A word's characters share its time evenly. What lies between two words shares the time between them; blanks that
    follow a word at whose end nothing is known yet of the next one take no time, so that the word is seen to be over.
    """

    def __init__(self) -> None:
        self._text = ""  # that is not placed yet
        self._offset = 0  # of its first character in the context's text
        self._end_ms = 0.0  # of the last character placed

    def push(self, text: str) -> None:
        """More of the context's text, as the session was given it."""
        self._text += text

    def place(self, words: Sequence[TimedWord]) -> Characters:
        """The characters up to the end of the last word, and the blanks behind it; words come once and in order."""
        placed = Characters()
        for word in words:
            start_ms = max(self._end_ms, word.start_ms)
            self._place(placed, word.start - self._offset, start_ms)
            self._end_ms = start_ms
            self._place(placed, word.end - self._offset, max(start_ms, word.end_ms))
        self._place(placed, len(self._text) - len(self._text.lstrip()), self._end_ms)
        return placed

    def finish(self, audio_ms: float) -> Characters:
        """The characters that no word has, up to the end of the audio."""
        placed = Characters()
        self._place(placed, len(self._text), max(self._end_ms, audio_ms))
        return placed

    def _place(self, placed: Characters, num_chars: int, end_ms: float) -> None:
        """Spread the next characters evenly, up to `end_ms`."""
        num_chars = max(0, min(num_chars, len(self._text)))
        if num_chars == 0:
            return
        edges = [self._end_ms + (end_ms - self._end_ms) * i / num_chars for i in range(num_chars + 1)]
        whole = [round(edge) for edge in edges]
        placed.chars += self._text[:num_chars]
        placed.starts_ms += whole[:-1]
        placed.ends_ms += whole[1:]
        self._text = self._text[num_chars:]
        self._offset += num_chars
        self._end_ms = end_ms
