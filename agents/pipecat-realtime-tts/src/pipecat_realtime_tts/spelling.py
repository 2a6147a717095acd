"""The server's words, of which each Chinese, Japanese or Korean character is one, in the form Pipecat joins."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from realtime_tts_client import Word

_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "IDEOGRAPHIC")
_IN_SYLLABLES = ("HANGUL",)


def is_written_without_spaces(word: str) -> bool:
    """Return True for Chinese and Japanese: Pipecat must not put spaces around the word."""
    return _is_of(word, _WITHOUT_SPACES)


class Spelling:
    """Words of one context, each once, with the syllables of a Korean word joined."""

    def __init__(self) -> None:
        self._num_told = 0
        self._begun: Word | None = None  # a word of syllables that may continue

    def take(self, words: Iterable[Word], text: str) -> Iterator[Word]:
        """
        Args:
            text: the context's text so far, in which the words' offsets count.
        """
        for word in words:
            if word.start < self._num_told:
                continue  # reported before the server lost the session, and repeated in a new session
            self._num_told = word.end
            begun, self._begun = self._begun, None
            if begun is not None:  # then this word continues it
                word = Word(begun.text + word.text, begun.start, word.end, begun.start_ms, word.end_ms)
            follows = text[word.end : word.end + 1]
            if _is_of(word.text[-1:], _IN_SYLLABLES) and _is_of(follows, _IN_SYLLABLES):
                self._begun = word
            else:
                yield word


def _is_of(text: str, scripts: tuple[str, ...]) -> bool:
    return any(unicodedata.name(char, "").startswith(scripts) for char in text)
