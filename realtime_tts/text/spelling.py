"""Spelling of text on request: sign by sign, digit by digit, or as a telephone number.

In English signs have names; in another language digits have theirs, and signs are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from realtime_tts.text.language_data import word_table
from realtime_tts.text.rules.verbalize import foreign_words

SIGNS = word_table("spelt_signs")
_EXTENSION = re.compile(r"(?:extension|ext\.?|x\.?)\s*(?=\d)", re.IGNORECASE)


def _characters(text: str, language: str) -> str:
    """ "AB-12" → "A B dash one two"; a pause where there is white space."""
    return _groups(text.split(), lambda word: " ".join(filter(None, (_sign(char, language) for char in word))))


def _digits(text: str, language: str) -> str:
    """ "12-345" → "one two, three four five"."""
    return _groups(re.findall(r"\w+", text), lambda word: " ".join(_sign(char, language) for char in word))


def _telephone(text: str, language: str) -> str:
    """ "+1 (555) 010-9999 x12" → "plus one, five five five, zero one zero, …, extension one two"."""
    text = _EXTENSION.sub(" extension ", text) if language == "en" else text
    plus = "plus " if text.lstrip().startswith("+") and language == "en" else ""

    def spoken(group: str) -> str:
        if group == "extension" or not any(map(str.isdecimal, group)):
            return group
        return " ".join(_sign(char, language) for char in group)

    joined = _groups(re.findall(r"\w+", text), spoken)
    return plus + joined.replace("extension, ", "extension ")


KINDS: dict[str, Callable[[str, str], str]] = {
    "characters": _characters,
    "spell-out": _characters,
    "verbatim": _characters,
    "digits": _digits,
    "telephone": _telephone,
}


def _groups(groups: list[str], spoken: Callable[[str], str]) -> str:
    return ", ".join(filter(None, map(spoken, groups)))


def _sign(char: str, language: str) -> str:
    if char.isdecimal():
        return foreign_words(str(int(char)), language)
    if char.isalpha():
        return char.upper() if len(char.upper()) == 1 else char
    return SIGNS.get(char, "") if language == "en" else ""
