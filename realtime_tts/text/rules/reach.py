"""Look-ahead of patterns: whether text still to come could change what a pattern matches.

Text that is still being written may be spoken only as far as its reading is settled: "$5" may become "$5 million". A
pattern says itself how far it looks. From each one another is derived that matches where some way of matching the
first runs into the end of the text; where none does, whatever follows finds the same match. No table to keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

_OPENING = re.compile(r"\((?:\?(?:<?[=!]|i?:|P<\w+>))?")
_CHARACTER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_REPEAT = re.compile(r"(?:[?*+]|\{(\d+)(?:(,)(\d*))?\})\??")
_END = r"\Z"


class ReachingPattern:
    """A pattern, and whether what follows the text could change its match."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._source = pattern

    def match(self, text: str, index: int) -> re.Match[str] | None:
        return self._pattern.match(text, index)

    def reaches_end(self, text: str, index: int) -> bool:
        return self._to_end.match(text, index) is not None

    def compile(self) -> None:
        """Compile the pattern of `reaches_end` now instead of at its first use."""
        _ = self._to_end

    @cached_property
    def _to_end(self) -> re.Pattern[str]:
        return re.compile(reaching(self._source))


def reaching(pattern: str) -> str:
    """A pattern that matches where an attempt to match `pattern` looks at the end of the text.

    It knows what the rules use: no back references, no anchors but ``$``, ``\\Z`` and ``\\b``, no greed but the usual.

    Raises:
        ValueError: what it does not know.
    """
    parser = _Parser(pattern)
    return parser.parse().to_end or r"(?!)"


class _Piece(NamedTuple):
    """`plain`: the piece without capturing groups. `to_end`: matches if it looks at the end; None if it never does."""

    plain: str
    to_end: str | None


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._index = 0

    def parse(self) -> _Piece:
        piece = self._alternatives()
        if self._index < len(self._pattern):
            raise ValueError(f"unbalanced bracket at {self._index} of {self._pattern}")
        return piece

    def _alternatives(self) -> _Piece:
        branches = [self._branch()]
        while self._pattern.startswith("|", self._index):
            self._index += 1
            branches.append(self._branch())
        return _Piece("|".join(each.plain for each in branches), _either(each.to_end for each in branches))

    def _branch(self) -> _Piece:
        """Looks at the end if its first piece does, or matches the first piece and the others then do."""
        pieces: list[_Piece] = []
        while self._index < len(self._pattern) and self._pattern[self._index] not in "|)":
            pieces.append(self._repeated(self._group() if self._pattern[self._index] == "(" else self._character()))
        to_end: str | None = None
        for piece in reversed(pieces):
            to_end = _either((piece.to_end, None if to_end is None else f"{piece.plain}(?:{to_end})"))
        return _Piece("".join(each.plain for each in pieces), to_end)

    def _group(self) -> _Piece:
        opening = self._take(_OPENING).group()
        if self._pattern.startswith("?", self._index):
            raise ValueError(f"cannot tell how far the group at {self._index} of {self._pattern} looks")
        inner = self._alternatives()
        if not self._pattern.startswith(")", self._index):
            raise ValueError(f"open bracket in {self._pattern}")
        self._index += 1
        is_capturing = opening == "(" or opening.startswith("(?P")
        plain = f"{'(?:' if is_capturing else opening}{inner.plain})"
        if opening in ("(?<=", "(?<!") or inner.to_end is None:
            return _Piece(plain, None)  # what is behind is known
        return _Piece(plain, f"{'(?i:' if opening == '(?i:' else '(?:'}{inner.to_end})")

    def _character(self) -> _Piece:
        """A character, a class, or an anchor."""
        char = self._take(_CHARACTER).group()
        if char in ("^", r"\A", r"\B") or (char[0] == "\\" and char[1].isdecimal()):
            raise ValueError(f"cannot tell how far {char} of {self._pattern} looks")
        return _Piece(char, r"\n?\Z" if char == "$" else _END)

    def _repeated(self, piece: _Piece) -> _Piece:
        """`piece` with the repeat that follows it."""
        found = _REPEAT.match(self._pattern, self._index)
        if found is None:
            return piece
        self._index = found.end()
        plain = f"{piece.plain}{found.group()}"
        if piece.to_end is None:
            return _Piece(plain, None)
        num_before = _most(found) - 1
        before = "" if num_before == 0 else f"(?:{piece.plain}){{0,{num_before if num_before > 0 else ''}}}"
        return _Piece(plain, f"{before}(?:{piece.to_end})")

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._pattern, self._index)
        assert found is not None, f"{self._pattern} is no pattern"
        self._index = found.end()
        return found


def _most(repeat: re.Match[str]) -> int:
    """Return the highest number of repetitions; 0 for no limit."""
    least, comma, most = repeat.groups()
    if least is None:
        return 1 if repeat.group()[0] == "?" else 0
    return int(most or 0) if comma else int(least)


def _either(patterns: Iterable[str | None]) -> str | None:
    """Return an alternation of the given patterns, without those that are None; None if all are."""
    known = dict.fromkeys(each for each in patterns if each is not None)
    return "|".join(known) if known else None
