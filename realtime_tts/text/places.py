"""Where in a text that is given with its markup the characters stand that are left without it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Places:
    """Grows from left to right. A place is an index of the text without markup."""

    def __init__(self) -> None:
        # Twice the place, one more for a cut: of both at one place the characters that end there come first.
        self._keys = [-1]
        self._shifts = [0]  # up to and with this key

    @property
    def shift(self) -> int:
        """Characters of markup so far."""
        return self._shifts[-1]

    @property
    def is_plain(self) -> bool:
        return len(self._keys) == 1

    def cut(self, place: int, num_chars: int) -> None:
        """At `place` stands markup of so many characters: what begins here begins behind it, what ends here before."""
        self._add(2 * place + 1, num_chars)

    def stretch(self, place: int, num_chars: int) -> None:
        """What ends at `place` is written with so many characters more."""
        self._add(2 * place, num_chars)

    def start(self, place: int) -> int:
        """Where what begins at `place` does so."""
        return place + self._shifts[bisect_right(self._keys, 2 * place + 1) - 1]

    def end(self, place: int) -> int:
        """Where what ends at `place` does so."""
        return place + self._shifts[max(0, bisect_left(self._keys, 2 * place + 1) - 1)]

    def _add(self, key: int, num_chars: int) -> None:
        self._keys.append(key)
        self._shifts.append(self._shifts[-1] + num_chars)
