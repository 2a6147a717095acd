"""Plain words and their ends."""

from __future__ import annotations

import re

from realtime_tts.text.characters import begins_grapheme, is_mark, is_unspaced
from realtime_tts.text.rules.acronyms import read_caps
from realtime_tts.text.rules.base import Scan

_MAX_WORD = 200
_MAX_GRAPHEME = 16
_PLAIN = re.compile(r"[A-Za-z]{1,200}(?=[ ,.!?]|\Z)")


def word_end(text: str, index: int) -> int:
    """Return the end of the word at `index`: letters and marks, with apostrophes and hyphens inside."""
    plain = _PLAIN.match(text, index)
    if plain:
        return plain.end()
    end = index
    limit = min(len(text), index + _MAX_WORD)
    while end < limit:
        char = text[end]
        inner = char in "'-" and end + 1 < len(text) and _is_letter(text[end + 1]) and _is_letter(text[end - 1])
        if end > index and not (inner or _is_letter(char)):
            break
        end += 1
    return end


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


def _is_letter(char: str) -> bool:
    return (char.isalpha() and not is_unspaced(char)) or is_mark(char)
