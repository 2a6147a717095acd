"""Quantities with a unit of measure, and percentages."""

from __future__ import annotations

import re

from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.numbers import END, NUMBER
from realtime_tts.text.rules.verbalize import number

# Symbol → (singular, plural).
_UNITS: dict[str, tuple[str, str]] = {
    symbol: (one, many or one + "s")
    for symbol, one, many in (
        ("km", "kilometer", ""), ("cm", "centimeter", ""), ("mm", "millimeter", ""), ("µm", "micrometer", ""),
        ("μm", "micrometer", ""), ("nm", "nanometer", ""), ("m", "meter", ""), ("mi", "mile", ""),
        ("ft", "foot", "feet"), ("yd", "yard", ""), ("kg", "kilogram", ""), ("mg", "milligram", ""),
        ("µg", "microgram", ""), ("μg", "microgram", ""), ("g", "gram", ""), ("lb", "pound", ""),
        ("lbs", "pound", "pounds"), ("oz", "ounce", ""), ("l", "liter", ""), ("L", "liter", ""),
        ("ml", "milliliter", ""), ("mL", "milliliter", ""), ("cl", "centiliter", ""), ("dl", "deciliter", ""),
        ("KB", "kilobyte", ""), ("kB", "kilobyte", ""), ("MB", "megabyte", ""), ("GB", "gigabyte", ""),
        ("TB", "terabyte", ""), ("PB", "petabyte", ""), ("KiB", "kibibyte", ""), ("MiB", "mebibyte", ""),
        ("GiB", "gibibyte", ""), ("Mb", "megabit", ""), ("Gb", "gigabit", ""), ("kb", "kilobit", ""),
        ("kbps", "kilobit per second", "kilobits per second"), ("Mbps", "megabit per second", "megabits per second"),
        ("Gbps", "gigabit per second", "gigabits per second"), ("mph", "mile per hour", "miles per hour"),
        ("kph", "kilometer per hour", "kilometers per hour"), ("Hz", "hertz", "hertz"),
        ("kHz", "kilohertz", "kilohertz"), ("MHz", "megahertz", "megahertz"), ("GHz", "gigahertz", "gigahertz"),
        ("V", "volt", ""), ("kV", "kilovolt", ""), ("mV", "millivolt", ""), ("mA", "milliamp", ""),
        ("mAh", "milliamp hour", ""), ("W", "watt", ""), ("kW", "kilowatt", ""), ("MW", "megawatt", ""),
        ("GW", "gigawatt", ""), ("kWh", "kilowatt hour", ""), ("MWh", "megawatt hour", ""), ("J", "joule", ""),
        ("kJ", "kilojoule", ""), ("kcal", "kilocalorie", ""), ("cal", "calorie", ""), ("Pa", "pascal", ""),
        ("kPa", "kilopascal", ""), ("hPa", "hectopascal", ""), ("psi", "P S I", "P S I"), ("dB", "decibel", ""),
        ("px", "pixel", ""), ("dpi", "dots per inch", "dots per inch"),
        ("fps", "frame per second", "frames per second"),
        ("rpm", "R P M", "R P M"), ("bpm", "beat per minute", "beats per minute"), ("ms", "millisecond", ""),
        ("µs", "microsecond", ""), ("μs", "microsecond", ""), ("ns", "nanosecond", ""), ("s", "second", ""),
        ("sec", "second", ""), ("secs", "second", "seconds"), ("min", "minute", ""), ("mins", "minute", "minutes"),
        ("h", "hour", ""), ("hr", "hour", ""), ("hrs", "hour", "hours"), ("ha", "hectare", ""),
        ("°C", "degree Celsius", "degrees Celsius"), ("°F", "degree Fahrenheit", "degrees Fahrenheit"),
        ("°", "degree", ""), ("K", "K", "K"), ("%", "percent", "percent"), ("‰", "per mille", "per mille"),
        ("tsp", "teaspoon", ""), ("tbsp", "tablespoon", ""),
        ("sqft", "square foot", "square feet"), ("sq ft", "square foot", "square feet"),
    )
}  # fmt: skip
_PER = {
    "s": "second", "sec": "second", "second": "second", "min": "minute", "minute": "minute", "h": "hour", "hr": "hour",
    "hour": "hour", "d": "day", "day": "day", "wk": "week", "week": "week", "mo": "month", "month": "month",
    "yr": "year", "year": "year", "night": "night", "user": "user", "person": "person", "seat": "seat",
    "token": "token", "request": "request", "call": "call", "g": "gram", "kg": "kilogram", "lb": "pound", "m": "meter",
    "km": "kilometer", "l": "liter", "L": "liter", "ml": "milliliter", "gal": "gallon", "GB": "gigabyte",
}  # fmt: skip
_SPACED_ONLY = frozenset({"K"})  # "10K" is ten thousand
_ANY = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_ANY_PER = "|".join(sorted(map(re.escape, _PER), key=len, reverse=True))
_POWERS = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}
_UNIT = rf"({_ANY})([²³]|(?<=m)[23](?!\d))?(?![^\W_])(?:/({_ANY_PER})(s?²)?(?![^\W_]))?"


def _quantity(match: re.Match[str], scan: Scan) -> str | None:
    low, joint, high, gap, symbol, power, per, _ = match.groups()
    if symbol in _SPACED_ONLY and not (gap or power or per):
        return None
    singular = joint == "-" or (high or low) == "1"  # "a 5-km run"
    unit = _POWERS.get(power or "", "") + _UNITS[symbol][0 if singular else 1]
    if per:
        unit += f" per {_PER[per]}" + (" squared" if match.group(8) else "")
    return f"{_amount(low, high)} {unit}"


def _amount(low: str, high: str | None) -> str:
    return f"{number(low)} to {number(high)}" if high else number(low)


def _inches(match: re.Match[str], scan: Scan) -> str | None:
    """5'10" is a height; a double quote after a number alone is too often a closing quote."""
    feet, inches = match.groups()
    return f"{number(feet)} {'foot' if feet == '1' else 'feet'} {number(inches)}"


def _dotted_inches(match: re.Match[str], scan: Scan) -> str | None:
    """ "12 in. long"; without the stop it is a word ("5 in a row")."""
    low, joint, high = match.groups()
    unit = "inch" if joint == "-" or (high or low) == "1" else "inches"
    return f"{_amount(low, high)} {unit}{'.' * scan.ends_sentence(match.end())}"


def _duration(match: re.Match[str], scan: Scan) -> str | None:
    hours, minutes = match.groups()
    return f"{number(hours)} hour{'s' * (hours != '1')} {number(minutes)} minute{'s' * (minutes != '1')}"


def _per(match: re.Match[str], scan: Scan) -> str | None:
    return f"per {_PER[match.group(1)]}"


DIGIT_RULES = (
    Rule(r"(\d{1,3}) ?h(?:rs?)? ?(\d{1,2}) ?m(?:ins?)?" + END, _duration),
    Rule(r"(\d{1,2})'(\d{1,2})\"?(?!\w)", _inches),
    Rule(rf"({NUMBER})(?:(-)(?=[^\d])|(?: ?[-–] ?({NUMBER}))?)( ?){_UNIT}", _quantity),
    Rule(rf"({NUMBER})(?:(-)(?=[^\d])|(?: ?[-–] ?({NUMBER}))?) ?in\.(?!\w)", _dotted_inches),
)
SYMBOL_RULES = (Rule(rf"(?<=[\ds])/({_ANY_PER})(?![^\W_])", _per),)
