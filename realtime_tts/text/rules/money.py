"""Amounts of money: symbols and currency codes on either side, cents, magnitudes, ranges."""

from __future__ import annotations

import re

from realtime_tts.text.rules.base import Rule, Scan, any_of
from realtime_tts.text.rules.locales import Currency, currencies, noun
from realtime_tts.text.rules.numbers import END, MAGNITUDES, NUMBER
from realtime_tts.text.rules.verbalize import cardinal, number

_CURRENCIES = currencies("en")
_CENT = noun("cent+")
_SIGN = "[$€£¥₹₩₽]"
_CODE = any_of(filter(str.isalpha, _CURRENCIES))
_SIGNED = rf"-?(?:{NUMBER}|\.\d\d(?!\d))"
_TO_HIGHER = rf"(?:(?: ?[-–] ?|—)(-?{_SIGN}?{_SIGNED}))?"
_MAGNITUDE = r"(?: ?(thousand|million|billion|trillion|mio|mn|bn|tn|MM|[kKmMbBtT])" + END + ")?"


def _amount(currency: Currency, low: str, high: str | None, magnitude: str | None) -> str:
    """ "$5", "$-5.00", "$5–10", "$1.5 million"; a sign may stand before each number."""
    if low.startswith("-") or (high and high.startswith("-")):
        ends = (low, high) if high else (low,)
        return " to ".join(
            f"{'minus ' * end.startswith('-')}{_amount(currency, end.lstrip('-'), None, magnitude)}" for end in ends
        )
    if magnitude:
        magnitude = MAGNITUDES.get(magnitude.lower(), magnitude)
        span = f"{number(low)} to {number(high)}" if high else number(low)
        return f"{span} {magnitude} {currency.unit.many}"
    if high:
        start = _plain_amount(currency, low) if "." in low else number(low)
        return f"{start} to {_plain_amount(currency, high)}"
    return _plain_amount(currency, low)


def _plain_amount(currency: Currency, text: str) -> str:
    whole, _, fraction = text.replace(",", "").partition(".")
    if not fraction or currency.cent is None or len(fraction) > 2:
        return f"{number(text)} {currency.unit.after(text)}"
    units, cents = str(int(whole or "0")), str(int(fraction.ljust(2, "0")))
    spoken, spoken_cents = (
        f"{cardinal(value)} {name.after(value)}" for value, name in ((units, currency.unit), (cents, currency.cent))
    )
    if cents == "0":
        return spoken
    return spoken_cents if units == "0" else f"{spoken} and {spoken_cents}"


def _after_currency(match: re.Match[str], scan: Scan) -> str | None:
    name, low, high, magnitude = match.groups()
    return _amount(_CURRENCIES[name], low, high and re.sub(_SIGN, "", high), magnitude)


def _before_currency(match: re.Match[str], scan: Scan) -> str | None:
    low, magnitude, name = match.groups()
    # "3,50 €": a decimal comma, as where the symbol follows the number.
    low = re.sub(r",(\d\d)\Z", r".\1", low)
    return _amount(_CURRENCIES[name], low, None, magnitude)


_AFTER = rf" ?({_SIGNED}){_TO_HIGHER}{_MAGNITUDE}"
SYMBOL_RULES = (Rule(f"({_SIGN}){_AFTER}", _after_currency),)
LETTER_RULES = (Rule(f"({any_of(name for name in _CURRENCIES if name[0].isalpha())}){_AFTER}", _after_currency),)
DIGIT_RULES = (
    Rule(rf"(\d{{1,9}},\d\d(?!\d)|{NUMBER}){_MAGNITUDE} ?([€£₹₩₽]|(?:{_CODE})(?!\w))", _before_currency),
    Rule(rf"({NUMBER}) ?¢", lambda match, scan: f"{number(match[1])} {_CENT.after(match[1])}"),
)
