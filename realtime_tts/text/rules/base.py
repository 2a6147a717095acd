"""What a rule is: a pattern tried at the start of a token, and a function that says how the match is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from realtime_tts.text.boundaries import word_opens_sentence
from realtime_tts.text.characters import is_foreign_letter

_LOOK_BACK = 32
_PREVIOUS_WORD = re.compile(r"([^\W\d_]+(?:['.][^\W\d_]+)*)\W*\Z")

_NEXT_WORD = re.compile(r"[ ]{1,3}[\"'(]?([^\W_][\w']{0,20})")

POSSESSIVE = "'s"  # joins the word before it: "2025's"


class Token(NamedTuple):
    """`end` is the index after it. A pause, words, or with an empty `text` nothing to say (`spaced`: a gap).

    `dropped`: a rule knows it and says nothing for it on purpose (a link's target, a tag, an emoticon).
    """

    text: str
    end: int
    pause: bool = False
    spaced: bool = True
    dropped: bool = False


@dataclass(slots=True)
class Scan:
    """The folded text of one normalisation and what rules may ask about the surroundings.

    Args:
        text: folded text.
        language: primary language subtag.
        spell: whether acronyms are spelt out as single letters.
    """

    text: str
    language: str
    spell: bool
    _shouting: bool | None = field(default=None, init=False)
    _latin: list[bool] | None = field(default=None, init=False)
    _checked: bool = field(default=False, init=False)

    def previous_word(self, index: int) -> str:
        """The word before `index`, or an empty string; looks back a bounded distance."""
        found = _PREVIOUS_WORD.search(self.text[max(0, index - _LOOK_BACK) : index])
        return found.group(1) if found else ""

    def next_word(self, index: int) -> str:
        """The word after the white space at `index`, or an empty string."""
        found = _NEXT_WORD.match(self.text, index)
        return found.group(1) if found else ""

    def ends_sentence(self, index: int) -> bool:
        """Whether the text is over at `index`, or goes on with a word that opens sentences."""
        if not self.text[index : index + 3].strip():
            return True
        following = self.next_word(index)
        return following[:1].isupper() and word_opens_sentence(following)

    def is_shouting(self) -> bool:
        """Whether most of the text is in capitals, which then say nothing about acronyms."""
        if self._shouting is None:
            num_upper = sum(map(str.isupper, self.text))
            num_lower = sum(map(str.islower, self.text))
            self._shouting = num_upper >= 6 and num_upper > 2 * num_lower
        return self._shouting

    def is_latin(self, index: int) -> bool:
        """Whether English is read at `index`: the letters around are Latin, or the model reads no others."""
        if not self._checked:
            self._checked = True
            plain = self.spell or self.text.isascii() or not any(map(is_foreign_letter, self.text))
            self._latin = None if plain else _latin_map(self.text)
        return self._latin is None or self._latin[index]


Speak = Callable[["re.Match[str]", Scan], "str | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`speak` returns the spoken form of the match, an empty string to drop it, or None to let other rules try.

    Patterns are tried at many positions: their repeats are bounded, so that a scan stays linear.
    """

    pattern: re.Pattern[str]
    speak: Speak


class RuleList:
    """Rules in order of precedence.

    One pattern of all of them finds the first that matches: most tokens match none, and trying each would be most of
    the time that planning takes. Hence a back reference within a rule's pattern must be by name.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._any = re.compile("|".join(f"(?P<rule{number}>{_scoped(rule)})" for number, rule in enumerate(rules)))

    def read(self, scan: Scan, index: int) -> Token | None:
        """The token at `index` by the first rule that claims it."""
        found = self._any.match(scan.text, index)
        if found is None:
            return None
        assert found.lastgroup is not None
        for rule in self._rules[int(found.lastgroup.removeprefix("rule")) :]:
            match = rule.pattern.match(scan.text, index)
            spoken = rule.speak(match, scan) if match else None
            if match and spoken is not None:
                return Token(spoken, max(match.end(), index + 1), dropped=not spoken)
        return None


def _scoped(rule: Rule) -> str:
    """The rule's pattern with its own flags, as part of a larger one."""
    return f"(?i:{rule.pattern.pattern})" if rule.pattern.flags & re.IGNORECASE else rule.pattern.pattern


def _latin_map(text: str) -> list[bool]:
    """For each index whether English rules apply there.

    They do if the nearest letter before (or at; or else after) is Latin, and no foreign letter touches what follows.
    """
    after = [True] * (len(text) + 1)
    touches = [False] * (len(text) + 1)
    for index in range(len(text) - 1, -1, -1):
        char = text[index]
        after[index] = not is_foreign_letter(char) if char.isalpha() else after[index + 1]
        touches[index] = is_foreign_letter(char) if char.isalpha() or char.isspace() else touches[index + 1]
    latin: list[bool] = []
    before: bool | None = None
    for index, char in enumerate(text):
        if char.isalpha():
            before = not is_foreign_letter(char)
        latin.append((after[index] if before is None else before) and not touches[index])
    return latin
