"""Calendar dates (ISO, US, dotted, with month names on either side of the day), times of day, and ratios, which look
like times."""

from __future__ import annotations

import re

from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.locales import units
from realtime_tts.text.rules.numbers import END, MONTHS, is_day
from realtime_tts.text.rules.verbalize import cardinal, number, ordinal, year

_NAMES = (*MONTHS, "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH = (
    r"(Jan(?:uary|\.)?|Feb(?:ruary|\.)?|Mar(?:ch|\.)?|Apr(?:il|\.)?|May|June?\.?|July?\.?|Aug(?:ust|\.)?|"
    r"Sept?(?:ember|\.)?|Oct(?:ober|\.)?|Nov(?:ember|\.)?|Dec(?:ember|\.)?)"
)
_SECOND = units("en")["s"]
# The stop of "p.m." ends the sentence before a capital, except that of a day or a time zone.
_AFTER_HALF = r"[ECMP][SD]?T|UTC|GMT|Eastern|Central|Mountain|Pacific|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_HALF = rf"(?: ?(?:([aApP])\.?[mM](?!\w)|([ap])\.m)(?:\.(?= ?[a-z,;:!?)–—-]| (?:{_AFTER_HALF}){END}))?)"
_MONTH_NAME = _MONTH.replace(r"|\.", "").replace(r"\.?", "")  # without full stops
_YEAR = r"(?:,? ([12]\d{3})(?![\d%]|[.,]\d))"


def _full_name(text: str) -> str:
    """ "fri" → "Friday", "Sept." → "September"."""
    return next(name for name in _NAMES if name.startswith(text[:3].capitalize()))


_DAY_NAME = r"((?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs?)?|Fri|Sat(?:ur)?|Sun)(?:day)?)"
_TH = "st|nd|rd|th"
_STOP = r"(?:\.(?= ?[a-z0-9,;:]))?"  # of an abbreviation within a sentence


def _date(day: str, month: str, year_text: str | None) -> str | None:
    """Return a date in words; None if there is no such day."""
    return _spoken(int(month), day, year_text) if is_day(day, int(month)) else None


def _spoken(month: int, day: str, year_text: str | None) -> str:
    return f"{MONTHS[month - 1]} {ordinal(day)}" + (f", {_year(year_text)}" if year_text else "")


def _year(text: str) -> str:
    """Return a year in words; two digits stand for the half century on either side of 2000."""
    return year(text if len(text) == 4 else f"{'20' if int(text) < 50 else '19'}{text}")


def _slashed(match: re.Match[str], scan: Scan) -> str | None:
    """Month first as in the US, unless it cannot be a month."""
    first, second, year_text = match.groups()
    return _date(second, first, year_text) or _date(first, second, year_text)


def _day_month(match: re.Match[str], scan: Scan) -> str | None:
    day, name, year_text = match.group(1), _full_name(match.group(2)), match.group(3)
    if not is_day(day, MONTHS.index(name) + 1):
        return None
    article = "" if scan.previous_word(match.start()).lower() == "the" else "the "
    return f"{article}{ordinal(day)} of {name}" + (f", {year(year_text)}" if year_text else "")


def _month_day(match: re.Match[str], scan: Scan) -> str | None:
    name, day, last_day, year_text = _full_name(match.group(1)), *match.groups()[1:]
    month = MONTHS.index(name) + 1
    if not is_day(day, month) or (last_day and not is_day(last_day, month)):
        return None
    if last_day:
        return f"{_spoken(month, day, None)} to {ordinal(last_day)}" + (f", {_year(year_text)}" if year_text else "")
    return _spoken(month, day, year_text)


def _range(match: re.Match[str], scan: Scan) -> str | None:
    """ "Mon–Fri", "Jan-Mar"."""
    first, last = filter(None, match.groups())
    return f"{_full_name(first)} to {_full_name(last)}"


def _between(name: str) -> str:
    """Return the pattern of a range; in lower case ("mon-fri") only without spaces."""
    return rf"(?:{name}\.? [-–] {name}|(?i:{name}\.?[-–—]{name})){END}{_STOP}"


def _weekday(match: re.Match[str], scan: Scan) -> str | None:
    return _full_name(match.group(1)) + (match.group(2) or "")


def _clock(match: re.Match[str], scan: Scan) -> str | None:
    hour, minute, second = int(match.group(1)), int(match.group(2)), match.group(3)
    half = match.group(4) or match.group(5)
    if hour > 24 or minute > 59:
        return None
    if not 1 <= hour <= 12:
        half = None  # "17:00 pm" says the same thing twice
    spoken = _hour_and_minute(hour, minute, half is not None)
    if second:
        spoken += f" and {cardinal(str(int(second)))} {_SECOND.after(str(int(second)))}"
    return f"{spoken} {half.upper()} M" if half else spoken


def _hour_and_minute(hour: int, minute: int, has_half: bool) -> str:
    if minute:
        return f"{cardinal(str(hour))} {'oh ' if minute < 10 else ''}{cardinal(str(minute))}"
    if has_half:
        return cardinal(str(hour))
    if hour in (0, 24):
        return "midnight"
    suffix = "o'clock" if hour <= 12 else "hundred hours"
    return f"{cardinal(str(hour))} {suffix}"


def _full_hour(match: re.Match[str], scan: Scan) -> str | None:
    hour, half = int(match.group(1)), match.group(2) or match.group(3)
    return f"{cardinal(str(hour))} {half.upper()} M" if 1 <= hour <= 12 else None


DIGIT_RULES = (
    Rule(r"(\d{4})-(\d\d)-(\d\d)(?:(?=T\d)|(?![\w-]))", lambda match, scan: _date(*match.group(3, 2, 1))),
    Rule(r"(\d{4})/(\d\d)/(\d\d)(?![\w/-])", lambda match, scan: _date(*match.group(3, 2, 1))),
    Rule(r"(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/])", _slashed),
    Rule(r"(\d{1,2})\.(\d{1,2})\.([12]\d{3})(?![\w]|\.\d)", lambda match, scan: _date(*match.groups())),
    Rule(r"(\d{1,2})(?:st|nd|rd|th)? (?:of )?" + _MONTH + END + _YEAR + "?", _day_month),
    Rule(r"(\d{1,2}):(\d\d)(?::([0-5]\d))?(?:\.\d{1,9}(?=Z))?(?!\d|[:.]\d)" + _HALF + "?(?:Z(?!\\w))?", _clock),
    Rule(r"(\d{1,2})" + _HALF, _full_hour),
    Rule(
        r"(\d{1,4}(?:\.\d{1,4})?):(\d{1,4}(?:\.\d{1,4})?)(?![\w:])",
        lambda match, scan: f"{number(match[1])} to {number(match[2])}",
    ),
)
LETTER_RULES = (
    *(Rule(_between(name), _range) for name in (_DAY_NAME, _MONTH_NAME)),
    Rule(
        _MONTH
        + rf" (\d{{1,2}})(?:{_TH})?(?![\w:%]|[.,]\d)(?:[-–](\d{{1,2}})(?:{_TH})?(?![\w:%/-]|[.,]\d))?"
        + _YEAR
        + "?",
        _month_day,
    ),
    Rule(r"(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?(?= \d)", lambda match, scan: _full_name(match[1])),
    Rule(r"(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)(?:\.,?|(,))(?= (?:\d|" + _MONTH + "))", _weekday),
    Rule(r"(?<=\d)T(?=\d\d:\d\d)", "at"),
)
SYMBOL_RULES = (
    # "Jan 5–Mar 3", "3 March – 5 April"
    Rule(rf"[-–](?<=[\dth][-–])(?={_MONTH_NAME}{END})|[-–](?<=[\dth] [-–])(?= {_MONTH_NAME}{END})", "to"),
)
