"""Where speech may pause: the gap before a word start, judged from what is on both sides of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from realtime_tts.text.characters import (
    CJK_CLAUSE_STOPS,
    CJK_SENTENCE_STOPS,
    CLAUSE_STOPS,
    CLOSERS,
    LONG_DASHES,
    OPENERS,
    SENTENCE_STOPS,
    is_cjk,
    is_cjk_punctuation,
    is_symbol,
    word_set,
)


class Boundary(IntEnum):
    """How good a gap is to end a segment at; greater is better."""

    NONE = 0
    WORD = 1
    CLAUSE = 2
    SENTENCE = 3
    UNDECIDED = 4  # needs the whole next word ("the U.S. Army" against "the U.S. The")


# Followed by a name, so the stop after them never ends a sentence.
NEVER_FINAL = word_set(
    """
    dr mr mrs ms mx messrs prof rev fr hon gen col lt sgt capt cpt cmdr adm maj gov sen rep pres ste mt ft vs cf e.g
    i.e eg ie viz approx
    """
)
# Abbreviations only before a number ("No. 5", "Sat. 3 May"); words of their own otherwise.
BEFORE_NUMBERS = word_set(
    """
    no nos fig figs eq vol ch p pp sec art op ca jan feb mar apr jun jul aug sept sep oct nov dec mon tue tues wed thu
    thur thurs fri sat sun
    """
)
# May end a sentence or not: the next word tells.
MAYBE_FINAL = word_set(
    """
    etc inc ltd co corp bros jr sr st esq dept est univ assn ave blvd rd hwy a.m p.m ph.d m.d b.a m.a b.c a.d min max
    hr hrs oz lb lbs tel ext al ed eds
    """
)
# Words that commonly open a sentence and seldom follow an initial or abbreviation inside a name.
SENTENCE_OPENERS = word_set(
    """
    a after all also although an and are as at because before but by can could did do does during each even
    every first for from has have he her here his how however i i'm i've i'll if in instead is it it's its let
    let's many maybe meanwhile most my next no not now of oh on once one or our perhaps please she should since
    so some sometimes soon still such that that's the their then there there's these they they're this those
    though thus to today under unfortunately until we we're we've well were what what's when where which while
    who why will with would yes yet you you're your
    """
)

_CALENDAR_NAMES = word_set(
    """
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january
    february march april may june july august september october november december jan feb mar apr jun jul aug sep
    sept oct nov dec
    """
)

_MAX_CLOSERS = 8
_MAX_ABBREVIATION = 12


def gap_boundary(chars: Sequence[str], char: str) -> Boundary:
    """Judge the gap between the text `chars` and `char`, the first character of a word (or a CJK character)."""
    last = len(chars) - 1
    num_newlines = 0
    while last >= 0 and chars[last].isspace():
        num_newlines += chars[last] == "\n"
        last -= 1
    if last < 0:
        return Boundary.NONE
    if num_newlines > 1 or (num_newlines and not char.islower()):
        return Boundary.SENTENCE  # but a line that goes on in lower case is only wrapped
    spaced = last < len(chars) - 1
    stop = _skip_closers(chars, last, spaced)
    if chars[stop] in CJK_SENTENCE_STOPS:
        return Boundary.SENTENCE
    if chars[stop] in CJK_CLAUSE_STOPS:
        return Boundary.CLAUSE
    if not spaced:
        return _tight_boundary(chars, last, char)
    if chars[stop] in SENTENCE_STOPS:
        return _stop_boundary(chars, stop, char)
    return _spaced_boundary(chars, stop, char)


def word_opens_sentence(word: str) -> bool:
    """Whether `word`, found after an ambiguous stop, begins a new sentence."""
    return word.strip("\"'“‘’”([*_,.;:!?").replace("’", "'").lower() in SENTENCE_OPENERS


def _skip_closers(chars: Sequence[str], last: int, spaced: bool) -> int:
    """Index of the stop before any closing quotes and brackets, or `last` if there is none."""
    stop = last
    while stop > 0 and last - stop < _MAX_CLOSERS and chars[stop] in CLOSERS:
        stop -= 1
    found = chars[stop]
    if found in CJK_SENTENCE_STOPS or found in CJK_CLAUSE_STOPS or (spaced and found in SENTENCE_STOPS):
        return stop
    return last


def _tight_boundary(chars: Sequence[str], last: int, char: str) -> Boundary:
    """A gap without white space: after a long dash, or between CJK characters."""
    before = chars[last]
    if before in LONG_DASHES and before != "–" and not char.isdigit() and not _follows_calendar_name(chars, last):
        return Boundary.CLAUSE
    if before in OPENERS:
        return Boundary.NONE
    if is_cjk(before) or is_cjk_punctuation(before):
        return Boundary.WORD
    return Boundary.WORD if is_cjk(char) and before not in "+-.@#$€£¥" else Boundary.NONE


def _spaced_boundary(chars: Sequence[str], last: int, char: str) -> Boundary:
    before = chars[last]
    inner = chars[last - 1] if last else " "
    if before in CLAUSE_STOPS:
        # "March 3, 2024" and "Genesis 1: 3" read as one.
        return Boundary.WORD if inner.isdigit() and char.isdigit() else Boundary.CLAUSE
    if before in LONG_DASHES or (before == "-" and inner.isspace()):
        within = char.isdigit() or last == 0 or _follows_calendar_name(chars, last)
        return Boundary.WORD if within else Boundary.CLAUSE
    if is_symbol(before) and char.isupper():
        return Boundary.CLAUSE
    return Boundary.WORD


def _follows_calendar_name(chars: Sequence[str], dash: int) -> bool:
    """ "Mon – Fri" reads as one."""
    end = dash - 1 if dash and chars[dash - 1] == " " else dash
    return _word_before(chars, end).lower().rstrip(".") in _CALENDAR_NAMES


def _stop_boundary(chars: Sequence[str], stop: int, char: str) -> Boundary:
    """After `. ! ? …` and white space: `char` is the first one of what follows."""
    run = stop
    while run > 0 and stop - run < 3 and chars[run - 1] in SENTENCE_STOPS:
        run -= 1
    if char.islower():
        # `"Really?" she asked`, "Well... maybe" go on; "approx. five" does not even pause.
        return Boundary.WORD if run == stop and chars[stop] == "." else Boundary.CLAUSE
    if run < stop or chars[stop] != ".":
        return Boundary.SENTENCE
    return _period_boundary(_word_before(chars, stop), chars, stop, char)


def _period_boundary(word: str, chars: Sequence[str], stop: int, char: str) -> Boundary:
    """A single full stop after `word`, followed by something that could open a sentence."""
    lowered = word.lower()
    if lowered in NEVER_FINAL:
        return Boundary.WORD
    if (lowered in BEFORE_NUMBERS and char.isdigit()) or (lowered in _CALENDAR_NAMES and char in "-–"):
        return Boundary.WORD
    if lowered in MAYBE_FINAL or _is_initialism(word):
        return Boundary.UNDECIDED
    if word.isdigit() and len(word) <= 3 and _starts_line(chars, stop - len(word)):
        return Boundary.NONE  # "1. Buy milk": the number belongs to its item
    return Boundary.SENTENCE


def _word_before(chars: Sequence[str], stop: int) -> str:
    """The letters, digits and inner dots before `stop`, at most a dozen ("e.g", "Smith")."""
    start = stop
    while start > 0 and stop - start <= _MAX_ABBREVIATION and (chars[start - 1].isalnum() or chars[start - 1] == "."):
        start -= 1
    return "".join(chars[start:stop])


def _is_initialism(word: str) -> bool:
    """ "J", "U.S", "W.B": capital letters with dots."""
    return bool(word) and len(word) % 2 == 1 and word[::2].isupper() and set(word[1::2]) <= {"."}


def _starts_line(chars: Sequence[str], index: int) -> bool:
    index -= 1
    while index >= 0 and chars[index] in " \t":
        index -= 1
    return index < 0 or chars[index] == "\n"
