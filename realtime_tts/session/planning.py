"""Protocols of the text planner that a session uses. Structural, so that tests can substitute a simple one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from realtime_tts.errors import TextTooLong


class PlannedWord(Protocol):
    """A word of the context's text; `text` is its characters from `start` to `end`."""

    @property
    def text(self) -> str: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def weight(self) -> float:
        """Relative duration within its segment, ≥ 0."""
        ...

    @property
    def spoken_start(self) -> int:
        """Start of the word in its segment's `text`; it ends at `spoken_end`."""
        ...

    @property
    def spoken_end(self) -> int: ...


class Segment(Protocol):
    """A stretch of text that is spoken as one; or silence, without words and with empty text."""

    @property
    def index(self) -> int:
        """Number of the segment in its context, from 0."""
        ...

    @property
    def text(self) -> str:
        """Normalised text, given to the model."""
        ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def words(self) -> Sequence[PlannedWord]: ...

    @property
    def silence_ms(self) -> float:
        """Duration of the silence; 0 for speech."""
        ...

    @property
    def final(self) -> bool:
        """True if it is complete. Until then it is returned again, with more text and words after the earlier ones."""
        ...

    @property
    def speed(self) -> float:
        """Tempo factor relative to the context's."""
        ...

    @property
    def volume(self) -> float:
        """Volume factor relative to the context's."""
        ...

    @property
    def added_chars(self) -> int:
        """Number of characters that lexicons have added to the text; 0 until it is final."""
        ...


class Planner(Protocol):
    """Text planner: text deltas in, segments out (`realtime_tts.text.planner.SpeechPlanner`).

    The methods return iterators: each step is a stretch of work of a millisecond or less and yields its segments. Run
    one iteration to its end before you call another method.
    """

    def pushing(self, delta: str, now: float) -> Iterator[Sequence[Segment]]: ...

    def flushing(self, now: float) -> Iterator[Sequence[Segment]]: ...

    def ending(self, now: float) -> Iterator[Sequence[Segment]]: ...

    def ticking(self, now: float) -> Iterator[Sequence[Segment]]: ...

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        """Return ranges of the context's text that cannot be spoken, found since the last call.

        Each range has at least one character that is neither white space nor punctuation: an emoji, another script.
        """
        ...

    def take_ignored(self) -> Sequence[tuple[int, int]]:
        """Return ranges of unsupported markup in the context's text, found since the last call."""
        ...

    def next_deadline(self) -> float | None: ...


def check_added(added_chars: int, max_text_chars: int) -> None:
    """Check that lexicons have not added more characters to a text than a text may have.

    Raises:
        TextTooLong: more characters were added.
    """
    if added_chars > max_text_chars:
        raise TextTooLong(
            f"the lexicon makes the text longer by more than {max_text_chars} characters", field="lexicon"
        )
