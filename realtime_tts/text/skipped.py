"""Ranges of a text that are not spoken, within one normalisation and over the segments of a context: tokens that cannot
be spoken or are dropped on purpose, and letters that the model cannot read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from realtime_tts.text.characters import has_content
from realtime_tts.text.folding import Folded, fit_char
from realtime_tts.text.spoken import Span

Range = tuple[int, int]
_MAX_TOLD = 4


class Unread:
    """Collector of ranges of the source, in order. Arguments of its methods are indices of the folded text."""

    def __init__(self, folded: Folded) -> None:
        self._folded = folded
        self._tokens: list[Range] = []
        self._dropped: list[Range] = []
        self._letters: list[Range] = []
        self._last_end = -1

    def add_token(self, start: int, end: int, *, dropped: bool) -> None:
        """Record that the token from `start` to `end` is not read. `dropped`: on purpose."""
        found = (self._folded.starts[start], self._folded.ends[end - 1])
        if self._folded.source[found[0] : found[1]] != " " and any(
            map(has_content, self._folded.source[found[0] : found[1]])
        ):
            tokens = self._dropped if dropped else self._tokens
            if not tokens or tokens[-1] != found:  # a ligature is folded to many
                tokens.append(found)
            self._last_end = end

    def ends_at(self, index: int) -> bool:
        """Return True if the token before `index` is not read."""
        return self._last_end == index

    def add_missing_letters(self, start: int, end: int, read_as: str, charset: frozenset[str]) -> None:
        """Record the characters of a token, read as `read_as`, that have no spelling within `charset`."""
        text, starts = self._folded.text, self._folded.starts
        while start < end:
            after = start + 1
            while after < len(text) and starts[after] == starts[start]:
                after += 1
            cluster = text[start:after]
            begins = start == 0 or starts[start - 1] != starts[start]
            if begins and after <= end and all(char in read_as and not fit_char(char, charset) for char in cluster):
                self._letters.append((starts[start], self._folded.ends[start]))
            start = after

    def skipped(self, spans: Sequence[Span], start: int = 0) -> tuple[Range, ...]:
        """Return the ranges from `start` on that cannot be spoken, given the spans that are; every range has content,
        no two touch."""
        return self._joined([*_outside(_since(self._tokens, start), spans), *_since(self._letters, start)])

    def dropped(self, spans: Sequence[Span], skipped: Sequence[Range], start: int = 0) -> tuple[Range, ...]:
        """Return the ranges from `start` on that are silent on purpose, without any part of `skipped`."""
        ranges = _outside(_since(self._dropped, start), spans)
        return self._joined(_outside(ranges, [Span(0, 0, *each) for each in skipped]))

    def _joined(self, ranges: list[Range]) -> tuple[Range, ...]:
        found: list[Range] = []
        for start, end in sorted(ranges):
            if not any(map(has_content, self._folded.source[start:end])):
                continue
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return tuple(found)


def _since(ranges: list[Range], start: int) -> list[Range]:
    return ranges[bisect_left(ranges, (start, 0)) :]


def _outside(tokens: Sequence[Range], spans: Sequence[Span]) -> list[Range]:
    """Return the tokens without characters that another token speaks too ("㎏%", folded to "kg%")."""
    outside: list[Range] = []
    number = 0
    for start, end in tokens:
        while number < len(spans) and spans[number].source_end <= start:
            number += 1
        following = number
        if number < len(spans) and spans[number].source_start <= start:
            start, following = spans[number].source_end, number + 1
        if following < len(spans):
            end = min(end, spans[following].source_start)
        if start < end:
            outside.append((start, end))
    return outside


class SkippedText:
    """Collector of ranges of the context's text, in order. Ranges without speech between them are merged."""

    def __init__(self) -> None:
        self._found: list[Range] = []
        self._open: Range | None = None  # nothing has been spoken since
        self._spoken_end = 0

    def add(self, spans: Sequence[Span], skipped: Sequence[Range], offset: int) -> None:
        """Add the spans and the skipped ranges of the next segment, which begins at `offset` of the context."""
        number = 0
        for start, end in skipped:
            while number < len(spans) and spans[number].source_end <= start:
                number += 1
            if number:
                self._spoken_end = offset + spans[number - 1].source_end
            if number < len(spans) and spans[number].source_start < start:
                self._spoken_end = offset + start
            self._extend(offset + start, offset + end)
        if spans:
            self._spoken_end = offset + spans[-1].source_end
        if self._open and self._spoken_end > self._open[1]:
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

    def _extend(self, start: int, end: int) -> None:
        if self._open and self._spoken_end <= self._open[1]:
            start = self._open[0]
        else:
            self.close()
        self._open = (start, end)


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
