"""Plain numbers and their suffixes: ordinals, decades, fractions, versions, serials, signs, Roman numerals."""

from __future__ import annotations

import re
import unicodedata

from realtime_tts.text.language_data import word_set, words
from realtime_tts.text.rules.base import ReachingPattern, Rule, Scan, any_of
from realtime_tts.text.rules.verbalize import cardinal, digits, number, ordinal, pluralize, year

NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,5}(?![\d,]\d)|\d{1,40})(?:\.\d{1,20})?"
VULGAR = "[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]"
END = r"(?![^\W_])"  # no letter or digit follows

_FRACTION_NAMES = {2: "half", 3: "third", 4: "quarter", 100: "hundredth", 1000: "thousandth"}
MONTHS = words("months")
_FIXED_FRACTIONS = {"24/7": "twenty-four seven", "9/11": "nine eleven", "50/50": "fifty fifty"}
_YEAR_PREPOSITIONS = word_set("year_prepositions")
_BEFORE_DECADES = word_set("before_decades")
_NUMBERED = word_set("numbered")
_RULERS = word_set("rulers")
_YEAR_BEFORE = re.compile(r"(?<![\d$€£¥.,-])([12]\d{3})[-–]\Z")
_YEAR_AFTER = ReachingPattern(r"[-–](\d{4}|\d\d)(?![\w%]|[-.,]\d)")
_ROMAN = re.compile(r"(?=[IVXLC])(C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_ROMAN_WORDS = frozenset({"II", "III", "VII", "VIII", "XIII", "XIV", "XVI", "XVII", "XVIII"})


def is_day(day: str, month: int) -> bool:
    """Return whether a month, counted from 1, has such a day."""
    return 1 <= month <= 12 and 1 <= int(day) <= (30 if month in (4, 6, 9, 11) else 29 if month == 2 else 31)


def fraction(numerator: int, denominator: int) -> str:
    """3, 4 → "three quarters"; denominators without a usual name give "three over seventeen"."""
    name = _FRACTION_NAMES.get(denominator)
    if name is None and 5 <= denominator <= 10:
        name = ordinal(str(denominator))
    if numerator == denominator and denominator in (5, 10, 100):
        return f"{cardinal(str(numerator))} out of {cardinal(str(denominator))}"
    if name is None or not 0 < numerator < denominator:
        return f"{cardinal(str(numerator))} over {cardinal(str(denominator))}"
    if numerator == 1:
        return f"one {name}"
    return f"{cardinal(str(numerator))} {name}s"


def _fraction(match: re.Match[str], scan: Scan) -> str | None:
    whole, numerator, denominator = match.group(1), match.group(2), match.group(3)
    if not whole and is_day(denominator, int(numerator)) and _names_a_day(scan, match.start()):
        return f"{MONTHS[int(numerator) - 1]} {ordinal(denominator)}"
    fixed = _FIXED_FRACTIONS.get(f"{numerator}/{denominator}")
    if fixed and not whole:
        return fixed
    return mixed(whole, int(numerator), int(denominator))


def _names_a_day(scan: Scan, index: int) -> bool:
    before = scan.previous_word(index).lower()
    return before in ("on", "until", "since") or before.endswith("day")


def _vulgar(match: re.Match[str], scan: Scan) -> str | None:
    numerator, denominator = unicodedata.normalize("NFKC", match.group(2)).split("⁄")
    return mixed(match.group(1), int(numerator), int(denominator))


def mixed(whole: str | None, numerator: int, denominator: int) -> str:
    """ "2", 1, 2 → "two and a half"."""
    spoken = fraction(numerator, denominator)
    if not whole:
        return spoken
    return f"{cardinal(whole)} and {'a' + spoken[3:] if spoken.startswith('one ') else spoken}"


def _decade(match: re.Match[str], scan: Scan) -> str | None:
    text = match.group(1)
    if len(text) == 4:
        return pluralize(year(text))
    apostrophe = match.group().startswith("'")
    if apostrophe or scan.previous_word(match.start()).lower() in _BEFORE_DECADES:
        return pluralize(cardinal(text))
    return None  # "30s" is half a minute


def _version(match: re.Match[str], scan: Scan) -> str | None:
    parts = match.group(2).split(".")
    address = len(parts) == 4 and all(int(part) < 256 for part in parts) and not match.group(1)
    joint, read = (" dot ", digits) if address else (" point ", cardinal)
    prefix = "version " if match.group(1) and not scan.previous_word(match.start()).lower().startswith("ver") else ""
    return prefix + joint.join(read(part) for part in parts)


def _serial(match: re.Match[str], scan: Scan) -> str | None:
    return ", ".join(digits(part) if len(part) > 2 else cardinal(part) for part in match.group().split("-"))


def _year(match: re.Match[str], scan: Scan) -> str | None:
    value = int(match.group(1))
    era = match.group(2)
    if era or 1900 <= value <= 2099:
        spoken = year(match.group(1))
        return f"{spoken} {' '.join(era.replace('.', ''))}" if era else spoken
    return year(match.group(1)) if 1000 <= value < 1900 and _dates(match, scan) else None


def _dates(match: re.Match[str], scan: Scan) -> bool:
    """Return True if the words or signs around four digits make them a year: "in 1492", "(1597)", "1756–1791"."""
    before, after = scan.text[max(0, match.start() - 6) : match.start()], scan.ahead(match.end(), 1)
    if scan.previous_word(match.start()).lower() in _YEAR_PREPOSITIONS and not before.endswith("$"):
        return True
    if before.endswith("(") and after == ")":
        return True
    first = _YEAR_BEFORE.search(before)
    last = scan.match(_YEAR_AFTER, match.end())
    return bool((first and first[1] < match[1]) or (last and match[1] < match[1][: -len(last[1])] + last[1] < "2100"))


def _number(match: re.Match[str], scan: Scan) -> str | None:
    if match.group().isdigit() and scan.previous_word(match.start()).lower() in ("call", "dial"):
        return digits(match.group())  # 911
    if match.group().isdigit() and len(match.group()) >= _LONG_RUN and not match.group().endswith("000"):
        return digits(match.group())  # a telephone or account number
    return number(match.group())


def roman_value(text: str) -> int | None:
    """Return the value of a well-formed Roman numeral up to 399, else None."""
    if not _ROMAN.fullmatch(text):
        return None
    values = [_ROMAN_VALUES[char] for char in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))


def _roman(match: re.Match[str], scan: Scan) -> str | None:
    text = match.group()
    value = roman_value(text)
    if value is None:
        return None
    before = scan.previous_word(match.start())
    if before[:1].isupper() and before.lower() in _NUMBERED:
        return cardinal(str(value))
    if before[:1].isupper() and before.lower() in _RULERS and (text != "I" or before in ("Elizabeth", "Napoleon")):
        return f"the {ordinal(str(value))}"
    return cardinal(str(value)) if text in _ROMAN_WORDS else None


_LONG_RUN = 10
MAGNITUDES = {"k": "thousand", "m": "million", "mn": "million", "mm": "million", "mio": "million", "b": "billion",
              "bn": "billion", "t": "trillion", "tn": "trillion"}  # fmt: skip
_LENGTH_WORDS = word_set("length_words")


_AFTER_NAMES = word_set("after_names")


def _magnitude(match: re.Match[str], scan: Scan) -> str | None:
    """ "3.5m people", "10k users": a noun follows; "5m tall" is a length."""
    following = scan.next_word(match.end())
    if match.group() == "3M" and (not following[:1].islower() or following in _AFTER_NAMES):
        return None  # the company
    if match.group(2) == "M":
        return f"{number(match.group(1))} million"
    if not following[:1].islower() or following in _LENGTH_WORDS:
        return None
    return f"{number(match.group(1))} {MAGNITUDES[match.group(2).lower()]}"


def _scientific(match: re.Match[str], scan: Scan) -> str | None:
    mantissa, sign, exponent = match.groups()
    return f"{number(mantissa)} times ten to the {'minus ' * (sign == '-')}{cardinal(str(int(exponent)))}"


EARLY_DIGIT_RULES = (
    Rule(rf"({NUMBER})(k|K|m|M|bn|B)" + END, _magnitude),
    Rule(r"(\d(?:\.\d{1,12})?)[eE]([-+]?)(\d{1,3})" + END, _scientific),
    Rule(r"([12]\d\d0|[2-9]0)'?s" + END, _decade),
)
# "1600 Pennsylvania Avenue NW", "1234 E. 5th St."
_STREET_WORD = r"(?:[A-Z][a-z]{1,20}|\d{1,3}(?:st|nd|rd|th)) "
_STREET = rf"(?= (?:[NESW]\.? )?(?:{_STREET_WORD}){{1,3}}(?:{any_of(words('street_names'))}){END})"
DIGIT_RULES = (
    Rule(r"([1-9]\d{3})" + _STREET, lambda match, scan: year(match[1])),
    Rule(r"()(\d{1,5}(?:\.\d{1,5}){2,5})(?!\.?\d)", _version),
    Rule(r"\d{1,6}(?:-\d{1,6}){2,8}" + END, _serial),
    Rule(r"(?:(\d{1,3}) )?(\d{1,3})/(?!0)(\d{1,4})(?:(?:th|rd)s?)?(?![\w/])", _fraction),
    Rule(
        r"(\d\.\d{1,2})/(5|10|4\.0)(?![\w/]|\.\d)", lambda match, scan: f"{number(match[1])} out of {number(match[2])}"
    ),
    Rule(rf"(\d{{1,6}})? ?({VULGAR})", _vulgar),
    Rule(r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:st|nd|rd|th|ST|ND|RD|TH)" + END, lambda match, scan: ordinal(match[1])),
    Rule(r"(\d{1,4})(?![\d,.]\d) ?(?<!\w)(BCE?|CE|AD|B\.C\.|A\.D\.)" + END, _year),
    Rule(r"(\d{4})()(?![\d%]|,\d{3}|\.\d|[^\W_])", _year),
    Rule(NUMBER, _number),
)
LETTER_RULES = (Rule(r"([vV])(\d{1,5}(?:\.\d{1,5}){0,5})(?![\w]|\.\d)", _version), Rule(r"[IVXLC]{1,8}" + END, _roman))
SYMBOL_RULES = (
    Rule(f"()({VULGAR})", _vulgar),
    Rule(r"'([2-9]0)s" + END, _decade),
    Rule(r"(?<![\w.])\.(\d{1,20})(?!\.?\d)", lambda match, scan: "point " + digits(match[1])),
)
