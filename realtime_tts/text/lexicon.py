"""Pronunciation lexicon: words and phrases, and how each is written so that the model reads it right.

An entry in lower case stands for the word in any case ("nginx": also "Nginx", "NGINX"); one with a capital only for
itself as written ("US" is not "us"). Its edges are those of words: letters and digits with their marks go together, and
so does what a full stop, an apostrophe, an @ or an underscore joins ("nginx" is not in "nginx.org", but it is in
"nginx's" and "nginx-based"). Chinese and Japanese have no such edges. Of several entries that begin at one place the
longest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from realtime_tts.errors import BadLexicon
from realtime_tts.text.characters import has_content, is_hangul, is_mark, is_unspaced
from realtime_tts.text.folding import Folded

MAX_WORD_CHARS = 64
MAX_RESPELLING_CHARS = 200
MAX_REQUEST_ENTRIES = 100
MAX_ENTRIES = 20_000  # of a file
_MAX_PIECES = 16  # of one entry: "New York" has three
_MAX_SPACES = 16  # of a text, beyond those of the entry
_JOINERS = frozenset("'.@_")

Entry = tuple[str, str]  # a word or phrase, and how it is respelt


class Respelt(NamedTuple):
    """Lexicon entry found in a text: the text up to `end` is read as `respelling`."""

    end: int
    respelling: str


class Lexicon:
    """Immutable set of entries. The cost to find one does not depend on their number.

    Args:
        exact: entries stand for words as they are written, in lower case too.

    Attributes:
        entries: as they were given.

    Raises:
        BadLexicon: an entry has no word, is too long, or has nothing to speak.
    """

    def __init__(self, entries: Iterable[Entry], *, exact: bool = False) -> None:
        self.entries = tuple(entries)
        self._exact: dict[str, str] = {}
        self._any_case: dict[str, str] = {}
        self._beginnings: set[str] = set()  # of both, at the ends of their pieces
        self._longest = 0
        for word, respelling in self.entries:
            folded = " ".join(Folded().extend(word).split())
            _check(word, folded, respelling)
            ends = _piece_ends(folded)
            if len(ends) > _MAX_PIECES:
                raise BadLexicon(f"{_named(word)} has more than {_MAX_PIECES} words and signs", field="lexicon")
            self._longest = max(self._longest, len(folded))
            self._beginnings.update(folded[:end] for end in ends)
            entries_of_kind = self._exact if exact or folded != folded.lower() else self._any_case
            entries_of_kind.setdefault(folded, respelling)

    def __len__(self) -> int:
        return len(self._exact) + len(self._any_case)

    def find(self, text: str, index: int) -> tuple[Respelt | None, bool]:
        """Return the longest entry at `index` of a folded text, and whether more text could change this answer."""
        if not _is_edge(text, index):
            return None, False
        found: Respelt | None = None
        reaches_end = False
        key, end = "", index
        limit = min(len(text), index + self._longest + _MAX_SPACES)
        while end < limit:
            start, end = end, _piece_end(text, end, limit)
            key += " " if text[start].isspace() else text[start:end]
            lowered = key.lower()
            reaches_end = reaches_end or end == len(text)
            respelling = self._exact.get(key) or self._any_case.get(lowered)
            if respelling is not None:
                reaches_end = reaches_end or (end + 3 > len(text) and text[end] in _JOINERS)
                if _is_edge(text, end) or _is_possessive(text, end):
                    found = Respelt(end, respelling)
            if key not in self._beginnings and lowered not in self._beginnings:
                break
        return found, reaches_end


def request_lexicon(entries: Sequence[Entry]) -> Lexicon:
    """Return the lexicon of a request.

    Raises:
        BadLexicon: too many entries, or an invalid one.
    """
    if len(entries) > MAX_REQUEST_ENTRIES:
        raise BadLexicon(f"a request's lexicon has at most {MAX_REQUEST_ENTRIES} entries", field="lexicon")
    return Lexicon(entries)


def _check(word: str, folded: str, respelling: str) -> None:
    if not folded:
        raise BadLexicon("an entry has no word", field="lexicon")
    if len(word) > MAX_WORD_CHARS or len(folded) > MAX_WORD_CHARS:
        raise BadLexicon(f"{_named(word)}: a word or phrase has at most {MAX_WORD_CHARS} characters", field="lexicon")
    if len(respelling) > MAX_RESPELLING_CHARS:
        raise BadLexicon(f"{_named(word)}: a respelling has at most {MAX_RESPELLING_CHARS} characters", field="lexicon")
    if not any(map(has_content, respelling)):
        raise BadLexicon(f"{_named(word)}: the respelling has nothing to speak", field="lexicon")


def _named(word: str) -> str:
    """Return the word of an entry, shortened, for an error message."""
    return repr(word[:MAX_WORD_CHARS])


def _piece_ends(folded: str) -> list[int]:
    ends: list[int] = []
    while not ends or ends[-1] < len(folded):
        ends.append(_piece_end(folded, ends[-1] if ends else 0, len(folded)))
    return ends


def _piece_end(text: str, index: int, limit: int) -> int:
    """Return the end of the word, the white space or the single sign at `index`; not beyond `limit`."""
    end = index + 1
    if text[index].isspace():
        while end < limit and text[end].isspace():  # a run counts as one character
            end += 1
    elif _is_inner(text[index]):
        while end < limit and _is_inner(text[end]):
            end += 1
    return end


def _is_inner(char: str) -> bool:
    """Return True if the character continues a word that stands before it."""
    return (char.isalnum() and not is_unspaced(char) and not is_hangul(char)) or is_mark(char)


def _is_edge(text: str, index: int) -> bool:
    """Return True if no word continues across `index`."""
    if index == 0 or index == len(text):
        return True
    before, after = text[index - 1], text[index]
    if _is_inner(before):
        joins_on = after in _JOINERS and index + 1 < len(text) and _is_inner(text[index + 1])
        return not (_is_inner(after) or joins_on)
    return not (before in _JOINERS and index > 1 and _is_inner(text[index - 2]) and _is_inner(after))


def _is_possessive(text: str, index: int) -> bool:
    return text[index : index + 2].lower() == "'s" and not _is_inner(text[index + 2 : index + 3] or " ")
