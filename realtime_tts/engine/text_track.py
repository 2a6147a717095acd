"""Conversion of a head's readings, patch by patch, to the spoken character, which never moves back. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def character_at(index: float, chars: Sequence[int]) -> float:
    """Convert a fractional token index to a fractional character; `chars` has the first character of each token."""
    index = min(max(index, 0.0), len(chars) - 1.0)
    whole = int(index)
    following = chars[min(whole + 1, len(chars) - 1)]
    return chars[whole] + (index - whole) * (following - chars[whole])


class TextTrack:
    """Place of one segment's speech in its text, in characters.

    latest: the last reading; furthest: the maximum of all readings.
    """

    def __init__(self) -> None:
        self.latest = self.furthest = 0.0
        self._reached: list[float] = []  # `furthest` at each patch

    def advance(self, index: float, chars: Sequence[int]) -> float | None:
        """Take in the reading of one more patch. Return the furthest character so far.

        A reading that is not finite, or without text, changes nothing and returns None. Characters are stored instead
        of tokens, since more text may have moved the tokens within the input.
        """
        is_valid = len(chars) > 0 and math.isfinite(index)
        if is_valid:
            self.latest = character_at(index, chars)
            self.furthest = max(self.furthest, self.latest)
        self._reached.append(self.furthest)
        return self.furthest if is_valid else None

    def rewind(self, num_patches: int) -> None:
        """Go back to the first `num_patches`."""
        del self._reached[num_patches:]
        self.latest = self.furthest = self._reached[-1] if self._reached else 0.0
