"""Quantities with a unit of measure, and percentages."""

from __future__ import annotations

import re

from realtime_tts.text.language_data import word_table
from realtime_tts.text.rules.base import Rule, Scan, any_of
from realtime_tts.text.rules.locales import noun, units
from realtime_tts.text.rules.numbers import END, NUMBER
from realtime_tts.text.rules.verbalize import number

_UNITS = units("en")
_PER = word_table("per")
_INCH = noun("inch|inches")
_SPACED_ONLY = frozenset({"K"})  # "10K" is ten thousand
_ANY, _ANY_PER = any_of(_UNITS), any_of(_PER)
_POWERS = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}
_UNIT = rf"({_ANY})([²³]|(?<=m)[23](?!\d))?(?![^\W_])(?:/({_ANY_PER})(s?²)?(?![^\W_]))?"


def _quantity(match: re.Match[str], scan: Scan) -> str | None:
    low, joint, high, gap, symbol, power, per, _ = match.groups()
    if symbol in _SPACED_ONLY and not (gap or power or per):
        return None
    unit = _POWERS.get(power or "", "") + _UNITS[symbol].after("1" if joint else high or low)  # "a 5-km run"
    if per:
        unit += f" per {_PER[per]}" + (" squared" if match.group(8) else "")
    return f"{_amount(low, high)} {unit}"


def _amount(low: str, high: str | None) -> str:
    return f"{number(low)} to {number(high)}" if high else number(low)


def _inches(match: re.Match[str], scan: Scan) -> str | None:
    """5'10" is a height; a double quote after a number alone is too often a closing quote."""
    feet, inches = match.groups()
    return f"{number(feet)} {_UNITS['ft'].after(feet)} {number(inches)}"


def _dotted_inches(match: re.Match[str], scan: Scan) -> str | None:
    """ "12 in. long"; without the stop it is a word ("5 in a row")."""
    low, joint, high = match.groups()
    unit = _INCH.after("1" if joint else high or low)
    return f"{_amount(low, high)} {unit}{'.' * scan.ends_sentence(match.end())}"


def _duration(match: re.Match[str], scan: Scan) -> str | None:
    hours, minutes = match.groups()
    return f"{number(hours)} {_UNITS['h'].after(hours)} {number(minutes)} {_UNITS['min'].after(minutes)}"


DIGIT_RULES = (
    Rule(r"(\d{1,3}) ?h(?:rs?)? ?(\d{1,2}) ?m(?:ins?)?" + END, _duration),
    Rule(r"(\d{1,2})'(\d{1,2})\"?(?!\w)", _inches),
    Rule(rf"({NUMBER})(?:(-)(?=[^\d])|(?: ?[-–] ?({NUMBER}))?)( ?){_UNIT}", _quantity),
    Rule(rf"({NUMBER})(?:(-)(?=[^\d])|(?: ?[-–] ?({NUMBER}))?) ?in\.(?!\w)", _dotted_inches),
)
SYMBOL_RULES = (Rule(rf"(?<=[\ds])/({_ANY_PER})(?![^\W_])", lambda match, scan: f"per {_PER[match[1]]}"),)
