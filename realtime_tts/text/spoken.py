"""Assembly of spoken words and pauses: spacing, one pause at a time, and the spans of the map."""

from __future__ import annotations

from typing import NamedTuple

from realtime_tts.text.characters import is_cjk, is_cjk_punctuation
from realtime_tts.text.folding import fit
from realtime_tts.text.rules.base import POSSESSIVE

_STRENGTH = {",": 1, "，": 1, "、": 1, ":": 2, "：": 2, ";": 2, "；": 2, "—": 2, "...": 3, ".": 4, "。": 4, "｡": 4}
_STRONGEST = 5  # ! and ?


class Span(NamedTuple):
    """Token whose source, from `source_start` to `source_end`, is read as the spoken text from `start` to `end`."""

    start: int
    end: int
    source_start: int
    source_end: int


class SpokenTextBuilder:
    """Builder of the spoken text of one normalisation.

    Pauses before the first word are dropped; of several pauses in a row the strongest stays. Punctuation as written
    stays whole: closing marks and stops go to the word before them, opening marks to the word after them. Tokens that
    come from one source character ("㎏%" is folded to "kg%", of which "g%" could be a token) share a span.

    Attributes:
        text, spans: written so far.
    """

    def __init__(self, charset: frozenset[str] | None) -> None:
        self._charset = charset
        self.text = ""
        self.spans: list[Span] = []
        self._pause = ""
        self._is_written = False  # whether the pause is punctuation as written
        self._opening = ""
        self._is_apart = False  # whether white space comes before it
        self._space = False  # the next word is kept apart
        self._is_blank = False  # the source has white space here

    def add_space(self, *, is_blank: bool) -> None:
        """Separate the words on both sides. `is_blank`: the source has white space here."""
        self._space = True
        self._is_blank = self._is_blank or is_blank

    def add_pause(self, mark: str) -> None:
        """Add a pause after the words so far."""
        if self.spans and not self._is_written and _strength(mark) > _strength(self._pause):
            self._pause = "。" if mark == "." and self._charset is None and is_cjk(self.text[-1]) else mark
        self._space = True

    def add_mark(self, text: str, *, opens: bool) -> None:
        """Add punctuation as written. `opens`: it belongs to the next word."""
        if self._opening:
            self._opening += " " * self._space + text
        elif opens:
            self._opening, self._is_apart = text, self._space
        elif self.spans:
            self._pause += " " * (self._is_blank and not self._joins(text[0])) + text
            self._is_written = True
        else:
            return
        self._space = self._is_blank = False

    def add_words(self, text: str, source_start: int, source_end: int, *, spaced: bool) -> bool:
        """Add the spoken form of one source token. Return True if any of it is within the charset.

        `spaced`: separate it from its neighbours even without white space.
        """
        fitted = fit(text, self._charset)
        if fitted.startswith("'") and not text.startswith("'"):
            fitted = ""  # "'s" of a word that the charset has nothing for
        words = " ".join(fitted.split()).strip("' ")
        words = words if words[1:2].isdigit() else words.lstrip("-' ")  # "-5" stays where numbers are not read
        if text == POSSESSIVE and self.spans and not (self._pause or self._opening):
            self._extend(fit(text, self._charset), source_end)
            return True
        if not (words.isalpha() or any(char.isalnum() for char in words)):
            self._space = True
            return False
        self.add_written(words, source_start, source_end, spaced=spaced)
        return True

    def add_written(self, words: str, source_start: int, source_end: int, *, spaced: bool = False) -> None:
        """Add a word, a number or a sign as written, separated where the source has white space.

        `spaced`: see `add_words`.
        """
        opening, self._opening = self._opening, ""
        if opening:
            words = opening + " " * self._space + words
            self._space = self._is_apart
        self.write_pause()
        if self.text and (self._space or (spaced and not opening)) and not self._joins(words[0]):
            self.text += " "
        start = len(self.text)
        self.text += words
        if self.spans and source_start < self.spans[-1].source_end:
            start, _, source_start, _ = self.spans.pop()
        self.spans.append(Span(start, len(self.text), source_start, source_end))
        self._space, self._is_blank = spaced, False

    def write_pause(self) -> None:
        """Write the pause after the words so far, if any."""
        mark = fit(self._pause, self._charset)
        is_written, self._is_written = self._is_written, False
        self._pause = ""
        if mark:
            self.text += mark
            self._space = self._space or not is_written

    def _extend(self, ending: str, source_end: int) -> None:
        """Add to the last word without a space."""
        self.text += ending
        start, _, source_start, _ = self.spans.pop()
        self.spans.append(Span(start, len(self.text), source_start, source_end))
        self._space = True

    def _joins(self, first: str) -> bool:
        """Return True if no space belongs before `first`: CJK text has none between characters or after punctuation."""
        last = self._pause[-1:] or self.text[-1:]
        if is_cjk_punctuation(last):
            return True
        return is_cjk(last) and (is_cjk(first) or is_cjk_punctuation(first))


def _strength(mark: str) -> int:
    return _STRENGTH.get(mark, _STRONGEST) if mark else 0
