"""Script of the text around an index: the nearest letters decide how digits and symbols are read."""

from __future__ import annotations

from realtime_tts.text.characters import is_foreign_letter, is_greek


class Script:
    """Script of one text, which may grow between queries. Indices of queries never decrease: the work is linear."""

    def __init__(self) -> None:
        self._num_read = 0
        self._before: bool | None = None  # whether the last letter before `_num_read` is Latin
        self._letter = 0  # no letter lies between the index asked for last and here
        self._stop = 0  # the same for letters and white space

    def is_latin(self, text: str, index: int) -> bool | None:
        """Return True if English rules apply at `index`; None if later text may still change that.

        They do if the nearest letter before (or at; or else after) is Latin, and no foreign letter touches what
        follows.
        """
        for place in range(self._num_read, index):
            if text[place].isalpha():
                self._before = not _is_foreign(text, place)
        self._num_read = max(self._num_read, index)
        before = not _is_foreign(text, index) if text[index].isalpha() else self._before
        self._stop = max(self._stop, index)
        while self._stop < len(text) and not (text[self._stop].isalpha() or text[self._stop].isspace()):
            self._stop += 1
        if before is False or (self._stop < len(text) and _is_foreign(text, self._stop)):
            return False
        if _is_last_greek(text, index) or _is_last_greek(text, self._stop):
            return None
        after = True if before else self._after(text, index)
        return after if after is not True or self._stop < len(text) else None

    def _after(self, text: str, index: int) -> bool | None:
        """Return True if the next letter is Latin; None if there is none yet."""
        self._letter = max(self._letter, index)
        while self._letter < len(text) and not text[self._letter].isalpha():
            self._letter += 1
        if self._letter == len(text) or _is_last_greek(text, self._letter):
            return None
        return not _is_foreign(text, self._letter)


def _is_last_greek(text: str, index: int) -> bool:
    """Return True if the text so far ends with a Greek letter: the next character decides whether it is part of a
    word."""
    return index + 1 == len(text) and is_greek(text[index])


def _is_foreign(text: str, index: int) -> bool:
    """Return True for a letter of another script; a Greek letter only counts within a Greek word, as single ones are
    formula symbols."""
    if not is_greek(text[index]):
        return is_foreign_letter(text[index])
    return is_greek(text[index - 1 : index]) or is_greek(text[index + 1 : index + 2])
