"""Quantities with a unit of measure, and percentages."""

from __future__ import annotations

import re
import unicodedata

from realtime_tts.text.language_data import word_table
from realtime_tts.text.rules.base import Rule, Scan, any_of
from realtime_tts.text.rules.locales import noun, units
from realtime_tts.text.rules.numbers import END, NUMBER, VULGAR, mixed
from realtime_tts.text.rules.verbalize import number

_UNITS = units("en")
_PER = word_table("per")
_INCH = noun("inch|inches")
_SPACED_ONLY = frozenset({"K"})  # "10K" is ten thousand
_ANY, _ANY_PER = any_of(_UNITS), any_of(_PER)
_POWERS = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}
# With the full stop of an abbreviation that ends no sentence: "8 oz. cheese".
_UNIT = rf"({_ANY})([²³]|(?<=m)[23](?!\d))?(?![^\W_])(?:/({_ANY_PER})(s?²)?(?![^\W_])|\.(?= [a-z(]|,| \d{{1,2}} in))?"


def _quantity(match: re.Match[str], scan: Scan) -> str | None:
    low, joint, high, gap, symbol, power, per, _ = match.groups()
    if symbol in _SPACED_ONLY and not (gap or power or per):
        return None
    return f"{_amount(low, high)} {_unit(match, '1' if joint else high or low)}"  # "a 5-km run"


def _part(match: re.Match[str], scan: Scan) -> str | None:
    """ "1/2 oz", "2½ tbsp"."""
    whole, numerator, denominator, sign, symbol = match.groups()[:5]
    if sign:
        numerator, denominator = unicodedata.normalize("NFKC", sign).split("⁄")
    if symbol in _SPACED_ONLY:
        return None
    is_one = not whole and int(numerator) <= int(denominator)
    return f"{mixed(whole, int(numerator), int(denominator))} {_unit(match, '1' if is_one else '2')}"


def _unit(match: re.Match[str], number: str) -> str:
    """Return the name of the unit that a match of `_UNIT` ends with, after this number."""
    symbol, power, per, square = match.groups()[-4:]
    name = _POWERS.get(power or "", "") + _UNITS[symbol].after(number)
    return name + (f" per {_PER[per]}" + " squared" * bool(square) if per else "")


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
    Rule(rf"(?:(\d{{1,3}}) ?)?(?:(?<!\d)(\d{{1,3}})/(?!0)(\d{{1,3}})|({VULGAR})) ?{_UNIT}", _part),
    Rule(r"(\d{1,3}) ?h(?:rs?)? ?(\d{1,2}) ?m(?:ins?)?" + END, _duration),
    Rule(r"(\d{1,2})'(?=\d| \d{1,2}\") ?(\d{1,2})\"?(?!\w)", _inches),
    Rule(rf"({NUMBER})(?:(-)(?=[^\d])|(?: ?[-–] ?({NUMBER}))?)( ?){_UNIT}", _quantity),
    Rule(rf"({NUMBER})(?:(-)(?=[^\d])|(?: ?[-–] ?({NUMBER}))?) ?in\.(?!\w)", _dotted_inches),
)
SYMBOL_RULES = (
    Rule(rf"()()()({VULGAR}) ?{_UNIT}", _part),
    Rule(rf"(?<=[\ds])/({_ANY_PER})(?![^\W_])", lambda match, scan: f"per {_PER[match[1]]}"),
)
