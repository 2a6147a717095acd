"""Character classes that the normaliser and the segmenter share.

All of them are sets or small predicates on one code point, so that both stay linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

SENTENCE_STOPS = frozenset(".!?…")
CJK_SENTENCE_STOPS = frozenset("。！？｡")
CLAUSE_STOPS = frozenset(",;:")
CJK_CLAUSE_STOPS = frozenset("，、；：､")
CLOSERS = frozenset("\"')]}”’»›*_`」』）】》〉｣")
OPENERS = frozenset("\"'([{“‘«‹*_`「『（【《〈｢")
LONG_DASHES = frozenset("–—―")
_SMALL_PRINT = frozenset("©®™℠")
ZERO_WIDTH = frozenset("\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")
VARIATION_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))

# Scripts that write without spaces between words and that have their own punctuation.
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u3040-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_CJK_PUNCTUATION = re.compile("[\u3000-\u303f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f\uff5f-\uff65]")


def word_set(text: str) -> frozenset[str]:
    """The words of `text`: a vocabulary that stays readable in the source."""
    return frozenset(text.split())


def is_foreign_letter(char: str) -> bool:
    """A letter of a script in which digits and symbols are not read as English: none of Latin and Greek."""
    return char > "\u03ff" and char.isalpha() and not "\u1e00" <= char <= "\u1fff"


def is_cjk(char: str) -> bool:
    """A Han, kana, bopomofo or hangul letter."""
    return char > "\u10ff" and _CJK.match(char) is not None


def is_cjk_punctuation(char: str) -> bool:
    """Punctuation of CJK typography, full-width forms included."""
    return char > "\u2fff" and _CJK_PUNCTUATION.match(char) is not None


@lru_cache(maxsize=4096)
def is_mark(char: str) -> bool:
    """A combining mark (accents typed after their base, vowel signs)."""
    return char > "\u02ff" and unicodedata.category(char) in ("Mn", "Mc", "Me")


@lru_cache(maxsize=4096)
def is_symbol(char: str) -> bool:
    """A pictograph, arrow or other symbol beyond ASCII that has no sound of its own."""
    return char > "\x7f" and unicodedata.category(char) in ("So", "Sk", "Co", "Cn")


@lru_cache(maxsize=4096)
def has_content(char: str) -> bool:
    """Whether a text read without `char` lacks something: a letter, a digit, a pictograph, another symbol.

    Not so for white space, punctuation, marks, the symbols of ASCII, which are mostly markup, and small print.
    """
    if char <= "\x7f" or char in _SMALL_PRINT:
        return char.isalnum()
    category = unicodedata.category(char)
    return category[0] in "LN" or category in ("Sm", "Sc", "So", "Co", "Cn") or (category == "Sk" and char > "\uffff")


def is_surrogate(char: str) -> bool:
    """Half of a UTF-16 pair: not a character, and not encodable."""
    return "\ud800" <= char <= "\udfff"
