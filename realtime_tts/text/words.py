"""Words of a segment, and their relative durations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from realtime_tts.text.characters import (
    CLOSERS,
    OPENERS,
    begins_grapheme,
    is_cjk,
    is_cjk_punctuation,
    is_clause_stop,
    is_hangul,
    is_sentence_stop,
    is_unspaced,
)
from realtime_tts.text.normalizer import NormalizedText
from realtime_tts.text.skipped import DROPPED, SKIPPED
from realtime_tts.text.spoken import Span

# In characters of ordinary text, about 15 of which are spoken in a second: a comma rests for 0.2 s.
_PAUSE_WEIGHTS = {",": 3.0, "，": 3.0, "、": 2.0, ";": 4.0, "；": 4.0, ":": 4.0, "：": 4.0, "—": 4.0,
                  ".": 6.0, "!": 6.0, "?": 6.0, "。": 6.0, "！": 6.0, "？": 6.0, "｡": 6.0}  # fmt: skip
_LAST_PAUSE = 2.0  # a segment's last stop: its audio ends soon after
_RUN = re.compile(r"\S+")
_SILENT = re.compile(b"[%b%b]+" % (SKIPPED, DROPPED))
_CJK_WEIGHT = 4.0  # a syllable per character


class Word(NamedTuple):
    """Word: `text` is the context's text from `start` to `end`; `weight` is its relative duration, with its pause.

    `spoken_start`, `spoken_end`: range of its reading in the segment's text, without the pause after it.
    """

    text: str
    start: int
    end: int
    weight: float
    spoken_start: int
    spoken_end: int


@dataclass(slots=True)
class _Chunk:
    """Candidate for a word: its range in the source, and the part of the spoken text found for it."""

    start: int
    end: int
    weight: float = 0.0
    spoken_start: int = 0
    spoken_end: int = 0

    def add(self, weight: float, spoken_start: int, spoken_end: int) -> None:
        """Add a part of the reading, further to the right."""
        if self.weight == 0:
            self.spoken_start = spoken_start
        self.weight += weight
        self.spoken_end = spoken_end

    def word(self, source: str, offset: int) -> Word:
        text, start, end = source[self.start : self.end], offset + self.start, offset + self.end
        return Word(text, start, end, self.weight, self.spoken_start, self.spoken_end)


def place_words(part: NormalizedText, offset: int) -> tuple[Word, ...]:
    """Return the words of `part`, whose source begins at `offset` of the context.

    A word is a run without white space that has something spoken in it, with the punctuation that touches it. In a
    script without spaces each character with its marks is a word. Silent text is in none. A token of several words
    ("March 3, 2024") shares its weight and its reading among them.
    """
    chunks = [_Chunk(start, end) for start, end in _chunks(_blank(part.source, part.fates))]
    first = 0
    for number, span in enumerate(part.spans):
        while first < len(chunks) and chunks[first].end <= span.source_start:
            first += 1
        last = first
        while last < len(chunks) and chunks[last].start < span.source_end:
            last += 1
        next_start = part.spans[number + 1].start if number + 1 < len(part.spans) else len(part.text)
        _share(chunks[first:last], span, part)
        chunks[last - 1].weight += _pause_weight(part.text, span.end, next_start)
    return tuple(each.word(part.source, offset) for each in chunks if each.weight > 0)


def _share(owners: list[_Chunk], span: Span, part: NormalizedText) -> None:
    """Divide the reading of `span` among the chunks it covers, between its spoken words where there are enough."""
    # Characters (a CJK one is a syllable), pauses inside, and 1 for the gap.
    weight = 1.0 + sum(map(_char_weight, part.text[span.start : span.end]))
    if len(owners) == 1:
        owners[0].add(weight, span.start, span.end)
        return
    sizes = [_size(part.source[max(each.start, span.source_start) : min(each.end, span.source_end)]) for each in owners]
    start = span.start
    for owner, size, end in zip(owners, sizes, _share_ends(part.text, span, sizes), strict=True):
        owner.add(weight * size / sum(sizes), min(start, end), end)
        start = end + (part.text[end : min(end + 1, span.end)] == " ")


def _share_ends(text: str, span: Span, sizes: list[int]) -> list[int]:
    """Return the ends of shares of about these sizes within the reading of `span`; none decreases."""
    spaces = [index for index in range(span.start, span.end) if text[index] == " "]
    ends: list[int] = []
    num_taken = 0
    for num_left, size in zip(range(len(sizes) - 1, -1, -1), sizes, strict=True):
        num_taken += size
        wanted = span.start + (span.end - span.start) * num_taken // sum(sizes)
        free = spaces[: len(spaces) - num_left + 1] if num_left else []
        end = min(free, key=lambda index: abs(index - wanted), default=wanted)
        spaces = [index for index in spaces if index > end]
        ends.append(max(end, ends[-1] if ends else span.start))
    return ends


def _size(source: str) -> int:
    """Return the approximate spoken length of written characters; a digit counts as a word."""
    return max(1, sum(4 if char.isdigit() else char.isalnum() for char in source))


def _pause_weight(text: str, start: int, end: int) -> float:
    """Return the weight of the pause between two spoken tokens, or at the end of the text."""
    pause = sum(map(_mark_weight, text[start:end]))
    return min(pause, _LAST_PAUSE if end == len(text) else 8.0)


@lru_cache(maxsize=4096)
def _char_weight(char: str) -> float:
    if is_cjk(char) or is_hangul(char):
        return _CJK_WEIGHT
    return _mark_weight(char) or (0.5 if char in " -'" else 1.0)


@lru_cache(maxsize=4096)
def _mark_weight(char: str) -> float:
    """Return the weight of a punctuation mark's pause; 0 for other characters."""
    if char not in _PAUSE_WEIGHTS and (is_sentence_stop(char) or is_clause_stop(char)):
        char = "." if is_sentence_stop(char) else ","
    return _PAUSE_WEIGHTS.get(char, 0.0)


def _blank(source: str, fates: bytes) -> str:
    """Return `source` with white space in place of what is skipped or dropped."""
    for silent in _SILENT.finditer(fates):
        start, end = silent.span()
        source = f"{source[:start]}{' ' * (end - start)}{source[end:]}"
    return source


def _chunks(source: str) -> list[tuple[int, int]]:
    """Return ranges without white space, cut around characters of scripts without spaces, which keep the punctuation
    after them."""
    chunks: list[tuple[int, int]] = []
    for run in _RUN.finditer(source):
        start = run.start()
        if not run.group().isascii():
            for index in range(start + 1, run.end()):
                if _cuts(source, index):
                    chunks.append((start, index))
                    start = index
        chunks.append((start, run.end()))
    return chunks


def _cuts(source: str, index: int) -> bool:
    """Return True if a new word begins at `index`, within a run without white space."""
    before, char = source[index - 1], source[index]
    if before in OPENERS and before not in CLOSERS:
        return False
    if is_unspaced(char):
        return begins_grapheme(before, char)
    after_unspaced = is_unspaced(before) or is_cjk_punctuation(before)
    return after_unspaced and (char.isalnum() or (char in OPENERS and char not in CLOSERS))
