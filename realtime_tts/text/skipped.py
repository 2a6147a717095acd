"""Fate of each character of a text: it is spoken, cannot be spoken, or is dropped on purpose; and the ranges of a
context's text that cannot be spoken."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_tts.text.characters import has_content
from realtime_tts.text.folding import Folded, fit_char

Range = tuple[int, int]
# One byte for each character; white space, punctuation and the like have no fate of their own.
NONE, SPOKEN, SKIPPED, DROPPED = b" ", b"s", b"x", b"d"
_MAX_TOLD = 4


class Fates:
    """Collector of the fates of the source's characters. Arguments of its methods are indices of the folded text."""

    def __init__(self, folded: Folded) -> None:
        self._folded = folded
        self._known = bytearray()
        self._last_end = -1

    def extend(self) -> None:
        """Add the characters by which the source has grown."""
        self._known = self._known.ljust(len(self._folded.source), NONE)

    def known(self) -> bytes:
        """Return one byte for each character of the source."""
        return bytes(self._known)

    def ends_at(self, index: int) -> bool:
        """Return True if the token before `index` is not read."""
        return self._last_end == index

    def add_spoken(self, start: int, end: int) -> None:
        """Record that the token from `start` to `end` is read."""
        first, last = self._folded.starts[start], self._folded.ends[end - 1]
        self._known[first:last] = SPOKEN * (last - first)

    def add_unread(self, start: int, end: int, *, dropped: bool) -> None:
        """Record that the token from `start` to `end` is not read. `dropped`: on purpose.

        A character that another token speaks too ("㎏%" is folded to "kg%") stays spoken.
        """
        first, last = self._folded.starts[start], self._folded.ends[end - 1]
        if any(map(has_content, self._folded.source[first:last])):
            fate = DROPPED if dropped else SKIPPED
            self._known[first:last] = self._known[first:last].replace(NONE, fate)
            self._last_end = end

    def add_missing_letters(self, text: str, start: int, end: int, read_as: str, charset: frozenset[str]) -> None:
        """Record the characters of a token of the folded text, read as `read_as`, that have no spelling within
        `charset`."""
        starts = self._folded.starts
        others = {*starts[max(0, start - 1) : start], *starts[end : end + 1]}  # shared with the tokens beside this one
        others |= {starts[i] for i in range(start, end) if text[i] not in read_as or fit_char(text[i], charset)}
        for index in range(start, end):
            if starts[index] not in others:
                first, last = starts[index], self._folded.ends[index]
                self._known[first:last] = SKIPPED * (last - first)


class SkippedText:
    """Collector of ranges of the context's text, in order. Ranges without speech between them are merged."""

    def __init__(self) -> None:
        self._found: list[Range] = []
        self._open: Range | None = None  # range after which there is no speech yet

    def add(self, skipped: Sequence[Range], fates: bytes, offset: int) -> None:
        """Add the skipped ranges and the fates of the next segment, which begins at `offset` of the context."""
        read_to = 0
        for start, end in skipped:
            if SPOKEN in fates[read_to:start]:
                self.close()
            self._open = (self._open[0] if self._open else offset + start, offset + end)
            read_to = end
        if SPOKEN in fates[read_to:]:
            self.close()

    def close(self) -> None:
        """End the open range: what follows is a separate one."""
        if self._open:
            self._found.append(self._open)
            self._open = None

    def take(self) -> list[Range]:
        """Return the complete ranges, each once."""
        found, self._found = self._found, []
        return found


def describe_skipped(ranges: Sequence[Range]) -> str:
    """Return a notice about ranges that are not spoken. It names the first ranges; characters count from 1."""
    return f"parts of the text cannot be spoken and are left out: at character {_listed(ranges)}"


def describe_ignored(ranges: Sequence[Range]) -> str:
    """Return a notice about markup without effect, as `describe_skipped` does."""
    return f"some markup has no effect: at character {_listed(ranges)}"


def _listed(ranges: Sequence[Range]) -> str:
    told = ", ".join(
        f"{start + 1}" if end == start + 1 else f"{start + 1} to {end}" for start, end in ranges[:_MAX_TOLD]
    )
    return told + (" and others" if len(ranges) > _MAX_TOLD else "")
