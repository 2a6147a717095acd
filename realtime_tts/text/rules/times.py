"""Times of day, and ratios, which look like them."""

from __future__ import annotations

import re

from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.locales import units
from realtime_tts.text.rules.verbalize import cardinal, number

_SECOND = units("en")["s"]
_HALF = r"(?: ?(?:([aApP])\.?[mM](?!\w)|([ap])\.m)(?:\.(?= ?[a-z,;:!?)–—-]))?)"


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


def _ratio(match: re.Match[str], scan: Scan) -> str | None:
    return f"{number(match.group(1))} to {number(match.group(2))}"


DIGIT_RULES = (
    Rule(r"(\d{1,2}):(\d\d)(?::([0-5]\d))?(?:\.\d{1,9}(?=Z))?(?!\d|[:.]\d)" + _HALF + "?(?:Z(?!\\w))?", _clock),
    Rule(r"(\d{1,2})" + _HALF, _full_hour),
    Rule(r"(\d{1,4}(?:\.\d{1,4})?):(\d{1,4}(?:\.\d{1,4})?)(?![\w:])", _ratio),
)
LETTER_RULES = (Rule(r"(?<=\d)T(?=\d\d:\d\d)", "at"),)
