"""Acronyms: which capitals are spelt letter by letter."""

from __future__ import annotations

import re

from realtime_tts.text.language_data import word_set
from realtime_tts.text.rules.base import Scan

# Said as words.
_SPOKEN = word_set("spoken_acronyms")
# Plain words that people capitalise for emphasis.
_EMPHASISED = word_set("emphasised")
_LETTER_PAIRS = word_set("letter_pairs")
_PLURAL = re.compile(r"([A-Z]{2,6})('?s)")
_CAPS = re.compile(r"[A-Z]{2,6}")
_NO_VOWEL = re.compile(r"[bcdfghjklmnpqrstvwxz]{2,5}")
_HUMMED = word_set("hummed")


def spell(letters: str) -> str:
    """ "API" → "A P I"."""
    return " ".join(letters)


def read_caps(word: str, scan: Scan) -> str:
    """Return a part of a word, spelt out if it is an initialism."""
    plural = _PLURAL.fullmatch(word)
    if plural and is_initialism(plural.group(1)):
        return f"{spell(plural.group(1))}'s"
    if _CAPS.fullmatch(word) and is_initialism(word):
        return spell(word) if is_initialism(word, shouting=True) or not scan.is_shouting() else word
    if _NO_VOWEL.fullmatch(word) and word not in _HUMMED:
        return spell(word.upper())
    return word


def is_initialism(caps: str, *, shouting: bool = False) -> bool:
    """Return True if these capitals are spelt as letters rather than read as a word."""
    lowered = caps.lower()
    if lowered in ("us", "it"):
        return not shouting
    if lowered in _LETTER_PAIRS:
        return True
    if lowered in _SPOKEN or lowered in _EMPHASISED:
        return False
    return not _is_pronounceable(lowered) or (len(caps) <= 3 and not shouting)


def _is_pronounceable(word: str) -> bool:
    """Return True if vowels and consonants are mixed as in a word: true for "NEVER", false for "HTTP" and "USSR"."""
    vowels = sum(char in "aeiouy" for char in word)
    return 0.25 <= vowels / len(word) <= 0.67 and not re.search(r"[^aeiouy]{4}|^[^aeiouy]{3}", word)
