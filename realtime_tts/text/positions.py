"""Positions of a text without its markup in the text as sent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class PositionMap:
    """Map from positions in a text without its markup to positions in the text with it; grows from left to right. A
    place is an index of the text without markup."""

    def __init__(self) -> None:
        # Twice the place, one more for a cut: of both at one place the characters that end there come first.
        self._keys = [-1]
        self._shifts = [0]  # up to and with this key

    @property
    def shift(self) -> int:
        """Number of characters of markup so far."""
        return self._shifts[-1]

    @property
    def is_plain(self) -> bool:
        return len(self._keys) == 1

    def cut(self, place: int, num_chars: int) -> None:
        """Record markup of `num_chars` characters at `place`: text that begins here begins behind it, text that ends
        here ends before it."""
        self._add(2 * place + 1, num_chars)

    def stretch(self, place: int, num_chars: int) -> None:
        """Record that the text ending at `place` is written with `num_chars` more characters."""
        self._add(2 * place, num_chars)

    def start(self, place: int) -> int:
        """Return the position in the full text of a range's start at `place`."""
        return place + self._shifts[bisect_right(self._keys, 2 * place + 1) - 1]

    def end(self, place: int) -> int:
        """Return the position in the full text of a range's end at `place`."""
        return place + self._shifts[max(0, bisect_left(self._keys, 2 * place + 1) - 1)]

    def _add(self, key: int, num_chars: int) -> None:
        self._keys.append(key)
        self._shifts.append(self._shifts[-1] + num_chars)
