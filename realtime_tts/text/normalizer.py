"""Normalisation of written text to text that can be read aloud, with a map from spoken words to source characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from string import ascii_lowercase
from typing import NamedTuple

from realtime_tts.text.characters import has_content
from realtime_tts.text.folding import Folded, as_written, fit
from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.rules.base import POSSESSIVE, Scan, SpokenToken
from realtime_tts.text.rules.table import find_token
from realtime_tts.text.skipped import SKIPPED, Fates, Range
from realtime_tts.text.spelling import KINDS
from realtime_tts.text.spoken import Span, SpokenTextBuilder

_MAX_RESPELLINGS = 1024
_MAX_CHARS = 4096
STRETCH_TOKENS = 48  # are read at a stretch: a third of a millisecond


def primary_subtag(language: str) -> str:
    """Return the language itself of a BCP 47 tag: "en" of "en-GB"."""
    return language.lower().replace("_", "-").split("-")[0]


class NormalizedText(NamedTuple):
    """Spoken form of a text.

    Args:
        text: spoken form: words and pause punctuation, single spaces; empty if nothing can be spoken.
        source: the text as given.
        spans: for each spoken token its source, in order and without overlap on either side. What is between spans
            is punctuation, white space, or dropped.
        fates: one byte for each character of `source`: `SPOKEN`, `SKIPPED` if nothing can speak it, `DROPPED` for
            markup that has no sound on purpose, else `NONE`. One within a span may be skipped: a letter of a word that
            the model lacks.
        added_chars: number of characters by which lexicons have made `text` longer.
        start: offset of the source in the whole, for a part.
    """

    text: str
    source: str
    spans: tuple[Span, ...]
    fates: bytes
    added_chars: int = 0
    start: int = 0

    def ranges(self, fate: bytes) -> list[Range]:
        """Return the ranges of `source` with this fate that have more than punctuation in them, in order."""
        found = (match.span() for match in re.finditer(fate + b"+", self.fates))
        return [(start, end) for start, end in found if any(map(has_content, self.source[start:end]))]

    def part(self, spans: Sequence[Span], source: Range, spoken: Range) -> NormalizedText:
        """Return the part with these spans, for ranges of the source and of the spoken text."""
        (start, end), (spoken_start, spoken_end) = source, spoken
        moved = tuple(
            Span(span.start - spoken_start, span.end - spoken_start, span.source_start - start, span.source_end - start)
            for span in spans
        )
        text, fates = self.text[spoken_start:spoken_end], self.fates[start:end]
        return NormalizedText(text, self.source[start:end], moved, fates, start=start)


class Reading(NamedTuple):
    """Given reading: the source from `start` to `end` is spoken as `spoken`, and by no rule."""

    start: int
    end: int
    spoken: str


class Normalizer:
    """Normaliser of texts in one language. Stateless and deterministic; contexts share an instance.

    Args:
        language: BCP 47 tag. English is read in full. Languages whose file has `forms` have rules for amounts, units,
            dates, times, ordinals and abbreviations (`rules/local.py`). In all others only plain numbers become words,
            and only with a `charset`.
        charset: the characters a model can read, in either case; None if it reads any. With a charset, English
            acronyms are spelt letter by letter, accents are folded, and what remains outside is dropped. Without one,
            the rules of English leave text in other scripts, CJK included, as it is.
    """

    def __init__(self, language: str = "en", charset: frozenset[str] | None = None) -> None:
        self.language = primary_subtag(language)
        self.charset = None if charset is None else charset | {char.lower() for char in charset}
        self.has_letters = self.charset is not None and self.charset.issuperset(ascii_lowercase)
        self.lexicons: tuple[Lexicon, ...] = ()
        # Bound to this object, not to the copies with lexicons, which do not apply to respellings.
        self.respell = lru_cache(maxsize=_MAX_RESPELLINGS)(self._respell)
        self._reads = lru_cache(maxsize=_MAX_CHARS)(self._reads_alone)

    def with_lexicons(self, lexicons: Sequence[Lexicon]) -> Normalizer:
        """Return a copy that reads words as these lexicons say; for a word in several, the first one counts."""
        made = copy(self)
        made.lexicons = tuple(lexicons)
        return made

    def spell_out(self, text: str, kind: str) -> str:
        """Return `text` spelt out as `kind`, one of `spelling.KINDS`, as far as the model can read it."""
        return " ".join(fit(KINDS[kind](text, self.language), self.charset).split())

    def _respell(self, text: str) -> str:
        """Return how `text` is spoken within another: without lexicons, and without pauses at its ends."""
        spoken = self.normalize(text)
        return spoken.text[: spoken.spans[-1].end] if spoken.spans else ""

    def may_skip(self, source: str) -> bool:
        """Return True if `source` has a symbol (which may be readable only beside a number), or a letter or digit that
        cannot be spoken by itself. Otherwise nothing of it is skipped."""
        return not all(map(self._reads, filter(has_content, set(source))))

    def _reads_alone(self, char: str) -> bool:
        return char.isalnum() and SKIPPED not in self.normalize(char).fates

    def normalize(self, source: str) -> NormalizedText:
        """Normalise a whole text. Linear in `source`; never raises."""
        normalization = Normalization(self)
        for _ in normalization.closing(source):
            pass
        return normalization.spoken()


class Normalization:
    """Normalisation of one text that grows.

    A token is read once later text cannot change it. The result does not depend on how the text is cut into pieces,
    and `spoken` only grows.
    """

    def __init__(self, normalizer: Normalizer) -> None:
        self._normalizer = normalizer
        self._folded = Folded()
        spell = normalizer.charset is not None
        self._scan = Scan(normalizer.language, normalizer.lexicons, normalizer.respell, spell=spell)
        self._spoken = SpokenTextBuilder(normalizer.charset)
        self._fates = Fates(self._folded)
        self._index = 0  # in the folded text: what is before has been read
        self._added_chars = 0

    @property
    def num_chars(self) -> int:
        """Number of characters of the source received, read or not."""
        return len(self._folded.source)

    @property
    def num_tokens(self) -> int:
        """Number of spoken tokens so far."""
        return len(self._spoken.spans)

    def closing(self, source: str, readings: Sequence[Reading] = ()) -> Iterator[None]:
        """Add the rest of the text, in stretches as `extending`; after the last, `spoken` returns the whole."""
        self._scan.is_open = False
        yield from self.extending(source, readings)
        self._spoken.write_pause()

    def spoken(self, first: int = 0) -> NormalizedText:
        """Return what has been read so far, without the spans before `first`. Before the end of `closing` the text
        ends with a word, and `source` may contain more."""
        spoken = self._spoken
        spans, fates = tuple(spoken.spans[first:]), self._fates.known()
        return NormalizedText(spoken.text, self._folded.source, spans, fates, self._added_chars)

    def extending(self, source: str, readings: Sequence[Reading] = ()) -> Iterator[None]:
        """Add text; the text that follows must not begin with a mark. The work is done in stretches, which have to be
        run to the end before any other call.

        Args:
            readings: given readings of parts of `source`, in order.
        """
        end = 0
        for reading in readings:
            self._scan.extend(self._folded.extend(source[end : reading.start]))
            self._scan.extend(self._folded.extend(source[reading.start : reading.end], whole=True), reading.spoken)
            end = reading.end
        self._scan.extend(self._folded.extend(source[end:]))
        self._fates.extend()
        num_read = 0
        while self._index < len(self._scan.text):
            if num_read == STRETCH_TOKENS:
                num_read = 0
                yield
            num_read += 1
            self._scan.saw_end = False
            token = find_token(self._scan, self._index)
            if self._scan.is_open and (self._scan.saw_end or token.end == len(self._scan.text)):
                return
            self._read(token)

    def _read(self, token: SpokenToken) -> None:
        if token.pause and token.as_written:
            self._spoken.add_mark(self._written(token), opens=token.opens)
        elif token.pause:
            self._spoken.add_pause(token.text)
        elif not self._add_words(token):
            self._fates.add_unread(self._index, token.end, dropped=token.dropped)
        self._added_chars += token.added
        self._index = token.end

    def _add_words(self, token: SpokenToken) -> bool:
        """Add the words of a token. Return True if any of it is spoken."""
        if not token.text or (token.text == POSSESSIVE and self._fates.ends_at(self._index)):
            if token.spaced:
                self._spoken.add_space(is_blank=self._scan.text[self._index].isspace())
            return False
        start, end = self._folded.starts[self._index], self._folded.ends[token.end - 1]
        if token.as_written:
            self._spoken.add_written(self._written(token), start, end)
        elif not self._spoken.add_words(token.text, start, end, spaced=token.spaced):
            return False
        self._fates.add_spoken(self._index, token.end)
        normalizer = self._normalizer
        if normalizer.charset is not None and not (normalizer.has_letters and token.text.isascii()):
            self._fates.add_missing_letters(self._scan.text, self._index, token.end, token.text, normalizer.charset)
        return True

    def _written(self, token: SpokenToken) -> str:
        """Return the source's characters for a token, or the folded ones where it shares one with another token."""
        starts, start, end = self._folded.starts, self._index, token.end
        shares = (start > 0 and starts[start - 1] == starts[start]) or (
            end < len(starts) and starts[end] == starts[end - 1]
        )
        return token.text if shares else as_written(self._folded.source[starts[start] : self._folded.ends[end - 1]])
