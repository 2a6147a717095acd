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
    """How far the speech of one utterance has come in its text, in characters.

    latest: as last read; furthest: of all readings.
    """

    def __init__(self) -> None:
        self.latest = self.furthest = 0.0

    def advance(self, index: float, chars: Sequence[int]) -> float | None:
        """Take in the reading of one more patch → the furthest character yet.

        A reading that is not finite, or of no text, changes nothing and gives None. More text may have come since the
        last one, and lie elsewhere in the input: characters are what is kept.
        """
        if not chars or not math.isfinite(index):
            return None
        self.latest = character_at(index, chars)
        self.furthest = max(self.furthest, self.latest)
        return self.furthest
