"""Abbreviations that are read in full. The reading of some depends on the context."""

from __future__ import annotations

import re

from realtime_tts.text.boundaries import word_opens_sentence
from realtime_tts.text.language_data import word_set, word_table
from realtime_tts.text.rules.base import Rule, Scan
from realtime_tts.text.rules.numbers import END

# Written with a full stop. The stop is part of the abbreviation, unless a sentence ends there too.
_DOTTED = word_table("dotted_abbreviations")
_PLAIN = word_table("plain_abbreviations")
_NEVER_LAST = word_set("titles") | {"e.g", "i.e", "vs", "cf", "viz"}
_NEEDS_NUMBER = word_table("abbreviations_before_numbers")
_STREETS, _TITLES_OF = {"st": "Street", "dr": "Drive"}, {"st": "Saint", "dr": "Doctor"}
# Words of their own that end sentences: only a following number or name makes them abbreviations.
_WORDS_TOO = word_set("words_too")


def _dotted(match: re.Match[str], scan: Scan) -> str | None:
    name = match.group(1).lower()
    if name in _NEEDS_NUMBER and _is_number(name, scan.next_word(match.end())):
        return _NEEDS_NUMBER[name]
    if name in ("st", "dr"):
        return _street_or_title(name, scan, match)
    if name not in _DOTTED or (name in _WORDS_TOO and not (match.group(1)[0].isupper() and _before_name(scan, match))):
        return None
    return _DOTTED[name] + _sentence_stop(scan, match, name)


def _is_number(name: str, following: str) -> bool:
    """ "5", and after "No." a code: "A12"."""
    is_code = following[:1].isupper() and any(map(str.isdecimal, following))
    return following[:1].isdigit() or (name == "no" and is_code)


def _street_or_title(name: str, scan: Scan, match: re.Match[str]) -> str:
    """ "Dr. Smith" and "St. Paul" against "Elm St." and "Ocean Dr."."""
    before = scan.text[max(0, match.start() - 1) : match.start()]
    previous = scan.previous_word(match.start())
    context = scan.text[max(0, match.start() - 48) : match.start()]
    named = before == " " and previous[:1].isupper() and scan.text[match.start() - 2] not in ".,;:!?"
    ends = not _before_name(scan, match) or word_opens_sentence(scan.next_word(match.end()))
    is_street = named and previous.lower() not in _TITLE_CONTEXT and (ends or _HOUSE_NUMBER.search(context))
    if name == "st":
        is_street = is_street or (named and _is_street(scan, match, previous)) or _SURE_STREET.search(context)
    if is_street:
        return _STREETS[name] + _sentence_stop(scan, match, "")
    return _TITLES_OF[name]


def _is_street(scan: Scan, match: re.Match[str], previous: str) -> bool:
    """Return whether "St." between a word with a capital and another one is a street: "Yonge St. Toronto".

    The word before it may be a verb that begins the sentence, as in "Visit St. Moritz": that leaves a saint.
    """
    following = scan.next_word(match.end())
    if following.lower().removesuffix("'s") in _SAINTS or previous.lower() in _TITLE_CONTEXT:
        return False
    is_first = _FIRST_WORD.search(scan.text, max(0, match.start() - 48), match.start()) is not None
    return not is_first or following.isupper()


_TITLE_CONTEXT = word_set("title_context")


# Names that follow "St." in the names of people, places and churches.
_SAINTS = word_set("saints")
_FIRST_WORD = re.compile(r"(?:\A|(?<!\bSt)[.!?][\"')\]]*\s)\W*[\w'-]+ \Z")
_HOUSE_NUMBER = re.compile(r"(?<!\S)\d+[A-Za-z]? (?:(?:[A-Z][a-z]+|St\.|[NSEW]\.?) ){1,3}\Z")
_SURE_STREET = re.compile(r"(?:\d(?:st|nd|rd|th)|\bMain) \Z")  # "42nd St. Manhattan", "Main St. Boston"


def _before_name(scan: Scan, match: re.Match[str]) -> bool:
    """Return True if a capitalised word follows."""
    return scan.next_word(match.end())[:1].isupper()


def _sentence_stop(scan: Scan, match: re.Match[str], name: str) -> str:
    """Return "." if the abbreviation's full stop also ends the sentence, else ""."""
    if name in _NEVER_LAST or not match.group().endswith("."):
        return ""
    return "." if scan.ends_sentence(match.end()) else ""


def _saint(match: re.Match[str], scan: Scan) -> str | None:
    """ "St Paul" against "Baker St London"."""
    previous = scan.previous_word(match.start())
    is_after_name = scan.text[max(0, match.start() - 1) : match.start()] == " " and previous[:1].isupper()
    return "Street" if is_after_name and _is_street(scan, match, previous) else "Saint"


def _initials(match: re.Match[str], scan: Scan) -> str | None:
    """ "U.S." and "J. R. R." without their stops, unless the last one ends the sentence."""
    letters = match.group().replace(".", "")
    spoken = " ".join(letters) if scan.spell or len(letters) == 1 else letters
    return spoken + ("." if scan.ends_sentence(match.end()) else "")


LETTER_RULES = (
    Rule(r"w/o?(?=[ \d]|[a-z]{3})(?<!\w\w/)", {"w/": "with", "w/o": "without"}),
    Rule(r"((?:e\.g|i\.e|a\.k\.a|[Pp]\.[Ss]|Ph\.D|M\.D|B\.A|M\.A|a\.m|p\.m|et al))\.", _dotted, any_case=True),
    Rule(r"([A-Za-z]{1,6})\.(?![^\W_])", _dotted),
    Rule(r"(?:[A-Z]\.){2,6}(?![^\W_])|[A-Z]\.(?= [A-Z])", _initials),
    Rule(r"[Nn]o\.(?=\d)", "number"),
    Rule(r"St(?= [A-Z][a-z])", _saint),
    Rule(f"(?:{'|'.join(_PLAIN)}){END}", _PLAIN),
)
SYMBOL_RULES = (Rule(r"№ ?(?=\d)", "number"),)
