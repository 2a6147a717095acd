"""From what a head reads, patch by patch, to the character that is being spoken: a path that never goes back. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def character_at(index: float, chars: Sequence[int]) -> float:
    """A token's index, as a fraction → a character's; `chars` has the first character of each token."""
    index = min(max(index, 0.0), len(chars) - 1.0)
    whole = int(index)
    following = chars[min(whole + 1, len(chars) - 1)]
    return chars[whole] + (index - whole) * (following - chars[whole])


class TextTrack:
    """How far the speech of one utterance has come in its text, in characters."""

    def __init__(self) -> None:
        self._read = 0.0  # the furthest reading yet
        self.position: float | None = None

    def advance(self, index: float, chars: Sequence[int], lead: float) -> float | None:
        """Take in the reading of one more patch → the character spoken at the patch's end.

        `lead`, in patches, is by how much the reading is ahead of that end. It is taken off along the path; a reading
        that is behind is led on at the pace of the last patch.
        A reading that is not finite, or of no text, changes nothing and gives None. More text may have come since the
        last one, and lie elsewhere in the input: characters are what is kept.
        """
        if not chars or not math.isfinite(index):
            return None
        last, self._read = self._read, max(self._read, character_at(index, chars))
        at_end = self._read - lead * (self._read - last)
        self.position = min(max(self.position or 0.0, at_end), float(chars[-1] + 1))
        return self.position
