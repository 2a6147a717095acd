"""Identifiers of letters and digits (order numbers, flights, parts), read sign by sign, with pauses between groups."""

from __future__ import annotations

import re
from string import ascii_uppercase

from realtime_tts.text.language_data import word_set
from realtime_tts.text.rules.base import Rule, Scan, any_of
from realtime_tts.text.rules.numbers import END
from realtime_tts.text.rules.verbalize import cardinal, digits
from realtime_tts.text.rules.words import is_initialism, spell

_GROUP = re.compile(r"[A-Za-z]+|\d+")
_LONG = 3  # digits in a row from which a code is not read as a number: "COVID-19" and "B2B" are shorter
_NOT_CODES = word_set("not_codes")
# "PIN 4821", "your code is 482913", "order number 12345", "the card ending in 4242"
_IDENTIFIED = re.compile(
    rf"\b(?:(?:{any_of(word_set('code_names'))})|(?:{any_of(word_set('numbered_records'))}) (?:number|no\.?|id)"
    rf"|(?:card|account|number) ending (?:in|with))(?: is)?:? \Z",
    re.IGNORECASE,
)
_LOOK_BACK = 40


def read_code(text: str, scan: Scan, *, one_by_one: bool) -> str:
    """ "A-4521B" → "A, four five two one B"; short numbers as a whole, unless `one_by_one`."""
    parts = (" ".join(_read_group(each, scan, one_by_one) for each in _GROUP.findall(part)) for part in text.split("-"))
    return ", ".join(filter(None, parts))


def _read_group(group: str, scan: Scan, one_by_one: bool) -> str:
    if group.isdecimal():
        whole = not one_by_one and (len(group) < _LONG or (len(group) == _LONG and group.endswith("00")))
        return cardinal(group) if whole else digits(group)
    return spell(group) if scan.spell and is_initialism(group) else group


def _letters_first(match: re.Match[str], scan: Scan) -> str | None:
    """ "ABC-1234", "BA2490", "A4521B"."""
    longest = max(map(len, re.findall(r"\d+", match.group())))
    return read_code(match.group(), scan, one_by_one=longest > _LONG) if longest >= _LONG else None


def _digits_first(match: re.Match[str], scan: Scan) -> str | None:
    """ "4521B", but not "1500W"."""
    return None if match.group(1) in _NOT_CODES else read_code(match.group(), scan, one_by_one=False)


def _identifier(match: re.Match[str], scan: Scan) -> str | None:
    is_named = _IDENTIFIED.search(scan.text, max(0, match.start() - _LOOK_BACK), match.start())
    return _read_group(match.group(), scan, one_by_one=False) if is_named else None


def _hexadecimal(match: re.Match[str], scan: Scan) -> str | None:
    """ "0x1F"."""
    return f"zero x {read_code(match.group(1), scan, one_by_one=True)}"


def _aircraft(match: re.Match[str], scan: Scan) -> str | None:
    """ "747-400": a range does not fall; "737-800" is known by its first number."""
    first, second = match.groups()
    if second >= first and not re.fullmatch("7[0-8]7", first):
        return None
    if first[1] == "0":
        return f"{digits(first)}, {cardinal(second)}"
    return f"{cardinal(first[0])} {cardinal(first[1:])}, {cardinal(second)}"


def _numbered(match: re.Match[str], scan: Scan) -> str | None:
    """ "#5" and "#A-4521B", but a hashtag is a word with a number at its end: "#COVID19"."""
    text = match.group(1)
    num_letters, num_digits = len(text) - len(text.lstrip(ascii_uppercase)), sum(map(str.isdecimal, text))
    if not num_digits or (num_letters > 1 and "-" not in text and (num_letters > 3 or num_digits < _LONG)):
        return None
    return "number " + read_code(text, scan, one_by_one=num_digits > _LONG or (num_letters > 0 and num_digits >= _LONG))


DIGIT_RULES = (
    Rule(r"\d{3,12}(?![\w%°$€£¥]|[-–.,/:]\d| (?:line|character|byte|word|page)s)", _identifier),
    Rule(r"(?<=, [A-Z]{2} )\d{5}(?![\w%]|[.,/:]\d)", lambda match, scan: digits(match.group())),  # a postal code
    Rule(r"0x([0-9A-Fa-f]{1,16})" + END, _hexadecimal),
    Rule(r"([1-9]\d\d)-([1-9]00)(?![\w%]|[-.,]\d)", _aircraft),
    Rule(r"\d{4,12}-?([A-Z]{1,3})(?:\d[A-Z0-9]{0,12})?(?:-[A-Z0-9]{1,12}){0,3}" + END, _digits_first),
)
LETTER_RULES = (
    Rule(r"[A-Z]{1,5}-?\d{1,12}(?!\d)(?:[A-Z][A-Z0-9]{0,12})?(?:-[A-Z0-9]{1,12}){0,3}(?![\w@]|\.\w)", _letters_first),
)
SYMBOL_RULES = (Rule(r"(?<![\w#&])#([A-Z0-9]{1,12}(?:-[A-Z0-9]{1,12}){0,4})(?![\w-]|[.,]\d)", _numbered),)
