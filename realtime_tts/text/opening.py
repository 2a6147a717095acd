"""Early speech: the part of an incomplete segment that can already be spoken."""

from __future__ import annotations

from realtime_tts.text.characters import is_unspaced
from realtime_tts.text.normalizer import Normalization, NormalizedText, Normalizer
from realtime_tts.text.spoken import Span
from realtime_tts.text.words import Word, place_words

_MIN_TOKENS = 2
_MIN_CHARS = 8
_MIN_GRAPHEMES = 4  # two words of a script without spaces between them


class OpenText(Normalization):
    """Normalisation of one segment while its source is received. A part that was returned never changes.

    Args:
        max_chars: longest spoken text of a segment. At most half of it is returned before the end is known, because a
            longer text is never divided earlier.
        start: offset of the source in the context.
    """

    def __init__(self, normalizer: Normalizer, max_chars: int, start: int) -> None:
        super().__init__(normalizer)
        self._max_chars = max_chars
        self.start = start
        self._num_seen = 0  # tokens
        self._num_given = 0  # spoken characters
        self._words: list[Word] = []  # of the tokens before this one
        self._first = 0
        self._words_end = 0  # in the source

    @property
    def can_begin(self) -> bool:
        """True if enough text can be spoken to begin with, or some has been returned already."""
        if self._num_given or self.num_tokens < _MIN_TOKENS:
            return self._num_given > 0
        known = self.spoken()
        spans = self._spans(known)
        if len(spans) < _MIN_TOKENS:
            return False
        num_graphemes = sum(is_unspaced(known.text[span.end - 1]) for span in spans)
        return spans[-1].end >= _MIN_CHARS or num_graphemes >= _MIN_GRAPHEMES

    def take(self) -> tuple[str, int, tuple[Word, ...]] | None:
        """Return all that can be spoken so far, which ends with a word, the number of characters of its source, and its
        words without those of the last token; None if it is no more than before."""
        if self.num_tokens == self._num_seen:
            return None
        self._num_seen = self.num_tokens
        known = self.spoken(self._first)
        spans = self._spans(known)
        if not spans or spans[-1].end == self._num_given:
            return None
        self._num_given = spans[-1].end
        return known.text[: self._num_given], spans[-1].source_end, self._place(known, spans)

    def _spans(self, known: NormalizedText) -> list[Span]:
        return [span for span in known.spans if 2 * span.end < self._max_chars]

    def _place(self, known: NormalizedText, spans: list[Span]) -> tuple[Word, ...]:
        """Return the words without those of the last token, whose punctuation and pause are not known yet."""
        start, end = self._words_end, spans[-1].source_end
        part = known.part(spans, (start, end), (0, spans[-1].end))
        placed = [word for word in place_words(part, self.start + start) if word.spoken_end <= spans[-1].start]
        words = (*self._words, *placed)
        if placed and placed[-1].spoken_end == spans[-2].end:  # the last token shares no word with those before it
            self._words += placed
            self._first += len(spans) - 1
            self._words_end = placed[-1].end - self.start
        return words
