"""Numbers as English words, American style without "and"; num2words does the counting."""

from __future__ import annotations

from functools import lru_cache

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MAX_CARDINAL_DIGITS = 15  # longer runs are identifiers: read digit by digit
_PLAIN_DIGITS = 12  # the same for runs without thousands separators


@lru_cache(maxsize=4096)
def _convert(number: str, kind: str, language: str) -> str:
    # Here, not above: the import takes 25 ms, and a server that only passes text through never needs it.
    from num2words import num2words

    value = int(number) if "." not in number else number
    words = str(num2words(value, lang=language, to=kind))
    if language == "en":
        words = words.replace(" and ", " ").replace(",", "")
    return words


def cardinal(number: str) -> str:
    """ "1,234" → "one thousand two hundred thirty-four"; leading zeros and very long runs digit by digit."""
    plain = number.replace(",", "")
    limit = MAX_CARDINAL_DIGITS if "," in number else _PLAIN_DIGITS
    if len(plain) > limit or (len(plain) > 1 and plain[0] == "0"):
        return digits(plain)
    return _convert(str(int(plain)), "cardinal", "en")


def number(text: str) -> str:
    """Return a cardinal or a decimal in words: "3.14" → "three point one four"."""
    whole, dot, fraction = text.partition(".")
    if not dot:
        return cardinal(whole)
    return f"{cardinal(whole or '0')} point {digits(fraction)}"


def ordinal(number: str) -> str:
    """ "21" → "twenty-first"."""
    plain = number.replace(",", "")
    if len(plain) > _PLAIN_DIGITS:
        return digits(plain)
    return _convert(str(int(plain)), "ordinal", "en")


def year(number: str) -> str:
    """ "1999" → "nineteen ninety-nine", "1905" → "nineteen oh five", "2005" → "two thousand five"."""
    return _convert(str(int(number)), "year", "en").replace("oh-", "oh ")


def digits(text: str) -> str:
    """ "405" → "four zero five"; what is not a digit separates groups."""
    return " ".join(_DIGITS[int(char)] if char.isdecimal() else "" for char in text).strip()


def pluralize(words: str) -> str:
    """Return the words with the last one in the plural: "nineteen ninety" → "nineteen nineties"."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def foreign_words(number: str, language: str, kind: str = "cardinal") -> str:
    """Return a plain number in words of another language; the number itself where num2words does not know it.

    Args:
        kind: "cardinal", "ordinal" or "year".
    """
    try:
        return _convert(number, kind, language)
    except (NotImplementedError, OverflowError, ValueError):
        return number
