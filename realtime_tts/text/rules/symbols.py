"""Symbols with a name (operators, signs), and silent ones (emoticons, Markdown)."""

from __future__ import annotations

import re

from realtime_tts.text.language_data import word_table
from realtime_tts.text.rules.base import POSSESSIVE, Rule, Scan
from realtime_tts.text.rules.numbers import END
from realtime_tts.text.rules.words import spell

_OPERATORS = word_table("operators")
_PREFIXES = word_table("prefixes")
_NAMES = word_table("signs")
_DASH = "[-–—]"
# "$5M-$10M", "$5 million – $10 million": a range between two amounts, whose first number does not end at the dash.
_TO_AMOUNT = "|".join(
    rf"(?<={magnitude}{space}[-–])(?={space}[$€£¥]\d)"
    for magnitude in (r"\d[kKmMbBtT]", r"\d[bmt]n", r"[mbr]illion", "thousand")
    for space in ("", " ")
)
_EMOTICON = r"(?:[:;=8][-o]?(?:[)(\]\[DPp/\\|3]{1,3}|\*(?!\*))|<3|</3|\^_\^|:'\(|xD|XD)(?![^\s.,!?])"

_COEFFICIENT = re.compile(r"(?:[=+*^²³/] ?-?|(?:[²³]|[^\w'][a-z]) - )[\d.]+\Z")
_CODE = re.compile(r"[A-Za-z-]\d{1,20}\Z")
_TAGS = "b|i|u|p|a|s|br|hr|em|strong|div|span|h[1-6]|ul|ol|li|code|pre|sup|sub|table|tr|td|th|img"


def _to(match: re.Match[str], scan: Scan) -> str | None:
    """A range, but not within a code such as "A1234-56"."""
    before = scan.text[max(0, match.start() - 24) : match.start()]
    return "" if _CODE.search(before) else "to"


def _times(match: re.Match[str], scan: Scan) -> str | None:
    """ "5x faster", but not "y = 3x"."""
    return None if _COEFFICIENT.search(scan.text, max(0, match.start() - 24), match.start()) else "times"


def _slash(match: re.Match[str], scan: Scan) -> str | None:
    """ "and/or" is said without its slash."""
    around = scan.text[max(0, match.start() - 3) : match.start()] + scan.ahead(match.start(), len("/or"))
    return " " if around.lower() == "and/or" else "slash"


def _joined_and(match: re.Match[str], scan: Scan) -> str | None:
    """ "AT&T", "R&D", "Q&A": short names are letters on both sides."""
    left, right = match.groups()
    return f"{spell(left)} and {spell(right)}" if scan.spell else f"{left} and {right}"


LETTER_RULES = (
    Rule(r"xD(?![^\s.,!?])|XD(?![^\s.,!?])", ""),
    Rule(r"C\+\+", "C plus plus"),
    Rule(r"([A-G])#(?!\w)", lambda match, scan: f"{match[1]} sharp"),  # the languages C# and F#, and notes
    Rule(r"([A-Z]{1,2})&([A-Z]{1,2})" + END, _joined_and),
    Rule(r"[xX](?=\d)(?<=\d[xX])", "by"),
    Rule(r"x(?= \d)(?<=\d x)", "times"),
    Rule(r"x(?= ?\d)(?<=in\. x)", "by"),
    Rule(r"[xX](?<=\d[xX])(?! ?[+=^²³]| - )" + END, _times),
)
MARKUP_RULES = (
    Rule(_EMOTICON, ""),
    Rule(rf"</?(?:{_TAGS})(?: [^<>]{{0,200}})?/?>", "", any_case=True),
    Rule(r"\[(?=[^\[\]]{1,200}\]\()|\[\d{1,3}\](?!\()", ""),
    Rule(r"`{3}[a-z0-9+-]{0,12}(?=\n)", ""),
    Rule(r"-{3,}|={3,}|_{3,}|\*{3,}|~{3,}|#{3,}", ""),
)
SYMBOL_RULES = (
    Rule(r"(?<=[\w.])'s(?!\w)", POSSESSIVE),
    *MARKUP_RULES,
    Rule(r"\.NET" + END, "dot net"),
    Rule(r"-(?<=UTC-)(?=\d)|-(?<=GMT-)(?=\d)", "minus"),
    Rule(r"-(?<=\d-)(?=\d{1,15} ?=)|-(?<=\d -)(?= \d{1,15} ?=)", "minus"),
    Rule(r"-(?:(?<=[^\w'][a-z] -)|(?<=\d[a-z] -)|(?<=[²³] -))(?= (?:\d{1,9}[a-z]{0,2}|[a-z])[²³]? ?[=+)])", "minus"),
    Rule(rf"[-–](?:{_TO_AMOUNT})", "to"),
    Rule(r"[-–—](?<=[\d%°][-–—])(?=[$€£¥]?\d)|[-–](?<=[\d%°] [-–])(?= [$€£¥]?\d)", _to),
    Rule(r"[-–](?<=°[CF][-–])(?=-?\d)|[-–](?<=°[CF] [-–])(?= -?\d)", "to"),
    Rule(r"[-–](?<=\d(?:st|nd|rd|th)[-–])(?=\d)|[-–](?<=Q\d[-–])(?=Q\d)", "to"),
    Rule(r"/(?<=°[CF]/)(?=\d)", "or"),
    Rule(rf"{_DASH}(?=\d)(?<=[ap]m.)|{_DASH}(?=\d)(?<=[ap]\.m\..)", "to", any_case=True),
    Rule(r"[-–](?= \d)(?<=[ap]m .)|[-–](?= \d)(?<=[ap]\.m\. .)", "to", any_case=True),
    Rule(r"×(?<=\d×)(?=\d)(?!10\^)", "by"),
    Rule(r"\*(?=\d)(?<=\d\*)|\*(?= \d)(?<=\d \*)|×(?=10\^)|/(?= \d)(?<=\d /)|\^(?=\w|-\d)(?<=\w\^)", _OPERATORS),
    # "Settings > Privacy" is a path of menus, read with a pause.
    Rule(r"(?:==|!=|<=|>=|[<≤≥≈≠]|>(?! [*_\"“`]{0,3}[A-Z][A-Za-z]))(?= )(?<= .)|(?:==|!=|<=|>=)(?= )", _OPERATORS),
    Rule(r"[-+~±<>≤≥≈](?=[$€£¥]?\.?\d)(?<![\w.)].)", _PREFIXES),
    Rule(r"(?<![\w#])#(?=\d)|(?<=\w )#(?= \d)", "number"),
    Rule(r"/(?<=[^\W_]/)(?=[^\W_])", _slash),
    Rule(r"=(?<=\S =)(?= )|[=+](?<=\w.)(?=\w)|\+(?<=[\w)] \+)(?= )|\+(?<=[\d\w]\+)(?![\w+])", _OPERATORS),
    Rule(r"[&@%°§×÷±≈≠√∞π²³\\€£$¥](?![&@%\\])", _NAMES),
)
