"""Telephone numbers: digit by digit, a short pause between groups."""

from __future__ import annotations

import re

from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.verbalize import digits

_GROUPS = re.compile(r"\d+")
_MIN_DIGITS = 7


def _phone(match: re.Match[str], scan: Scan) -> str | None:
    written, extension = match.group(1), match.group(2)
    groups = _GROUPS.findall(written)
    if written.startswith("+") and sum(map(len, groups)) < _MIN_DIGITS:
        return None
    plus = "plus " if written.startswith("+") else ""
    spoken = plus + ", ".join(digits(group) for group in groups)
    return f"{spoken}, extension {digits(extension)}" if extension else spoken


def _national(match: re.Match[str], scan: Scan) -> str | None:
    """ "0800 123 456", "020 7946 0958", "01 23 45 67 89": a zero leads, and there are enough digits."""
    groups = _GROUPS.findall(match.group(1))
    if sum(map(len, groups)) < _MIN_DIGITS or (len(groups[0]) == 2 and len(groups) < 4):
        return None
    return _phone(match, scan)


def _vanity(match: re.Match[str], scan: Scan) -> str | None:
    """ "1-800-FLOWERS"."""
    prefix, code, word = match.groups()
    return ", ".join(filter(None, (prefix and digits(prefix), digits(code), word)))


_EXTENSION = r"(?:,? ?(?:[Ee]xt(?:ension|\.)?|x\.?) ?(\d{1,6}))?(?![\w-])"


def _rule(pattern: str) -> Rule:
    return Rule(f"({pattern})(?![\\w-])" + _EXTENSION, _phone)


DIGIT_RULES = (
    _rule(r"(?:1[- ])?\d{3}[-. ]\d{3}[-. ]\d{4}"),
    _rule(r"1[- ]\(\d{3}\) ?\d{3}[- ]\d{4}"),
    _rule(r"\d{3}-\d{4}"),
    Rule(r"(0\d{1,5}(?:(?: ?/ ?|[- ])\d{2,8}){1,4})(?![\w-]|[.,:]\d)" + _EXTENSION, _national),
    Rule(r"(?:(1)-)?(8\d\d)-([A-Z]{4,10})(?![\w-])", _vanity),
)
LETTER_RULES = (Rule(r"[Ee]xt\.? ?(\d{1,6})(?![\w-]|[.,]\d)", lambda match, scan: f"extension {digits(match[1])}"),)
SYMBOL_RULES = (
    _rule(r"\+\d{1,33}(?:(?:[-. ]?\(|[-. ]|(?<=\)))\d{1,15}\)?){0,6}"),
    _rule(r"\(\d{3}\) ?\d{3}[- ]\d{4}"),
    Rule(r"(\(0\d{1,5}\)(?:[- ]?\d{2,8}){1,4})(?![\w-]|[.,:]\d)" + _EXTENSION, _national),
)
