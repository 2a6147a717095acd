"""Folding of Unicode text to the few forms that the rules know, with the source range of every character."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import regex

from realtime_tts.text.characters import (
    JOINERS,
    VARIATION_SELECTORS,
    ZERO_WIDTH,
    is_cjk_punctuation,
    is_foreign_letter,
    is_mark,
)

WHOLE = "\x01"  # control characters of a text are left out
MAX_ACCENTS = 3  # per base character; Vietnamese and polytonic Greek need two or three, "zalgo" text has dozens
MAX_MARKS = 8  # with those that only one script has: Burmese syllables have up to five
_ACCENT = regex.compile(r"\p{Script=Inherited}")

_LOOKALIKES = {
    **dict.fromkeys("‘’‛′ʼʹ＇´", "'"),
    **dict.fromkeys("“”„‟″«»〝〞＂", '"'),
    **dict.fromkeys("‐‑⁃", "-"),
    **dict.fromkeys("‒", "–"),
    **dict.fromkeys("―⸺⸻", "—"),
    "−": "-",
    "⁄": "/",
    "∕": "/",
    "∗": "*",
    "…": "...",
    "\r": "\n",
    "\u2028": "\n",
    "\u2029": "\n",
    "\x85": "\n",
    "\x0b": "\n",
    "\x0c": "\n",
    "\ufffd": " ",
}
# Compatibility characters whose plain form would say something else ("2½" is not "21⁄2", "m²" not "m2").
_KEEP = frozenset("²³½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞ªº™℠°№゛゜") | frozenset(map(chr, range(0x3131, 0x318F)))  # ㅋ is laughter

_PLAIN = re.compile(r"[ -~\n]*")  # folds to itself

# Letters without a Unicode decomposition.
_PLAIN_LETTERS = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D",
    "ð": "th", "Ð": "TH", "þ": "th", "Þ": "TH", "ł": "l", "Ł": "L", "ħ": "h", "Ħ": "H", "ı": "i", "ŋ": "ng",
    "Ŋ": "NG", "ə": "e", "ŧ": "t", "ƒ": "f",
}  # fmt: skip
# What a model without the first character can use to make the same pause.
_PAUSES = {";": ",", ":": ",", "—": ",", "–": ",", "…": ".", "!": ".", "?": ".",
           "。": ".", "｡": ".", "，": ",", "、": ",", "；": ",", "：": ",", "！": "!", "？": "?"}  # fmt: skip


class Folded:
    """Source of a folded text that may grow. Character i of the folded text came from `source[starts[i]:ends[i]]`; both
    rise monotonically."""

    def __init__(self) -> None:
        self.source = ""
        self.starts: list[int] = []
        self.ends: list[int] = []

    def extend(self, source: str, *, whole: bool = False) -> str:
        """Compose accents, straighten quotes and dashes, narrow full-width forms, strip what has no sound.

        The source that follows must not begin with a mark. Returns the text that is added to the folded text: with
        `whole` one special character, that no other text is folded to.
        """
        offset = len(self.source)
        self.source += source
        folded, starts, ends = (WHOLE, [offset], [len(self.source)]) if whole else _fold(source, offset)
        self.starts += starts
        self.ends += ends
        return folded


def _fold(source: str, offset: int) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return the folded text, and the start and end in the source of each of its characters."""
    if _PLAIN.fullmatch(source):
        after = offset + len(source)
        return source, range(offset, after), range(offset + 1, after + 1)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end in _clusters(source):
        folded = _fold_cluster(source[start : min(end, start + 1 + MAX_MARKS)])
        parts.append(folded)
        starts += [offset + start] * len(folded)
        ends += [offset + end] * len(folded)
    return "".join(parts), starts, ends


def as_written(source: str) -> str:
    """Return `source` in its own characters, composed, without those that have neither sound nor shape."""
    if source.isascii():
        return source
    return "".join(_write_cluster(source[start : min(end, start + 1 + MAX_MARKS)]) for start, end in _clusters(source))


def _clusters(source: str) -> Iterator[tuple[int, int]]:
    """Yield the range of each character with its marks."""
    index = 0
    while index < len(source):
        end = index + 1
        while end < len(source) and is_mark(source[end]):
            end += 1
        yield index, end
        index = end


@lru_cache(maxsize=4096)
def _write_cluster(cluster: str) -> str:
    """Return a base character with its marks as written; ligatures and letters of other width in their usual form."""
    base = cluster[0]
    if _is_silent(base):
        return ""
    return _compose(_plain_form(base) if base.isalnum() else base, cluster[1:])


@lru_cache(maxsize=4096)
def _fold_cluster(cluster: str) -> str:
    """Return the folded form of a base character with its marks."""
    base, marks = cluster[0], cluster[1:]
    if base in _LOOKALIKES:
        return _LOOKALIKES[base]
    if unicodedata.category(base) == "Cs":  # half of a UTF-16 pair
        return " "
    if base.isspace():
        return base if base == "\n" else " "
    if _is_silent(base):
        return ""
    return _compose(_plain_form(base), marks)


def _plain_form(base: str) -> str:
    if base in _KEEP or is_cjk_punctuation(base) or is_mark(base):
        return base
    return unicodedata.normalize("NFKC", base)


def _is_silent(base: str) -> bool:
    """Return True if a character without another one before it is left out: a control character, a mark without its
    letter."""
    if base in ZERO_WIDTH or base in VARIATION_SELECTORS or unicodedata.category(base) in ("Cc", "Cf", "Cs"):
        return True
    return is_mark(base) and not base.isalnum()


def _compose(base: str, marks: str) -> str:
    """Return the base with as many of its marks as writing needs."""
    keeps_joiners = is_foreign_letter(base[-1])
    kept: list[str] = []
    num_accents = 0
    for mark in marks:
        num_accents += _ACCENT.match(mark) is not None and mark not in JOINERS
        if mark in VARIATION_SELECTORS or (mark in JOINERS and not keeps_joiners) or num_accents > MAX_ACCENTS:
            continue
        kept.append(mark)
    return unicodedata.normalize("NFC", base + "".join(kept))


@lru_cache(maxsize=4096)
def fit_char(char: str, charset: frozenset[str]) -> str:
    """Return the nearest spelling of `char` within `charset` (either case), or an empty string."""
    if char.lower() in charset or char in charset:
        return char
    if char in _PAUSES:
        return fit_char(_PAUSES[char], charset)
    plain = _PLAIN_LETTERS.get(char) or unicodedata.normalize("NFKD", char)
    return "".join(each for each in plain if each != char and each.lower() in charset)


def letters_within(charset: Iterable[str]) -> str:
    """Return the letters, in lower case, that have a spelling within `charset`; without those that NFKD decomposes."""
    known = frozenset(char.lower() for char in charset)
    letters = {char.lower() for char in (*known, *_PLAIN_LETTERS) if char.isalpha()}
    return "".join(sorted(char for char in letters if fit_char(char, known)))


def fit(text: str, charset: frozenset[str] | None) -> str:
    """Return `text` within `charset`; unchanged if that is None."""
    if charset is None:
        return text
    return "".join([fit_char(char, charset) for char in text])
