"""Amounts of money: symbols and currency codes on either side, cents, magnitudes, ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass

from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.numbers import END, NUMBER
from realtime_tts.text.rules.verbalize import cardinal, number


@dataclass(frozen=True, slots=True)
class Currency:
    """Names of the unit and its hundredth (empty if it has none)."""

    one: str
    many: str
    cent: str = "cent"
    cents: str = "cents"


_DOLLAR = Currency("dollar", "dollars")
_EURO = Currency("euro", "euros")
_POUND = Currency("pound", "pounds", "penny", "pence")
_YEN = Currency("yen", "yen", "", "")
_RUPEE = Currency("rupee", "rupees", "paisa", "paise")
_WON = Currency("won", "won", "", "")
_RUBLE = Currency("ruble", "rubles", "kopeck", "kopecks")
_FRANC = Currency("Swiss franc", "Swiss francs")
_YUAN = Currency("yuan", "yuan", "", "")
_SYMBOLS = {"$": _DOLLAR, "€": _EURO, "£": _POUND, "¥": _YEN, "₹": _RUPEE, "₩": _WON, "₽": _RUBLE}
_CODES = {
    "USD": _DOLLAR,
    "EUR": _EURO,
    "GBP": _POUND,
    "JPY": _YEN,
    "INR": _RUPEE,
    "CHF": _FRANC,
    "CNY": _YUAN,
    "RMB": _YUAN,
    "CAD": Currency("Canadian dollar", "Canadian dollars"),
    "AUD": Currency("Australian dollar", "Australian dollars"),
}
_PREFIXES = {
    "US$": _DOLLAR,
    "C$": _CODES["CAD"],
    "CA$": _CODES["CAD"],
    "A$": _CODES["AUD"],
    "AU$": _CODES["AUD"],
}
_MAGNITUDES = {"k": "thousand", "m": "million", "mn": "million", "mm": "million", "mio": "million", "b": "billion",
               "bn": "billion", "t": "trillion", "tn": "trillion"}  # fmt: skip
_SIGN = r"([$€£¥₹₩₽])"
_SIGNED = rf"-?(?:{NUMBER}|\.\d\d(?!\d))"
_TO_HIGHER = rf"(?:(?: ?[-–] ?|—)(-?[$€£¥₹₩₽]?{_SIGNED}))?"
_CODE = r"(USD|EUR|GBP|JPY|INR|CHF|CNY|RMB|CAD|AUD)"
_MAGNITUDE = r"(?: ?(thousand|million|billion|trillion|mio|mn|bn|tn|[kKmMbBtT])" + END + ")?"


def _amount(currency: Currency, low: str, high: str | None, magnitude: str | None) -> str:
    """ "$5", "$-5.00", "$5–10", "$1.5 million"; a sign may stand before each number."""
    if low.startswith("-") or (high and high.startswith("-")):
        ends = (low, high) if high else (low,)
        return " to ".join(
            f"{'minus ' * end.startswith('-')}{_amount(currency, end.lstrip('-'), None, magnitude)}" for end in ends
        )
    if magnitude:
        magnitude = _MAGNITUDES.get(magnitude.lower(), magnitude)
        span = f"{number(low)} to {number(high)}" if high else number(low)
        return f"{span} {magnitude} {currency.many}"
    if high:
        start = _plain_amount(currency, low) if "." in low else number(low)
        return f"{start} to {_plain_amount(currency, high)}"
    return _plain_amount(currency, low)


def _plain_amount(currency: Currency, text: str) -> str:
    whole, _, fraction = text.replace(",", "").partition(".")
    if not fraction or not currency.cent or len(fraction) > 2:
        return f"{number(text)} {currency.one if text == '1' else currency.many}"
    units, cents = int(whole or "0"), int(fraction.ljust(2, "0"))
    spoken_cents = f"{cardinal(str(cents))} {currency.cent if cents == 1 else currency.cents}"
    spoken = f"{cardinal(str(units))} {currency.one if units == 1 else currency.many}"
    if not cents:
        return spoken
    return f"{spoken} and {spoken_cents}" if units else spoken_cents


def _with_symbol(match: re.Match[str], scan: Scan) -> str | None:
    symbol, low, high, magnitude = match.groups()
    return _amount(_SYMBOLS[symbol], low, _without_sign(high), magnitude)


def _without_sign(text: str | None) -> str | None:
    return text and re.sub(_SIGN, "", text)


def _with_prefix(match: re.Match[str], scan: Scan) -> str | None:
    prefix, low, high, magnitude = match.groups()
    return _amount(_PREFIXES.get(prefix) or _CODES[prefix.strip()], low, _without_sign(high), magnitude)


def _before_currency(match: re.Match[str], scan: Scan) -> str | None:
    low, magnitude, symbol, code = match.groups()
    # "3,50 €": a decimal comma, as where the symbol follows the number.
    low = re.sub(r",(\d\d)\Z", r".\1", low)
    return _amount(_SYMBOLS[symbol] if symbol else _CODES[code], low, None, magnitude)


def _cents(match: re.Match[str], scan: Scan) -> str | None:
    return f"{number(match.group(1))} {'cent' if match.group(1) == '1' else 'cents'}"


SYMBOL_RULES = (Rule(rf"{_SIGN} ?({_SIGNED}){_TO_HIGHER}" + _MAGNITUDE, _with_symbol),)
LETTER_RULES = (Rule(rf"(US\$|CA?\$|AU?\$|{_CODE[1:-1]}) ?({_SIGNED}){_TO_HIGHER}" + _MAGNITUDE, _with_prefix),)
DIGIT_RULES = (
    Rule(rf"(\d{{1,9}},\d\d(?!\d)|{NUMBER}){_MAGNITUDE} ?(?:([€£₹₩₽])|{_CODE}(?!\w))", _before_currency),
    Rule(rf"({NUMBER}) ?¢", _cents),
)
