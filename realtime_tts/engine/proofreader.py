"""Detection of text left out, said again or never left, by the place of the speech in its text. Pure.

Places and lengths are in characters of average duration. docs/internals/model.md has the measurements
behind the limits.
"""

from __future__ import annotations

import enum
import itertools
from typing import Final, NamedTuple

SKIPS: Final = ((1, 12.0), (2, 18.0))  # patches, and characters forward in them
REPEATS: Final = ((0.24, 3.0), (0.4, 2.0))  # seconds, and characters backward for longer; the fewest come last
STUCK_CHARS, STUCK_S = 2.0, 1.6  # forward at most, and for how long, with sound
FOLLOWED_CHARS: Final = 20.0  # from the beginning of a text to its end: the head follows the speech
END_CHARS: Final = 2.0  # a place that close to the end counts as the end


class Fault(enum.StrEnum):
    """Kind of a fault; the values are names of `frames.TextCounts`."""

    SKIP = "skips"
    REPEAT = "repeats"
    STUCK = "stuck"


class Finding(NamedTuple):
    """A fault, and the number of patches that were spoken before it began."""

    fault: Fault
    num_good: int


class Proofreader:
    """Place of one segment's speech, patch by patch, and the faults in it.

    A reading is made before its patch: it shows where the patches before have come. One reading may be anywhere; a
    place that two in a row have reached is certain.

    Attributes:
        certain: the furthest certain place. is_at_end: it is the end of the text.
        places: `certain` at each patch.
    """

    def __init__(self, patch_s: float) -> None:
        self.certain = 0.0
        self.is_at_end = False
        self.places: list[float] = []
        self._last = 0.0
        self._num_heard = 0  # patches in a row that sound, since the last finding
        self._repeats = [(int(longest_s / patch_s) + 1, chars) for longest_s, chars in REPEATS]
        self._num_behind = [0] * len(REPEATS)  # patches in a row that are as far behind
        self._is_again = False  # in a repeat that was found
        self._since = -1  # patch of the last skip that was found
        self._stuck_patches = int(STUCK_S / patch_s)

    def observe(self, place: float, *, end: float, attends_text: bool, sounds: bool) -> Finding | None:
        """Take in the reading of one more patch. Return the fault that it proves.

        Args:
            end: beginning of the text's last token.
            attends_text: whether the head attends to the text; otherwise its place may be wrong, but not too far.
            sounds: whether the patch is audible.
        """
        number, before = len(self.places), self.certain
        self.certain, self._last = max(before, min(self._last, place)), place
        self.places.append(self.certain)
        self.is_at_end = self.certain >= max(end - END_CHARS, end / 2)
        self._num_heard = 0 if self.is_at_end or not sounds else self._num_heard + 1
        for num_patches, chars in SKIPS:
            if self.certain - self._place_at(max(self._since, number - num_patches)) >= chars:
                self._since = number
                return self._found(Fault.SKIP, number - 1 - num_patches)
        if self._is_repeat(self.certain - place if attends_text and not self.is_at_end else 0.0):
            return self._found(Fault.REPEAT, number - max(self._num_behind))
        since = number - self._stuck_patches
        # The place of a head that never moves means nothing.
        is_followed = number > 0 and self.certain - self.places[1] > STUCK_CHARS
        if is_followed and self._num_heard > self._stuck_patches and self.certain - self.places[since] < STUCK_CHARS:
            return self._found(Fault.STUCK, since)
        return None

    @property
    def has_followed(self) -> bool:
        """True if the place has gone from the beginning of a text of some length to its end, at no more than a pace."""
        steps = [after - before for before, after in itertools.pairwise(self.places)]
        return self.is_at_end and self.certain >= FOLLOWED_CHARS and max(steps) < SKIPS[0][1]

    def rewind(self, num_patches: int) -> None:
        """Go back to the first `num_patches`: those after them are made again."""
        del self.places[num_patches:]
        self.certain = self._last = self.places[-1] if self.places else 0.0
        self._num_behind, self._num_heard = [0] * len(REPEATS), 0
        self._is_again, self._since = False, -1

    def _place_at(self, number: int) -> float:
        return self.places[number] if number >= 0 else 0.0

    def _is_repeat(self, behind_chars: float) -> bool:
        """Return whether the speech has gone back, once for each time that it has."""
        if behind_chars <= REPEATS[-1][1]:
            if self._num_behind[-1]:
                self._num_behind, self._is_again = [0] * len(REPEATS), False
            return False
        found = False
        for limit, (num_patches, chars) in enumerate(self._repeats):
            self._num_behind[limit] = self._num_behind[limit] + 1 if behind_chars > chars else 0
            found |= self._num_behind[limit] == num_patches
        was_again, self._is_again = self._is_again, self._is_again or found
        return found and not was_again

    def _found(self, fault: Fault, num_good: int) -> Finding:
        self._num_heard = 0
        return Finding(fault, max(0, num_good))
