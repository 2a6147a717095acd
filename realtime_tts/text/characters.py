"""Character classes that the normaliser and the segmenter share.

All of them are sets or small predicates on one or two code points, so that both stay linear in the text. Unicode's
properties that `unicodedata` lacks come from the `regex` library.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import regex

SENTENCE_STOPS = frozenset(".!?…")
CLAUSE_STOPS = frozenset(",;:")
CLOSERS = frozenset("\"')]}”’»›*_`」』）】》〉｣")
OPENERS = frozenset("\"'([{“‘«‹*_`「『（【《〈｢")
LONG_DASHES = frozenset("–—―")
_SMALL_PRINT = frozenset("©®™℠")
ZERO_WIDTH = frozenset("\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")
VARIATION_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))

JOINERS = frozenset("\u200c\u200d")  # change how Persian and Indic letters are joined, and so what is read

# Han, kana and bopomofo are written without spaces between words and have their own punctuation.
_CJK = re.compile(
    "[\u2e80-\u2fdf\u3040-\u30ff\u3100-\u312f\u3190-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff]")
# Thai, Lao, Khmer, Burmese and their relatives: Unicode's line breaking needs a dictionary to find their words.
_COMPLEX = regex.compile(r"\p{Line_Break=Complex_Context}")
_THAI_VOWELS = frozenset("\u0e33\u0eb3")  # SARA AM of Thai and Lao: letters that extend the one before them
# Pattern for `regex`: a letter of a script with spaces between words, or a mark.
WORD_LETTER = rf"(?:(?!{_CJK.pattern}|{_COMPLEX.pattern})\p{{L}}|[\p{{M}}{''.join(_THAI_VOWELS | JOINERS)}])"
# Vowels that are written before their consonant, and signs that stack the next consonant under this one.
_BEFORE_CONSONANT = frozenset("\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4\u1039\u17d2\u1a60")
_SENTENCE_STOP = regex.compile(r"\p{Sentence_Break=STerm}")
_ANY_STOP = regex.compile(r"\p{Terminal_Punctuation}")
_FULL_STOP = regex.compile(r"\p{Sentence_Break=ATerm}")
_PICTOGRAPH = regex.compile(r"[\p{Extended_Pictographic}\u2190-\u2bff\u3030\U0001d000-\U0010ffff]")
_ASCII_SIGNS = frozenset("$%&@#+=<>^~")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CJK_PUNCTUATION = re.compile("[\u3000-\u303f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f\uff5f-\uff65]")


def is_foreign_letter(char: str) -> bool:
    """Return True for a letter that is neither Latin nor Greek. Digits and symbols near it are not read as English."""
    return char > "\u03ff" and char.isalpha() and not "\u1e00" <= char <= "\u1fff"


def is_greek(char: str) -> bool:
    """Return True for a Greek letter; False for the empty string."""
    return "\u0370" <= char <= "\u03ff" or "\u1f00" <= char <= "\u1fff"


def is_cjk(char: str) -> bool:
    """Return True for a Han, kana or bopomofo letter."""
    return char > "\u10ff" and _CJK.match(char) is not None


def is_hangul(char: str) -> bool:
    """Return True for a Korean syllable, or a part of one."""
    return char > "\u10ff" and _HANGUL.match(char) is not None


@lru_cache(maxsize=4096)
def is_complex(char: str) -> bool:
    """Return True for a letter or mark of Thai, Lao, Khmer, Burmese and the like: spaces between clauses only."""
    return char > "\u0dff" and _COMPLEX.match(char) is not None


def is_unspaced(char: str) -> bool:
    """Return True for a character of a script without spaces between words."""
    return is_cjk(char) or is_complex(char)


def begins_grapheme(before: str, char: str) -> bool:
    """Return True if a text may be divided between two characters of a script without spaces."""
    return not is_mark(char) and before not in _BEFORE_CONSONANT


@lru_cache(maxsize=4096)
def is_sentence_stop(char: str) -> bool:
    """Return True for a mark beyond ASCII that ends a sentence, whether white space follows or not."""
    return char > "\x7f" and _SENTENCE_STOP.match(char) is not None


@lru_cache(maxsize=4096)
def is_clause_stop(char: str) -> bool:
    """Return True for a comma, colon or semicolon beyond ASCII."""
    return char > "\x7f" and bool(_ANY_STOP.match(char)) and not (_SENTENCE_STOP.match(char) or _FULL_STOP.match(char))


@lru_cache(maxsize=4096)
def is_sign(char: str) -> bool:
    """Return True for a sign that has a name in every language: "%", "€", "°", "≥". A model may be able to read it."""
    if char <= "\x7f":
        return char in _ASCII_SIGNS
    category = unicodedata.category(char)
    return category in ("Sc", "Sm") or (category == "So" and _PICTOGRAPH.match(char) is None)


def is_cjk_punctuation(char: str) -> bool:
    """Return True for punctuation of CJK typography, full-width forms included."""
    return char > "\u2fff" and _CJK_PUNCTUATION.match(char) is not None


@lru_cache(maxsize=4096)
def is_mark(char: str) -> bool:
    """Return True for a character that belongs to the one before it: an accent typed after its base, a vowel sign, a
    joiner."""
    if char in _THAI_VOWELS or char in JOINERS:
        return True
    return char > "\u02ff" and unicodedata.category(char) in ("Mn", "Mc", "Me")


@lru_cache(maxsize=4096)
def is_symbol(char: str) -> bool:
    """Return True for a pictograph, arrow or other symbol beyond ASCII without a sound of its own."""
    return char > "\x7f" and unicodedata.category(char) in ("So", "Sk", "Co", "Cn")


@lru_cache(maxsize=4096)
def has_content(char: str) -> bool:
    """Return True if a text read without `char` lacks something: a letter, a digit, a pictograph, another symbol.

    False for white space, punctuation, marks, the symbols of ASCII, which are mostly markup, and small print.
    """
    if char <= "\x7f" or char in _SMALL_PRINT:
        return char.isalnum()
    category = unicodedata.category(char)
    return category[0] in "LN" or category in ("Sm", "Sc", "So", "Co", "Cn") or (category == "Sk" and char > "\uffff")


def replace_surrogates(text: str) -> str:
    """Replace each half of a UTF-16 pair, which cannot be encoded, by U+FFFD; offsets stay valid."""
    return _SURROGATE.sub("\ufffd", text)
