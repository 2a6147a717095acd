"""Times of the characters of a text, from the times of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from realtime_tts.session.messages import TimedWord


@dataclass(slots=True)
class Characters:
    """Consecutive characters of a text, with start and end times in whole ms of its audio."""

    chars: list[str] = field(default_factory=list)
    starts_ms: list[int] = field(default_factory=list)
    ends_ms: list[int] = field(default_factory=list)

    def extend(self, more: Characters) -> None:
        """Append the characters that follow."""
        self.chars += more.chars
        self.starts_ms += more.starts_ms
        self.ends_ms += more.ends_ms


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

    def place(self, words: Sequence[TimedWord]) -> Characters:
        """Return the characters up to the last word and the blanks after it. Words must come once and in order."""
        placed = Characters()
        for word in words:
            start_ms = max(self._end_ms, word.start_ms)
            self._place(placed, word.start - self._offset, start_ms)
            self._end_ms = start_ms
            self._place(placed, word.end - self._offset, max(start_ms, word.end_ms))
        self._place(placed, len(self._text) - len(self._text.lstrip()), self._end_ms)
        return placed

    def finish(self, audio_ms: float) -> Characters:
        """Return the remaining characters, up to the end of the audio at `audio_ms`."""
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
