"""Acronyms: which capitals are spelt letter by letter."""

from __future__ import annotations

import re

from realtime_tts.text.characters import word_set
from realtime_tts.text.rules.base import Scan

# Said as words.
_SPOKEN = word_set(
    """
    nasa nato unicef unesco opec ikea fifa uefa lego radar laser scuba sim gif ram rom pin covid aids yolo lol
    asap json yaml cuda llama bert lidar sonar nasdaq imax ascii posix rest soap crud saas paas iaas wifi moma
    potus scotus swat zip jpeg mime cors captcha gnome bios raid vim nafta epcot
    """
)
# Plain words that people capitalise for emphasis.
_EMPHASISED = word_set(
    """
    a i an as at be by do go he if in is it me my no of oh ok on or so to up us we all and any are ask bad big
    but buy can day did end far few for get god got had has her him his hot how its job key let lot low man may
    mom new nor not now off old one our out own pay put red run sad say see set she sit six ten the tip too top
    try two use via war was way who why win won yes yet you
    """
)
_LETTER_PAIRS = word_set(
    """
    ai am ar cd dc dj dr dvd ev hr id ip it la mc nba nhl ny pc pm pr qa sd tv ui uk un us uv vr
    """
)
_PLURAL = re.compile(r"([A-Z]{2,6})('?s)")
_CAPS = re.compile(r"[A-Z]{2,6}")
_NO_VOWEL = re.compile(r"[bcdfghjklmnpqrstvwxz]{2,5}")
_HUMMED = word_set(
    """
    hmm hm mm mmm shh psst pst brr nth tsk zzz grr pfft vs mr dr ms st rd th nd pm tv ft mt ltd
    """
)


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
