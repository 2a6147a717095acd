"""Tokens that the model receives as written, in languages and scripts without rules.

Words, numbers, signs and punctuation stay as they are. Markup and pictographs are left out; pictographs are reported.
"""

from __future__ import annotations

import unicodedata

from realtime_tts.text.characters import has_content, is_mark, is_sign, is_unspaced
from realtime_tts.text.rules import symbols, web
from realtime_tts.text.rules.base import ReachingPattern, RuleList, Scan, SpokenToken
from realtime_tts.text.rules.words import grapheme_end, pause_token, word_ends

MARKUP = RuleList((*web.MARKUP_RULES, *symbols.MARKUP_RULES))
NUMBER = ReachingPattern(r"\d(?:[\d.,:/-]{0,38}\d)?")
_BULLETS = frozenset("-*+•◦▪–#>")  # at the start of a line, before a space
_EMPHASIS = frozenset("*_")
_SILENT = frozenset("`\\")
_PAUSES = frozenset("|→⇒")
_DRAWN_DASHES = frozenset("─━")  # box drawing, which Japanese texts have for dashes
_MAX_HEADING = 6


def written_token(scan: Scan, index: int) -> SpokenToken:
    """Return the token at `index`, which is not white space."""
    text, char = scan.text, scan.text[index]
    if (number := scan.match(NUMBER, index)) is not None:
        return _written(text, index, number.end())
    if is_unspaced(char):
        return _written(text, index, grapheme_end(text, index))
    if char.isalnum() or is_mark(char):
        last, after = word_ends(scan, index)
        return SpokenToken(text[index:last], after, spaced=last < after, as_written=last == after)
    token = MARKUP.read(scan, index)
    if token is not None:
        return token._replace(spaced=char not in "[]")
    if (end := _bullet_end(scan, index)) is not None:
        return SpokenToken("", end, dropped=True)
    if char in _SILENT or (char in _EMPHASIS and not _is_inner(scan, index)):
        return SpokenToken("", index + 1, spaced=False)
    if char in _PAUSES:
        return pause_token(text, index)
    if is_sign(char):
        return _written(text, index, index + 1)
    if has_content(char) and char not in _DRAWN_DASHES:
        return SpokenToken("", index + 1)  # a pictograph
    return _punctuation(scan, index)


def _written(text: str, start: int, end: int) -> SpokenToken:
    return SpokenToken(text[start:end], end, spaced=False, as_written=True)


def _bullet_end(scan: Scan, index: int) -> int | None:
    """Return the end of the mark of a list, a heading or a quotation that begins at `index`; None if there is none."""
    char = scan.text[index]
    if char not in _BULLETS:
        return None
    start = index
    while start > 0 and scan.text[start - 1] == " ":
        start -= 1
    if start > 0 and scan.text[start - 1] != "\n":
        return None
    end = index + 1
    while char == "#" and end - index < _MAX_HEADING and scan.ahead(end, 1) == "#":
        end += 1
    return end if scan.ahead(end, 1) == " " else None


def _is_inner(scan: Scan, index: int) -> bool:
    """Return True if the sign at `index` stands within a word ("Leser*innen", "max_len")."""
    return index > 0 and scan.text[index - 1].isalnum() and scan.ahead(index + 1, 1).isalnum()


def _punctuation(scan: Scan, index: int) -> SpokenToken:
    """Return the token of a mark, or of a run of stops."""
    text, char = scan.text, scan.text[index]
    end = index + 1
    while (char == "." or char in _DRAWN_DASHES) and end < len(text) and text[end] == char:
        end += 1
    before, after = text[index - 1 : index] or " ", scan.ahead(end, 1) or " "
    return SpokenToken(text[index:end], end, pause=True, as_written=True, opens=_opens(char, before, after))


def _opens(char: str, before: str, after: str) -> bool:
    """Return True if a mark belongs to the word after it, by the white space around it, else by its Unicode
    category."""
    if before.isspace() != after.isspace():
        return before.isspace()
    is_opener = unicodedata.category(char) in ("Ps", "Pi")
    return is_opener and (before.isspace() or after.isalnum() or is_sign(after))
