"""Puts spoken words and pauses together: spacing, one pause at a time, and the spans of the map."""

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
    """Collects the output of one normalisation.

    Pauses before the first word are dropped; of several pauses in a row the strongest stays. Punctuation that is given
    as written stays whole: what closes or ends goes to the word before it, what opens to the word after it. Tokens that
    come from one source character ("㎏%" is folded to "kg%", of which "g%" could be a token) share a span.
    """

    def __init__(self, charset: frozenset[str] | None) -> None:
        self._charset = charset
        self.parts: list[str] = []
        self.spans: list[Span] = []
        self._length = 0
        self._last = ""  # last character written
        self._pause = ""
        self._is_written = False  # whether the pause is punctuation as written
        self._opening = ""
        self._is_apart = False  # whether white space comes before it
        self._space = False  # the next word is kept apart
        self._is_blank = False  # the source has white space here

    def add_space(self, *, is_blank: bool) -> None:
        """The words on both sides stay apart; `is_blank`: by white space of the source."""
        self._space = True
        self._is_blank = self._is_blank or is_blank

    def add_pause(self, mark: str) -> None:
        """A pause after the words so far."""
        if self.spans and not self._is_written and _strength(mark) > _strength(self._pause):
            self._pause = "。" if mark == "." and self._charset is None and is_cjk(self._last) else mark
        self._space = True

    def add_mark(self, text: str, *, opens: bool) -> None:
        """Punctuation as written; `opens`: it belongs to the next word."""
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
        """Spoken form of one source token, and whether anything is left of it within the charset.

        `spaced` keeps it apart from its neighbours even without white space.
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
        self._add(words, source_start, source_end, spaced=spaced)
        return True

    def add_written(self, text: str, source_start: int, source_end: int) -> None:
        """A word, a number or a sign as written, apart from its neighbours where the source has white space."""
        self._add(text, source_start, source_end, spaced=False)

    def close(self) -> None:
        """Write the pause at the end, if any."""
        if self.spans:
            self._write_pause()

    def _add(self, words: str, source_start: int, source_end: int, *, spaced: bool) -> None:
        opening, self._opening = self._opening, ""
        if opening:
            words = opening + " " * self._space + words
            self._space = self._is_apart
        self._write_pause()
        if self._last and (self._space or (spaced and not opening)) and not self._joins(words[0]):
            self._write(" ")
        start = self._length
        self._write(words)
        if self.spans and source_start < self.spans[-1].source_end:
            start, _, source_start, _ = self.spans.pop()
        self.spans.append(Span(start, self._length, source_start, source_end))
        self._space, self._is_blank = spaced, False

    def _extend(self, ending: str, source_end: int) -> None:
        """Add to the last word without a space."""
        self._write(ending)
        start, _, source_start, _ = self.spans.pop()
        self.spans.append(Span(start, self._length, source_start, source_end))
        self._space = True

    def _joins(self, first: str) -> bool:
        """CJK text has no spaces between its characters, nor after its punctuation."""
        last = self._pause[-1:] or self._last
        if is_cjk_punctuation(last):
            return True
        return is_cjk(last) and (is_cjk(first) or is_cjk_punctuation(first))

    def _write_pause(self) -> None:
        mark = fit(self._pause, self._charset)
        is_written, self._is_written = self._is_written, False
        self._pause = ""
        if mark:
            self._write(mark)
            self._space = self._space or not is_written

    def _write(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)
        self._last = text[-1]


def _strength(mark: str) -> int:
    return _STRENGTH.get(mark, _STRONGEST) if mark else 0
