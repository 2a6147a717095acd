"""What a session needs of the text planner. Structural, so that tests can put a transparent one in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from realtime_tts.errors import TextTooLong


class PlannedWord(Protocol):
    """A word of the context's text: `text` is its characters from `start` to `end`."""

    @property
    def text(self) -> str: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def weight(self) -> float:
        """Relative spoken length within its segment, ≥ 0."""
        ...

    @property
    def spoken_start(self) -> int:
        """The characters of its segment's `text` from here to `spoken_end` say it."""
        ...

    @property
    def spoken_end(self) -> int: ...


class Segment(Protocol):
    """A stretch of text that is spoken in one go; or silence, which has no words and an empty text."""

    @property
    def index(self) -> int:
        """Counts the context's segments from 0."""
        ...

    @property
    def text(self) -> str:
        """Normalised: what the model is given."""
        ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def words(self) -> Sequence[PlannedWord]: ...

    @property
    def silence_ms(self) -> float:
        """So long nothing is said; 0 for speech."""
        ...

    @property
    def final(self) -> bool:
        """Whether it is whole; until then it is given again, with more text and words after those it had."""
        ...

    @property
    def speed(self) -> float:
        """At which it is spoken, against the context's."""
        ...

    @property
    def volume(self) -> float:
        """Likewise."""
        ...

    @property
    def added_chars(self) -> int:
        """Number of characters by which lexicons have made it longer than what was sent; 0 until it is final."""
        ...


class Planner(Protocol):
    """Text deltas in, segments out (`realtime_tts.text.planner.SpeechPlanner`).

    Work comes in stretches, each of a millisecond or less: an item of an iteration is what a stretch has given. One
    iteration is run to its end before anything else is asked for.
    """

    def pushing(self, delta: str, now: float) -> Iterator[Sequence[Segment]]: ...

    def flushing(self, now: float) -> Iterator[Sequence[Segment]]: ...

    def ending(self, now: float) -> Iterator[Sequence[Segment]]: ...

    def ticking(self, now: float) -> Iterator[Sequence[Segment]]: ...

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        """From and to where in the context's text nothing can be spoken, of what was found since the last call.

        Each stretch has at least one character that is neither white space nor punctuation: an emoji, another script.
        """
        ...

    def take_ignored(self) -> Sequence[tuple[int, int]]:
        """Likewise where markup stands that asks for what is not done."""
        ...

    def next_deadline(self) -> float | None: ...


def check_added(added_chars: int, max_text_chars: int) -> None:
    """Check that lexicons have not made a text longer by more characters than a text may have.

    Raises:
        TextTooLong: they have.
    """
    if added_chars > max_text_chars:
        raise TextTooLong(
            f"the lexicon makes the text longer by more than {max_text_chars} characters", field="lexicon"
        )
