"""The words of a segment, and how long each takes to say relative to the others."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from realtime_tts.text.characters import CLOSERS, OPENERS, is_cjk, is_cjk_punctuation
from realtime_tts.text.normalizer import Span
from realtime_tts.text.splitting import SpokenPart
from realtime_tts.text.unread import Range

# In characters of ordinary text, about 15 of which are spoken in a second: a comma rests for 0.2 s.
_PAUSE_WEIGHTS = {",": 3.0, "，": 3.0, "、": 2.0, ";": 4.0, "；": 4.0, ":": 4.0, "：": 4.0, "—": 4.0,
                  ".": 6.0, "!": 6.0, "?": 6.0, "。": 6.0, "！": 6.0, "？": 6.0, "｡": 6.0}  # fmt: skip
_LAST_PAUSE = 2.0  # a segment's last stop: its audio ends soon after
_RUN = re.compile(r"\S+")
_CJK_WEIGHT = 4.0  # a syllable per character


class Word(NamedTuple):
    """`text` is the context's text from `start` to `end`; `weight` its relative duration, with its pause."""

    text: str
    start: int
    end: int
    weight: float


def place_words(part: SpokenPart, offset: int) -> tuple[Word, ...]:
    """Words of `part`, whose source begins at `offset` of the context.

    A word is a run without white space that has something spoken in it (a CJK character is a word of its own), with
    the punctuation that touches it; silent text is in none. A token of several words ("March 3, 2024") shares its
    weight among them.
    """
    chunks = _chunks(_blank(part.source, part.silent))
    weights = [0.0] * len(chunks)
    first = 0
    for number, span in enumerate(part.spans):
        while first < len(chunks) and chunks[first][1] <= span.source_start:
            first += 1
        last = first
        while last < len(chunks) and chunks[last][0] < span.source_end:
            last += 1
        next_start = part.spans[number + 1].start if number + 1 < len(part.spans) else len(part.text)
        _share(chunks, weights, range(first, last), span, part.text, next_start)
    return tuple(
        Word(part.source[start:end], offset + start, offset + end, weight)
        for (start, end), weight in zip(chunks, weights, strict=True)
        if weight > 0
    )


def _share(
    chunks: list[tuple[int, int]], weights: list[float], owners: range, span: Span, text: str, next_start: int
) -> None:
    """Divide the spoken length of `span` among the chunks it covers; the pause after it belongs to the last."""
    if len(owners) == 1:
        weights[owners[0]] += _spoken_weight(text[span.start : span.end])
    else:
        _divide_weight(chunks, weights, owners, span, _spoken_weight(text[span.start : span.end]))
    pause = sum(_PAUSE_WEIGHTS.get(char, 0.0) for char in text[span.end : next_start])
    weights[owners[-1]] += min(pause, _LAST_PAUSE) if next_start == len(text) else min(pause, 8.0)


def _divide_weight(
    chunks: list[tuple[int, int]], weights: list[float], owners: range, span: Span, spoken: float
) -> None:
    """Each chunk gets as much of `spoken` as it has of the span's source."""
    sizes = [min(chunks[i][1], span.source_end) - max(chunks[i][0], span.source_start) for i in owners]
    for i, size in zip(owners, sizes, strict=True):
        weights[i] += spoken * size / sum(sizes)


def _spoken_weight(spoken: str) -> float:
    """Characters, with a CJK one for a syllable and the pauses inside; at least one, for the gap to the next word."""
    return 1.0 + sum(map(_char_weight, spoken))


@lru_cache(maxsize=4096)
def _char_weight(char: str) -> float:
    return _CJK_WEIGHT if is_cjk(char) else _PAUSE_WEIGHTS.get(char, 0.5 if char in " -'" else 1.0)


def _blank(source: str, silent: tuple[Range, ...]) -> str:
    """`source` with white space in place of what is silent."""
    for start, end in silent:
        source = f"{source[:start]}{' ' * (end - start)}{source[end:]}"
    return source


def _chunks(source: str) -> list[tuple[int, int]]:
    """Ranges without white space; also cut around CJK characters, which keep the punctuation after them."""
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
    """Whether a new word begins at `index`, within a run without white space."""
    before, char = source[index - 1], source[index]
    after_cjk = is_cjk(before) or is_cjk_punctuation(before)
    if before in OPENERS and before not in CLOSERS:
        return False
    if is_cjk(char):
        return True
    return after_cjk and (char.isalnum() or (char in OPENERS and char not in CLOSERS))
