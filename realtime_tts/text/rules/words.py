"""Text that no rule claims: where words end, which capitals are spelt letter by letter, and pauses."""

from __future__ import annotations

import re

import regex

from realtime_tts.text.characters import (
    WORD_LETTER,
    begins_grapheme,
    is_clause_stop,
    is_mark,
    is_sentence_stop,
    is_unspaced,
)
from realtime_tts.text.language_data import word_set
from realtime_tts.text.rules.base import Scan, SpokenToken

_MAX_GRAPHEME = 16
_PLAIN = re.compile(r"[A-Za-z]{1,200}(?=[ ,.!?]|\Z)")
_WORD = regex.compile(rf"(?s:.)(?:{WORD_LETTER}|(?<={WORD_LETTER})['-](?={WORD_LETTER})){{0,199}}+")
_SPOKEN = word_set("spoken_acronyms")  # said as words
_EMPHASISED = word_set("emphasised")  # plain words that people capitalise
_LETTER_PAIRS = word_set("letter_pairs")
_PLURAL = re.compile(r"([A-Z]{2,6})('?s)")
_CAPS = re.compile(r"[A-Z]{2,6}")
_NO_VOWEL = re.compile(r"[bcdfghjklmnpqrstvwxz]{2,5}")
_HUMMED = word_set("hummed")
_PAUSES = {",": ",", ";": ";", ":": ":", "—": "—", "(": ",", ")": ",", "[": ",", "]": ",", "|": ",", "→": ",", "⇒": ","}


def word_end(text: str, index: int) -> int:
    """Return the end of the word at `index`: letters and marks, with apostrophes and hyphens inside."""
    return int((_PLAIN.match(text, index) or _WORD.match(text, index)).end())


def word_ends(scan: Scan, index: int) -> tuple[int, int]:
    """Return the ends of the word at `index` and of its token, which has a hyphen if a lexicon entry begins behind
    that."""
    end = word_end(scan.text, index)
    scan.ahead(end, 2 if scan.text[end : end + 1] in ("'", "-") else 1)  # these go on with a letter
    if (given_from := scan.starts_given(index, end)) < end:
        return given_from - 1, given_from
    return end, end


def grapheme_end(text: str, index: int) -> int:
    """Return the end of the character at `index`, with its marks, of a script that has no spaces between words."""
    end = index + 1
    limit = min(len(text), index + _MAX_GRAPHEME)
    while (
        end < limit and (is_mark(text[end]) or is_unspaced(text[end])) and not begins_grapheme(text[end - 1], text[end])
    ):
        end += 1
    return end


def read_word(word: str, scan: Scan) -> str:
    """Return a word, its acronyms letter by letter (each part of "API-based" separately)."""
    if not scan.spell or scan.language != "en":
        return word
    parts = word.split("-")
    read = [read_caps(part, scan) for part in parts]
    return ("-" if read == parts else " ").join(read)


def spell(letters: str) -> str:
    """ "API" → "A P I"."""
    return " ".join(letters)


def read_caps(word: str, scan: Scan) -> str:
    """Return a part of a word, spelt out if it is an initialism."""
    plural = _PLURAL.fullmatch(word)
    if plural and is_initialism(plural.group(1)):
        return f"{spell(plural.group(1))}'s"
    if _CAPS.fullmatch(word) and is_initialism(word):
        return spell(word) if is_initialism(word, shouting=True) or not scan.is_shouting() else word
    if _NO_VOWEL.fullmatch(word) and word not in _HUMMED:
        return spell(word.upper())
    return word


def is_initialism(caps: str, *, shouting: bool = False) -> bool:
    """Return True if these capitals are spelt as letters rather than read as a word."""
    lowered = caps.lower()
    if lowered in _LETTER_PAIRS:
        return True
    if lowered in _SPOKEN or lowered in _EMPHASISED:
        return False
    return not _is_pronounceable(lowered) or (len(caps) <= 3 and not shouting)


def _is_pronounceable(word: str) -> bool:
    """Return True if vowels and consonants are mixed as in a word: true for "NEVER", false for "HTTP" and "USSR"."""
    vowels = sum(char in "aeiouy" for char in word)
    return 0.25 <= vowels / len(word) <= 0.67 and not re.search(r"[^aeiouy]{4}|^[^aeiouy]{3}", word)


def pause_token(text: str, index: int) -> SpokenToken:
    """Return the pause or the gap at `index`, a character that no word begins with."""
    char = text[index]
    after = text[index + 1] if index + 1 < len(text) else " "
    if char == " " and not after.isspace():
        return SpokenToken("", index + 1)
    if char.isspace():
        return _white_space(text, index)
    if char in ".!?":
        return _stops(text, index)
    if is_sentence_stop(char) or is_clause_stop(char):
        return SpokenToken(char, index + 1, pause=True)
    before = text[index - 1] if index else " "
    if char in "-–" and before.isspace() and after.isspace() and index:
        return SpokenToken("—", index + 1, pause=True)
    if char == "–" or text.startswith("--", index):
        return SpokenToken("—", index + (1 if char == "–" else 2), pause=True)
    if before in " -=" and text.startswith("> ", index):  # "Settings > Privacy", "File -> Save As"
        return SpokenToken(",", index + 1, pause=True)
    if char in _PAUSES:
        return SpokenToken(_PAUSES[char], index + 1, pause=True)
    return SpokenToken("", index + 1, spaced=char not in "'\"*_`")


def _white_space(text: str, index: int) -> SpokenToken:
    end = index + 1
    while end < len(text) and text[end].isspace():
        end += 1
    num_newlines = text.count("\n", index, end)
    wrapped = num_newlines == 1 and end < len(text) and text[end].islower()
    if num_newlines and not wrapped:
        return SpokenToken(".", end, pause=True)
    return SpokenToken("", end)


def _stops(text: str, index: int) -> SpokenToken:
    """Return one pause for a run of stops: the strongest of them, "..." for dots alone."""
    end = index
    while end < len(text) and text[end] in ".!?":
        end += 1
    run = text[index:end]
    tight = end < len(text) and text[end].isalnum() and index > 0 and text[index - 1].isalnum()
    if run == "." and tight and text[end].islower():
        return SpokenToken("", end)
    dots = "..." if len(run) > 1 else "."
    return SpokenToken(next((mark for mark in "?!" if mark in run), dots), end, pause=True)
