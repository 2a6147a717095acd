"""Ranges of a context's text that are not spoken, collected over its segments."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_tts.text.normalizer import NormalizedText
from realtime_tts.text.unread import Range

_MAX_TOLD = 4


def describe_skipped(ranges: Sequence[Range]) -> str:
    """Return a notice about ranges that are not spoken. It names the first ranges; characters count from 1."""
    told = ", ".join(
        f"{start + 1}" if end == start + 1 else f"{start + 1} to {end}" for start, end in ranges[:_MAX_TOLD]
    )
    others = " and others" if len(ranges) > _MAX_TOLD else ""
    return f"parts of the text cannot be spoken and are left out: at character {told}{others}"


class SkippedText:
    """Collector of ranges of the context's text, in order. Ranges without speech between them are merged."""

    def __init__(self) -> None:
        self._found: list[Range] = []
        self._open: Range | None = None  # nothing has been spoken since
        self._spoken_end = 0

    def add(self, normalized: NormalizedText, offset: int) -> None:
        """Add the next segment, which begins at `offset` of the context."""
        spans, number = normalized.spans, 0
        for start, end in normalized.skipped:
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
