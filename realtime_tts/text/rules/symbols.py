"""Symbols that have a name, and those that are silent: operators, signs, emoticons, Markdown."""

from __future__ import annotations

import re

from realtime_tts.text.rules.acronyms import spell
from realtime_tts.text.rules.base import POSSESSIVE, Rule, Scan
from realtime_tts.text.rules.numbers import END

_OPERATORS = {
    "+": "plus", "=": "equals", "×": "times", "÷": "divided by", "*": "times", "<": "is less than",
    "^": "to the power of", ">": "is greater than",
    "≤": "is at most", "≥": "is at least",
    "≈": "is about", "≠": "is not", "/": "divided by",
    "==": "equals", "!=": "is not", "<=": "is at most", ">=": "is at least",
}  # fmt: skip
_PREFIXES = {
    "-": "minus", "+": "plus", "~": "about", "±": "plus or minus", "<": "less than", ">": "more than", "≤": "at most",
    "≥": "at least", "≈": "about",
}  # fmt: skip
_NAMES = {
    "&": "and", "@": "at", "%": "percent", "°": "degrees", "§": "section", "×": "times", "÷": "divided by",
    "±": "plus or minus", "≈": "about", "≠": "is not", "√": "square root of", "∞": "infinity", "π": "pi",
    "²": "squared", "³": "cubed", "\\": "backslash", "€": "euros", "£": "pounds", "$": "dollars", "¥": "yen",
}  # fmt: skip
_DASH = "[-–—]"
_EMOTICON = r"(?:[:;=8][-o]?(?:[)(\]\[DPp/\\|3]{1,3}|\*(?!\*))|<3|</3|\^_\^|:'\(|xD|XD)(?![^\s.,!?])"

_CODE = re.compile(r"[A-Za-z-]\d{1,20}\Z")
_TAGS = "b|i|u|p|a|s|br|hr|em|strong|div|span|h[1-6]|ul|ol|li|code|pre|sup|sub|table|tr|td|th|img"
_SSML = "speak|prosody|emphasis|say-as|phoneme|voice|lang|mark|audio|break"  # in text that is none


def _silent(match: re.Match[str], scan: Scan) -> str | None:
    return ""


def _operator(match: re.Match[str], scan: Scan) -> str | None:
    return _OPERATORS[match.group().strip()]


def _minus(match: re.Match[str], scan: Scan) -> str | None:
    return "minus"


def _prefix(match: re.Match[str], scan: Scan) -> str | None:
    return _PREFIXES[match.group()]


def _to(match: re.Match[str], scan: Scan) -> str | None:
    """A range, but not within a code such as "A1234-56"."""
    before = scan.text[max(0, match.start() - 24) : match.start()]
    return "" if _CODE.search(before) else "to"


def _between_hours(match: re.Match[str], scan: Scan) -> str | None:
    """ "9am–5pm"."""
    return "to"


def _possessive(match: re.Match[str], scan: Scan) -> str | None:
    return POSSESSIVE


def _by(match: re.Match[str], scan: Scan) -> str | None:
    return "by"


def _times(match: re.Match[str], scan: Scan) -> str | None:
    return "times"


def _number(match: re.Match[str], scan: Scan) -> str | None:
    return "number"


def _slash(match: re.Match[str], scan: Scan) -> str | None:
    """ "and/or" is said without its slash."""
    around = scan.text[max(0, match.start() - 3) : match.start()] + scan.ahead(match.start(), len("/or"))
    return " " if around.lower() == "and/or" else "slash"


def _joined_and(match: re.Match[str], scan: Scan) -> str | None:
    """ "AT&T", "R&D", "Q&A": short names are letters on both sides."""
    left, right = match.groups()
    return f"{spell(left)} and {spell(right)}" if scan.spell else f"{left} and {right}"


def _language(match: re.Match[str], scan: Scan) -> str | None:
    return {"C++": "C plus plus", ".NET": "dot net"}[match.group()]


def _sharp(match: re.Match[str], scan: Scan) -> str | None:
    """The languages C# and F#, and notes."""
    return f"{match.group(1)} sharp"


def _name(match: re.Match[str], scan: Scan) -> str | None:
    return _NAMES[match.group()]


DIGIT_RULES: tuple[Rule, ...] = ()
LETTER_RULES = (
    Rule(re.compile(r"xD(?![^\s.,!?])|XD(?![^\s.,!?])"), _silent),
    Rule(re.compile(r"C\+\+"), _language),
    Rule(re.compile(r"([A-G])#(?!\w)"), _sharp),
    Rule(re.compile(r"([A-Z]{1,2})&([A-Z]{1,2})" + END), _joined_and),
    Rule(re.compile(r"[xX](?=\d)(?<=\d[xX])"), _by),
    Rule(re.compile(r"x(?= \d)(?<=\d x)"), _times),
    Rule(re.compile(r"x(?= ?\d)(?<=in\. x)"), _by),
    Rule(re.compile(r"[xX](?<=\d[xX])" + END), _times),
)
MARKUP_RULES = (
    Rule(re.compile(_EMOTICON), _silent),
    Rule(re.compile(rf"</?(?:{_TAGS}|{_SSML})(?: [^<>]{{0,200}})?/?>", re.IGNORECASE), _silent),
    Rule(re.compile(r"\[(?=[^\[\]]{1,200}\]\()|\[\d{1,3}\](?!\()"), _silent),
    Rule(re.compile(r"`{3}[a-z0-9+-]{0,12}(?=\n)"), _silent),
    Rule(re.compile(r"-{3,}|={3,}|_{3,}|\*{3,}|~{3,}|#{3,}"), _silent),
)
SYMBOL_RULES = (
    Rule(re.compile(r"(?<=[\w.])'s(?!\w)"), _possessive),
    *MARKUP_RULES,
    Rule(re.compile(r"\.NET" + END), _language),
    Rule(re.compile(r"-(?<=\d-)(?=\d{1,15} ?=)|-(?<=\d -)(?= \d{1,15} ?=)"), _minus),
    Rule(re.compile(r"[-–—](?<=[\d%°][-–—])(?=[$€£¥]?\d)|[-–](?<=[\d%°] [-–])(?= [$€£¥]?\d)"), _to),
    Rule(re.compile(rf"{_DASH}(?=\d)(?<=[ap]m.)|{_DASH}(?=\d)(?<=[ap]\.m\..)", re.IGNORECASE), _between_hours),
    Rule(re.compile(r"[-–](?= \d)(?<=[ap]m .)|[-–](?= \d)(?<=[ap]\.m\. .)", re.IGNORECASE), _between_hours),
    Rule(re.compile(r"×(?<=\d×)(?=\d)(?!10\^)"), _by),
    Rule(re.compile(r"\*(?=\d)(?<=\d\*)|\*(?= \d)(?<=\d \*)|×(?=10\^)|/(?= \d)(?<=\d /)|\^(?=\w)(?<=\w\^)"), _operator),
    Rule(re.compile(r"(?:==|!=|<=|>=|[<>≤≥≈≠])(?= )(?<= .)|(?:==|!=|<=|>=)(?= )"), _operator),
    Rule(re.compile(r"[-+~±<>≤≥≈](?=[$€£¥]?\.?\d)(?<![\w.)].)"), _prefix),
    Rule(re.compile(r"(?<![\w#])#(?=\d)|(?<=\w )#(?= \d)"), _number),
    Rule(re.compile(r"/(?<=[^\W_]/)(?=[^\W_])"), _slash),
    Rule(re.compile(r"=(?<=\S =)(?= )|[=+](?<=\w.)(?=\w)|\+(?<=[\w)] \+)(?= )|\+(?<=[\d\w]\+)(?![\w+])"), _operator),
    Rule(re.compile(r"[&@%°§×÷±≈≠√∞π²³\\€£$¥](?![&@%\\])"), _name),
)
