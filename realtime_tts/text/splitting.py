"""Division of spoken text that is too long for one segment. Numbers and symbols become longer when they are spoken."""

from __future__ import annotations

from collections.abc import Iterator

from realtime_tts.text.characters import is_mark
from realtime_tts.text.normalizer import NormalizedText
from realtime_tts.text.skipped import DROPPED, SKIPPED
from realtime_tts.text.spoken import Span

_TOO_SHORT = -1e6  # worse than any other score


def split_spoken(normalized: NormalizedText, max_chars: int) -> list[NormalizedText]:
    """Return parts of at most `max_chars` spoken characters, of similar length and cut at the best places; none if
    nothing is spoken.

    No part but the last is shorter than half of `max_chars` if another token fits: that much may be spoken before the
    rest is known.

    The sources of the parts tile the source. A single token that is too long by itself (a number of thirty digits)
    is divided between its spoken words and, in proportion, in its source.
    """
    if not normalized.spans:
        return []
    if len(normalized.text) <= max_chars:
        return [normalized]
    spans = [piece for span in normalized.spans for piece in _divide(normalized, span, max_chars)]
    return [_part(normalized, spans, first, last) for first, last in _groups(normalized.text, spans, max_chars)]


def _groups(text: str, spans: list[Span], max_chars: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of spans whose spoken text, with its last pause, fits."""
    first = 0
    while first < len(spans):
        remaining = len(text) - spans[first].start
        num_parts = -(-remaining // max_chars)
        target = remaining / num_parts
        best, best_score = first + 1, float("-inf")
        for last in range(first + 1, len(spans) + 1):
            length = _end_of(text, spans, last) - spans[first].start
            if length > max_chars and last > first + 1:
                break
            score = _quality(text, spans, last) - abs(length - target) / target
            if 2 * length < max_chars:
                score = _TOO_SHORT + length
            if last == len(spans):
                score = float("inf")
            if score > best_score:
                best, best_score = last, score
        yield first, best
        first = best


def _end_of(text: str, spans: list[Span], last: int) -> int:
    """Return the end of the spoken text of `spans[:last]`, its pause included."""
    end = spans[last].start if last < len(spans) else len(text)
    while end > spans[last - 1].end and text[end - 1].isspace():
        end -= 1
    return end


def _quality(text: str, spans: list[Span], last: int) -> float:
    """Return how natural a pause after `spans[:last]` is, on the scale of a relative distance from the best length."""
    pause = text[spans[last - 1].end : _end_of(text, spans, last)]
    if any(char in ".!?。！？" for char in pause):
        return 0.8
    return 0.4 if pause else 0.0


def _part(normalized: NormalizedText, spans: list[Span], first: int, last: int) -> NormalizedText:
    start, end = (_source_cut(normalized.source, spans, index) for index in (first, last))
    spoken = spans[first].start, _end_of(normalized.text, spans, last)
    return normalized.part(spans[first:last], (start, end), spoken)


def _source_cut(source: str, spans: list[Span], index: int) -> int:
    """Return where the source of `spans[index]` begins, with the punctuation that opens its word."""
    if index == 0:
        return 0
    if index == len(spans):
        return len(source)
    cut, previous_end = spans[index].source_start, spans[index - 1].source_end
    while cut > previous_end and not source[cut - 1].isspace():
        cut -= 1
    # Nothing but punctuation between the two: it belongs to the word before it.
    return cut if cut > previous_end or previous_end == spans[index].source_start else spans[index].source_start


def _divide(normalized: NormalizedText, span: Span, max_chars: int) -> list[Span]:
    """Return `span`, or pieces of it that fit, cut at spoken spaces (or anywhere in a spoken word that is too long).

    Every piece has a character of its own in the source that is neither silent nor white space nor a mark, so that it
    belongs to a word.
    """
    budget = max(1, max_chars - 3)  # room for the pause after it
    if span.end - span.start <= budget:
        return [span]
    text, source = normalized.text, normalized.source
    own = (i for i in range(span.source_start, span.source_end) if normalized.fates[i] not in SKIPPED + DROPPED)
    solid = [i for i in own if not (source[i].isspace() or is_mark(source[i]))]
    pieces: list[Span] = []
    start, source_start, num_taken = span.start, span.source_start, 0
    while span.end - start > budget and num_taken + 1 < len(solid):
        space = text.rfind(" ", start + 1, start + budget + 1)
        end = space if space > 0 else start + budget
        in_proportion = len(solid) * (end - span.start) // (span.end - span.start)
        num_taken = min(max(in_proportion, num_taken + 1), len(solid) - 1)
        pieces.append(Span(start, end, source_start, solid[num_taken]))
        start, source_start = end + (text[end] == " "), solid[num_taken]
    pieces.append(Span(start, span.end, source_start, span.source_end))
    return pieces
