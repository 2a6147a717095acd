"""Quality of the gap before a word as a place to pause, from the characters on both sides."""

from __future__ import annotations

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
    word_set,
)


class Boundary(IntEnum):
    """Quality of a gap as the end of a segment; greater is better."""

    NONE = 0
    WORD = 1
    CLAUSE = 2
    SENTENCE = 3
    UNDECIDED = 4  # needs the whole next word ("the U.S. Army" against "the U.S. The")


# In these languages "3." is "third", so that a stop after a short number ends no sentence.
_DOTTED_ORDINALS = word_set("cs da de et fi hr hu is lv nb nn no pl sk sl sr sv tr")
# In these languages » opens a quotation, or both ends of one look alike.
_REVERSED_QUOTES = word_set("cs da de fi hr hu pl sk sl sv")
_NEVER_FIRST = frozenset("!?;:,%)]}”’")  # white space before one of these parts no words ("Quoi ?")
_OTHER_CLOSERS = frozenset("“«")  # „Ja.“ »Ja.«
# Abbreviations that a name or a number follows, by language.
_ABBREVIATIONS = {
    "da": word_set("dr hr fr kl nr f.eks ca"),
    "de": word_set("dr prof hr fr nr str st z.b d.h u.a bzw ca inkl abs art bd s vgl evtl ggf"),
    "es": word_set("sr sra srta dr dra d dña ud uds núm pág p.ej ej av"),
    "fi": word_set("esim ns n prof"),
    "fr": word_set("m mm dr pr st ste p.ex ex cf env av bd n"),
    "it": word_set("sig dott prof ing avv es p.es n pag"),
    "nl": word_set("dhr mevr mw dr prof drs ir nr bijv d.w.z o.a ca"),
    "no": word_set("dr hr fr kl nr f.eks ca"),
    "pl": word_set("dr prof ul al nr np m.in tzw św godz"),
    "pt": word_set("sr sra dr dra d prof av núm pág p.ex ex"),
    "ru": word_set("г гг ул д стр им проф т.е т.д т.п руб тыс млн см"),
    "sv": word_set("dr hr fr kl nr t.ex ca"),
    "tr": word_set("dr prof av sok cad no vb"),
}


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
    return char in _NEVER_FIRST or (char == "»" and language not in _REVERSED_QUOTES)


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
        return Boundary.CLAUSE
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
        within = char.isdigit() or last == 0 or _follows_calendar_name(chars, last)
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
    if (len(word) == 1 and word.isalpha()) or _is_initialism(word) or word.lower() in _ABBREVIATIONS.get(language, ()):
        return Boundary.WORD  # "J. Rossi", "z. B.", "Dr. Weiß"
    if word.isdigit() and len(word) <= 2:
        return Boundary.WORD if language in _DOTTED_ORDINALS else Boundary.SENTENCE
    return Boundary.SENTENCE


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
