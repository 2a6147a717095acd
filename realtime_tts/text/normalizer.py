"""Turn written text into text that can be read aloud, with a map from spoken words to the original characters."""

from __future__ import annotations

from string import ascii_lowercase
from typing import NamedTuple

from realtime_tts.text.folding import Folded, fold
from realtime_tts.text.rules.base import POSSESSIVE, Scan, Token
from realtime_tts.text.rules.table import find_token
from realtime_tts.text.spoken import SpokenText
from realtime_tts.text.unread import Range, Unread


class Span(NamedTuple):
    """`NormalizedText.text[start:end]` is how `source[source_start:source_end]` is read."""

    start: int
    end: int
    source_start: int
    source_end: int


class NormalizedText(NamedTuple):
    """What to speak.

    Args:
        text: spoken form: words and pause punctuation, single spaces; empty if nothing can be spoken.
        source: the text as given.
        spans: for each spoken token its source, in order and without overlap on either side. What is between spans
            is punctuation, white space, or dropped.
        skipped: ranges of `source`, in order, that have more than punctuation in them and that nothing can speak. One
            may lie within a span: letters of a word that the model lacks.
        dropped: ranges of `source` apart from those, in order: markup that has no sound on purpose.
    """

    text: str
    source: str
    spans: tuple[Span, ...]
    skipped: tuple[Range, ...] = ()
    dropped: tuple[Range, ...] = ()

    @property
    def silent(self) -> list[Range]:
        """`skipped` and `dropped`: what is in no word."""
        return sorted([*self.skipped, *self.dropped])


class Normalizer:
    """Stateless and deterministic; one instance serves any number of contexts.

    Args:
        language: BCP 47 tag. English is verbalised in full; in other languages only plain numbers, and only if
            `charset` lacks digits. CJK text keeps its characters, digits and punctuation.
        charset: the characters a model can read, in either case; None if it reads any. With a charset, acronyms are
            spelt letter by letter, accents are folded, and what remains outside is dropped.
    """

    def __init__(self, language: str = "en", charset: frozenset[str] | None = None) -> None:
        self._language = language.lower().replace("_", "-").split("-")[0]
        self._charset = None if charset is None else charset | {char.lower() for char in charset}
        self._has_letters = self._charset is not None and self._charset.issuperset(ascii_lowercase)

    def normalize(self, source: str) -> NormalizedText:
        """Linear in `source`; never raises."""
        folded = fold(source)
        spoken, unread = SpokenText(self._charset), Unread(source, folded)
        scan = Scan(folded.text, self._language, spell=self._charset is not None)
        index = 0
        while index < len(folded.text):
            token = find_token(scan, index)
            if token.pause:
                spoken.add_pause(token.text)
            elif not self._add_words(token, index, folded, spoken, unread):
                unread.add_token(index, token.end, dropped=token.dropped)
            index = token.end
        spoken.close()
        spans = tuple(Span(*span) for span in spoken.spans)
        return NormalizedText(
            "".join(spoken.parts), source, spans, unread.skipped(spoken.spans), unread.dropped(spoken.spans)
        )

    def _add_words(self, token: Token, index: int, folded: Folded, spoken: SpokenText, unread: Unread) -> bool:
        """Whether any of the token is spoken."""
        if not token.text or (token.text == POSSESSIVE and unread.ends_at(index)):
            if token.spaced:
                spoken.add_space()
            return False
        start, end = folded.starts[index], folded.ends[token.end - 1]
        if not spoken.add_words(token.text, start, end, spaced=token.spaced):
            return False
        if self._charset is not None and not (self._has_letters and token.text.isascii()):
            unread.add_missing_letters(index, token.end, token.text, self._charset)
        return True
