"""Quality of the gap before a word as a place to pause, from the characters on both sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import IntEnum

from realtime_tts.text.characters import (
    CLAUSE_STOPS,
    CLOSERS,
    LONG_DASHES,
    OPENERS,
    SENTENCE_STOPS,
    begins_grapheme,
    is_cjk_punctuation,
    is_clause_stop,
    is_complex,
    is_greek,
    is_sentence_stop,
    is_symbol,
    is_unspaced,
)
from realtime_tts.text.language_data import word_set


class Boundary(IntEnum):
    """Quality of a gap as the end of a segment; greater is better."""

    NONE = 0
    WORD = 1
    CLAUSE = 2
    SENTENCE = 3
    UNDECIDED = 4  # needs the whole next word ("the U.S. Army" against "the U.S. The")


_NEVER_FIRST = frozenset("!?;:,%)]}”’")  # white space before one of these parts no words ("Quoi ?")
_OTHER_CLOSERS = frozenset("“«")  # „Ja.“ »Ja.«


# Followed by a name, so the stop after them never ends a sentence.
NEVER_FINAL = word_set("never_final")
# Abbreviations only before a number ("No. 5", "Sat. 3 May"); words of their own otherwise.
BEFORE_NUMBERS = word_set("before_numbers")
# May end a sentence or not: the next word tells.
MAYBE_FINAL = word_set("maybe_final")
# Words that commonly open a sentence and seldom follow an initial or abbreviation inside a name.
SENTENCE_OPENERS = word_set("sentence_openers")

_CALENDAR_NAMES = word_set("calendar_names")

_MAX_CLOSERS = 8
_MAX_ABBREVIATION = 12


def gap_boundary(chars: Sequence[str], char: str, language: str = "en") -> Boundary:
    """Judge the gap between the text `chars` and `char`, the first character of a word (or of a grapheme).

    A mark that ends sentences in some script ends one wherever it stands; what follows it does not matter (rules SB8a
    to SB11 of Unicode's sentence boundaries). The full stop of ASCII, which means many things, has rules of its own.
    """
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
    if spaced and _goes_on(char, language):
        return Boundary.NONE
    stop = _skip_closers(chars, last, spaced, language)
    if is_sentence_stop(chars[stop]):
        return Boundary.SENTENCE
    if is_clause_stop(chars[stop]):
        return Boundary.WORD if char.isdigit() and stop and chars[stop - 1].isdigit() else Boundary.CLAUSE
    if not spaced:
        return _tight_boundary(chars, last, char)
    if chars[stop] in SENTENCE_STOPS:
        return _stop_boundary(chars, stop, char, language)
    return _spaced_boundary(chars, stop, char)


def word_opens_sentence(word: str) -> bool:
    """Return True if `word`, found after an ambiguous stop, begins a new sentence."""
    return word.strip("\"'“‘’”([*_,.;:!?").replace("’", "'").lower() in SENTENCE_OPENERS


def _goes_on(char: str, language: str) -> bool:
    """Return True if `char` belongs to the text before it, even after white space."""
    if char > "\x7f" and (is_sentence_stop(char) or is_clause_stop(char)):
        return True
    if language == "en":
        return False
    return char in _NEVER_FIRST or (char == "»" and "reversed_quotes" not in word_set("writing", language))


def _skip_closers(chars: Sequence[str], last: int, spaced: bool, language: str) -> int:
    """Return the index of the stop before any closing quotes and brackets, or `last` if there is none."""
    stop = last
    while stop > 0 and last - stop < _MAX_CLOSERS and (chars[stop] in CLOSERS or _closes(chars, stop, language)):
        stop -= 1 + (chars[stop] == "»" and chars[stop - 1].isspace())  # « Oui. »
    found = chars[stop]
    if is_sentence_stop(found) or is_clause_stop(found) or (spaced and found in SENTENCE_STOPS):
        return stop
    return last


def _closes(chars: Sequence[str], index: int, language: str) -> bool:
    return language != "en" and chars[index] in _OTHER_CLOSERS and not chars[index - 1].isspace()


def _tight_boundary(chars: Sequence[str], last: int, char: str) -> Boundary:
    """Judge a gap without white space: after a long dash, or between CJK characters."""
    before = chars[last]
    if before in LONG_DASHES and before != "–" and not char.isdigit() and not _follows_calendar_name(chars, last):
        is_range = unicodedata.category(char) == "Sc" and last > 0 and chars[last - 1].isdigit()  # "$5—$10"
        return Boundary.NONE if is_range else Boundary.CLAUSE
    if before in OPENERS:
        return Boundary.NONE
    if is_unspaced(char) and not begins_grapheme(before, char):
        return Boundary.NONE
    if is_unspaced(before) or is_cjk_punctuation(before):
        return Boundary.WORD
    return Boundary.WORD if is_unspaced(char) and before not in "+-.@#$€£¥" else Boundary.NONE


def _spaced_boundary(chars: Sequence[str], last: int, char: str) -> Boundary:
    before = chars[last]
    inner = chars[last - 1] if last else " "
    if before in CLAUSE_STOPS:
        # "March 3, 2024" and "Genesis 1: 3" read as one.
        if before == ";" and is_greek(inner):
            return Boundary.SENTENCE  # their question mark
        return Boundary.WORD if inner.isdigit() and char.isdigit() else Boundary.CLAUSE
    if is_complex(before) and is_complex(char):
        return Boundary.CLAUSE  # Thai and its relatives have white space there only
    if before in LONG_DASHES or (before == "-" and inner.isspace()):
        is_amount = before in "-–" and unicodedata.category(char) == "Sc"  # "$5 – $10" reads as one
        within = char.isdigit() or is_amount or last == 0 or _follows_calendar_name(chars, last)
        return Boundary.WORD if within else Boundary.CLAUSE
    if is_symbol(before) and char.isupper():
        return Boundary.CLAUSE
    return Boundary.WORD


def _follows_calendar_name(chars: Sequence[str], dash: int) -> bool:
    """ "Mon – Fri" reads as one."""
    end = dash - 1 if dash and chars[dash - 1] == " " else dash
    return _word_before(chars, end).lower().rstrip(".") in _CALENDAR_NAMES


def _stop_boundary(chars: Sequence[str], stop: int, char: str, language: str) -> Boundary:
    """Judge a gap after `. ! ? …` and white space; `char` is the first character after it."""
    run = stop
    while run > 0 and stop - run < 3 and chars[run - 1] in SENTENCE_STOPS:
        run -= 1
    if char.islower():
        # `"Really?" she asked`, "Well... maybe" go on; "approx. five" does not even pause.
        return Boundary.WORD if run == stop and chars[stop] == "." else Boundary.CLAUSE
    if run < stop or chars[stop] != ".":
        return Boundary.SENTENCE
    word = _word_before(chars, stop)
    if language != "en":
        return _foreign_period_boundary(word, language)
    return _period_boundary(word, chars, stop, char)


def _foreign_period_boundary(word: str, language: str) -> Boundary:
    """Judge a single full stop after `word` in a language other than English."""
    is_initial = (len(word) == 1 and word.isalpha()) or _is_initialism(word)  # "J. Rossi", "z. B."
    is_ordinal = word.isdigit() and len(word) <= 2 and "dotted_ordinals" in word_set("writing", language)
    goes_on = is_initial or is_ordinal or word.lower() in word_set("abbreviations_before_names", language)
    return Boundary.WORD if goes_on else Boundary.SENTENCE


def _period_boundary(word: str, chars: Sequence[str], stop: int, char: str) -> Boundary:
    """Judge a single full stop after `word` that is followed by a possible beginning of a sentence."""
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
    """Return the letters, digits and inner dots before `stop`, at most a dozen ("e.g", "Smith")."""
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
