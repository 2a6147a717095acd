"""Protocol of the text planner that a session uses. Structural, so that tests can substitute a simple one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from realtime_tts.errors import TextTooLong
from realtime_tts.text.planner import Segment


class Planner(Protocol):
    """Text planner: text deltas in, segments out (`realtime_tts.text.pause_planner.PausePlanner`).

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

    def take_ignored(self) -> Sequence[tuple[int, int]]:
        """Return ranges of unsupported markup in the context's text, found since the last call."""

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
