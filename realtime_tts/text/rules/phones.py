"""Telephone numbers: digit by digit, a short pause between groups."""

from __future__ import annotations

import re

from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.verbalize import digits

_GROUPS = re.compile(r"\d+")


def _phone(match: re.Match[str], scan: Scan) -> str | None:
    groups = _GROUPS.findall(match.group())
    if match.group().startswith("+") and sum(map(len, groups)) < 7:
        return None
    plus = "plus " if match.group().startswith("+") else ""
    return plus + ", ".join(digits(group) for group in groups)


_NORTH_AMERICAN = r"\d{3}[-. ]\d{3}[-. ]\d{4}(?![\w-])"
_LOCAL = r"\d{3}-\d{4}(?![\w-])"

DIGIT_RULES = (
    Rule(re.compile(r"1[- ]" + _NORTH_AMERICAN), _phone),
    Rule(re.compile(r"1[- ]\(\d{3}\) ?\d{3}[- ]\d{4}(?![\w-])"), _phone),
    Rule(re.compile(_NORTH_AMERICAN), _phone),
    Rule(re.compile(_LOCAL), _phone),
)
SYMBOL_RULES = (
    Rule(re.compile(r"\+\d{1,3}(?:[-. ]?\(?\d{1,5}\)?){1,6}(?![\w-])"), _phone),
    Rule(re.compile(r"\(\d{3}\) ?\d{3}[- ]\d{4}(?![\w-])"), _phone),
)
