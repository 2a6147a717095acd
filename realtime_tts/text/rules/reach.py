"""Detection of matches that later text could change.

Text that is still being written may be spoken only as far as its reading is settled: "$5" may become "$5 million". A
pattern that fails after its last piece tries every way to match. `regex` reports a partial match if one of them reads
beyond the end of the text.
"""

from __future__ import annotations

import re
from functools import cached_property

import regex

_NOT_ANCHORS = re.compile(r"\\[^bBAZ]|\[\^?\]?(?:\\.|[^\]\\])*\]")
_ANCHOR = re.compile(r"\\[bBAZ]|[\^$]")


def reaching(pattern: str) -> regex.Pattern[str]:
    """Return a pattern that has a partial match where an attempt to match `pattern` reads beyond the end of the text.

    Raises:
        ValueError: `pattern` has an anchor, which does not read the character beside it; use a look-ahead.
    """
    if (anchor := _ANCHOR.search(_NOT_ANCHORS.sub("", pattern))) is not None:
        raise ValueError(f"anchor {anchor.group()} in {pattern}")
    return regex.compile(f"(?:{pattern})(*FAIL)")


class ReachingPattern:
    """Pattern that also tells whether the text after it could change its match."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def match(self, text: str, index: int) -> re.Match[str] | None:
        return self._pattern.match(text, index)

    def reaches_end(self, text: str, index: int) -> bool:
        return self._to_end.match(text, index, partial=True) is not None

    def compile(self) -> None:
        """Compile the pattern of `reaches_end` now instead of at its first use."""
        _ = self._to_end

    @cached_property
    def _to_end(self) -> regex.Pattern[str]:
        return reaching(self._pattern.pattern)
