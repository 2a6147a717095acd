"""Words of the server, for which a character of Chinese, Japanese or Korean is one, as Pipecat joins them to a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from realtime_tts_client import Word

_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "IDEOGRAPHIC")
_IN_SYLLABLES = ("HANGUL",)


def is_written_without_spaces(word: str) -> bool:
    """Chinese and Japanese: Pipecat is to put none around it."""
    return _is_of(word, _WITHOUT_SPACES)


class Spelling:
    """One context's words, each once, with the syllables of a Korean word as one."""

    def __init__(self) -> None:
        self._num_told = 0
        self._begun: Word | None = None  # of syllables, and there may be more

    def take(self, words: Iterable[Word], text: str) -> Iterator[Word]:
        """
        Args:
            text: of the context so far; the words' offsets count in it.
        """
        for word in words:
            if word.start < self._num_told:
                continue  # told before the server lost the session, and said again in another one
            self._num_told = word.end
            begun, self._begun = self._begun, None
            if begun is not None:  # then this one touches it
                word = Word(begun.text + word.text, begun.start, word.end, begun.start_ms, word.end_ms)
            follows = text[word.end : word.end + 1]
            if _is_of(word.text[-1:], _IN_SYLLABLES) and _is_of(follows, _IN_SYLLABLES):
                self._begun = word
            else:
                yield word


def _is_of(text: str, scripts: tuple[str, ...]) -> bool:
    return any(unicodedata.name(char, "").startswith(scripts) for char in text)
