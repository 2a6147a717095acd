"""Rules: a pattern tried at the start of a token, and a function that returns how the match is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import regex

from realtime_tts.text.boundaries import word_opens_sentence
from realtime_tts.text.characters import is_foreign_letter, is_greek, is_hangul, is_unspaced
from realtime_tts.text.lexicon import Lexicon, Respelt

_LOOK_BACK = 32
_FAR = 64
_LETTER = regex.compile(r"\p{L}")
_LAST_LETTER = regex.compile(r"(?r)\p{L}")
_LETTER_OR_SPACE = regex.compile(r"[\p{L}\s]")
_PREVIOUS_WORD = re.compile(r"([^\W\d_]+(?:['.][^\W\d_]+)*)\W*\Z")
POSSESSIVE = "'s"  # joins the word before it: "2025's"
Respell = Callable[[str], str]


def reaching(pattern: str) -> regex.Pattern[str]:
    """Return a pattern that has a partial match where an attempt to match `pattern` reads beyond the end of the text.

    Text that is still being written may be spoken only as far as its reading is settled: "$5" may become "$5 million".
    A pattern that fails after its last piece tries every way to match. `pattern` must have no anchor: that does not
    read the character beside it, as a look-ahead does.
    """
    return regex.compile(f"(?:{pattern})(*FAIL)")


class ReachingPattern:
    """Pattern that also tells whether the text after it could change its match."""

    def __init__(self, pattern: str) -> None:
        self.source = pattern
        self._pattern, self._to_end = re.compile(pattern), reaching(pattern)

    def match(self, text: str, index: int) -> re.Match[str] | None:
        return self._pattern.match(text, index)

    def reaches_end(self, text: str, index: int) -> bool:
        return self._to_end.match(text, index, partial=True) is not None


_NEXT_WORD = ReachingPattern(r"[ ]{1,3}[\"'(]?([^\W_][\w']{0,20})")
_SHOUT_BEFORE = 48
_SHOUT_AFTER = ReachingPattern(r"\S{1,48}(?:\s{1,3}\S{1,24}){0,2}")  # the word and the two after it


class SpokenToken(NamedTuple):
    """Token and its reading: words, a pause, or with an empty `text` nothing.

    Attributes:
        end: index after the token.
        spaced: white space separates the reading from its neighbours.
        dropped: a rule reads the token as nothing on purpose (a link's target, a tag, an emoticon).
        as_written: the model receives the source's own characters, with the source's spaces. Such a pause is
            punctuation.
        opens: the punctuation belongs to the word after it.
        added: number of characters by which a lexicon has made the text longer.
    """

    text: str
    end: int
    pause: bool = False
    spaced: bool = True
    dropped: bool = False
    as_written: bool = False
    opens: bool = False
    added: int = 0


def _is_foreign(text: str, index: int) -> bool:
    """Return True for a letter of another script; a Greek letter only counts within a Greek word, as single ones are
    formula symbols."""
    if not is_greek(text[index]):
        return is_foreign_letter(text[index])
    return is_greek(text[index - 1 : index]) or is_greek(text[index + 1 : index + 2])


class Scan:
    """Folded text of one normalisation, and queries of the rules about the surroundings of a token.

    Args:
        language: primary language subtag.
        lexicons: they precede all rules; the first one with an entry precedes the others.
        respell: returns how a respelling is spoken.
        spell: acronyms are spelt out as single letters.

    Attributes:
        text: the text received so far.
        is_open: more text may follow.
        saw_end: later text may change the answer to a query since this was last set to False.
        index: index of the current token.
    """

    def __init__(self, language: str, lexicons: Sequence[Lexicon], respell: Respell, *, spell: bool) -> None:
        self.language = language
        self.spell = spell
        self.text = ""
        self.is_open = True
        self.saw_end = False
        self.index = 0
        self._lexicons, self._respell = lexicons, respell
        self._readings: dict[int, str] = {}

    def extend(self, text: str, reading: str | None = None) -> None:
        """Add text. With a `reading`, `text` is one character that stands for it."""
        if reading is not None:
            self._readings[len(self.text)] = reading
        self.text += text

    def given(self, index: int) -> SpokenToken | None:
        """Return the token at `index`, which is not white space, if its reading is given by the client's markup or a
        lexicon."""
        if (reading := self._readings.get(index)) is not None:
            return SpokenToken(reading, index + 1)
        found = self._respelt(index)
        if found is None:
            return None
        word = self.text[index : found.end]
        is_joined = any(is_unspaced(char) or is_hangul(char) for char in (word[0], word[-1]))
        end = found.end
        if self.ahead(end, 2)[:1] == "-" and self.ahead(end, 2)[1:].isalnum():
            end += 1  # "nginx-based" is two words
        spoken = self._respell(found.respelling)
        return SpokenToken(spoken, end, spaced=not is_joined, added=max(0, len(spoken) - len(word)))

    def starts_given(self, start: int, end: int) -> int:
        """Return where a lexicon entry begins behind a hyphen of the word from `start` to `end`, or `end`."""
        hyphen = self.text.find("-", start, end) if self._lexicons else -1
        while hyphen >= 0:
            if self._respelt(hyphen + 1) is not None:
                return hyphen + 1
            hyphen = self.text.find("-", hyphen + 1, end)
        return end

    def _respelt(self, index: int) -> Respelt | None:
        longest: Respelt | None = None
        for lexicon in self._lexicons:
            found, may_change = lexicon.find(self.text, index)
            self.saw_end = self.saw_end or may_change
            if found is not None and (longest is None or found.end > longest.end):
                longest = found
        return longest

    def match(self, pattern: ReachingPattern, index: int) -> re.Match[str] | None:
        """Return the match of a pattern at `index`."""
        if self.is_open and pattern.reaches_end(self.text, index):
            self.saw_end = True
        return pattern.match(self.text, index)

    def ahead(self, index: int, length: int) -> str:
        """Return at most `length` characters from `index`."""
        if index + length > len(self.text):
            self.saw_end = True
        return self.text[index : index + length]

    def previous_word(self, index: int) -> str:
        """Return the word before `index`, or an empty string; looks back a bounded distance."""
        found = _PREVIOUS_WORD.search(self.text[max(0, index - _LOOK_BACK) : index])
        return found.group(1) if found else ""

    def next_word(self, index: int) -> str:
        """Return the word after the white space at `index`, or an empty string."""
        found = self.match(_NEXT_WORD, index)
        return found.group(1) if found else ""

    def ends_sentence(self, index: int) -> bool:
        """Return True if the text ends at `index`, or continues with a word that opens sentences."""
        if not self.ahead(index, 3).strip():
            return True
        following = self.next_word(index)
        return following[:1].isupper() and word_opens_sentence(following)

    def is_shouting(self) -> bool:
        """Return True if most letters around the token are capitals, which then do not indicate acronyms."""
        found = self.match(_SHOUT_AFTER, self.index)
        around = self.text[max(0, self.index - _SHOUT_BEFORE) : found.end() if found else self.index]
        num_upper = sum(map(str.isupper, around))
        return num_upper >= 6 and num_upper > 2 * sum(map(str.islower, around))

    def is_latin(self, index: int) -> bool:
        """Return True if English is read at `index`: the nearest letter before it (or at it; or else after it) is
        Latin, and no foreign letter touches what follows; or the model reads no others. Looks at `_FAR` characters."""
        if self.spell:
            return True
        first, last = max(0, index - _FAR), index + _FAR
        nearest = _LAST_LETTER.search(self.text, first, index + 1) or _LETTER.search(self.text, index, last)
        touching = _LETTER_OR_SPACE.search(self.text, index, last)
        places = [found.start() for found in (nearest, touching) if found is not None]
        if any(_is_foreign(self.text, place) for place in places):
            return False
        is_known = len(places) == 2 or last <= len(self.text)
        # What follows a Greek letter decides whether it is part of a word.
        if not is_known or (len(self.text) - 1 in places and is_greek(self.text[-1])):
            self.saw_end = True
        return True


Speak = Callable[[re.Match[str], Scan], str | None]


class Rule:
    """Pattern of a token, and how the token is spoken.

    Patterns are tried at many positions: their repeats are bounded, so that a scan stays linear. What they look at on
    the right is derived from them (`reaching`); a function of `spoken` asks `Scan` for what is beyond the match.

    Args:
        spoken: the spoken form, or a table of spoken forms by the matched text, or a function of the match. An empty
            string drops the token. A function may return None: then later rules are tried.
        any_case: the pattern matches capitals and small letters alike.
    """

    def __init__(self, pattern: str, spoken: str | Mapping[str, str] | Speak, *, any_case: bool = False) -> None:
        self.pattern = re.compile(pattern, re.IGNORECASE if any_case else 0)
        self.source = f"(?{'i' * any_case}:{pattern})"  # with its flags, as part of a larger pattern
        self.speak = _speaker(spoken)


def _speaker(spoken: str | Mapping[str, str] | Speak) -> Speak:
    if isinstance(spoken, str):
        return lambda match, scan: spoken
    if isinstance(spoken, Mapping):
        return lambda match, scan: spoken[match.group().strip()]
    return spoken


def any_of(names: Iterable[str]) -> str:
    """Return a pattern of any of the names, longest first; white space within one may be missing. Without names it
    matches nothing."""
    patterns = (re.escape(name).replace(r"\ ", " ?") for name in sorted(names, key=len, reverse=True))
    return "|".join(patterns) or "(?!)"


class RuleList:
    """Rules in order of precedence.

    One pattern of all of them finds the first that matches: most tokens match none, and trying each would be most of
    the time that planning takes.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self._any = re.compile("|".join(f"(?P<rule{number}>{rule.source})" for number, rule in enumerate(rules)))

    def read(self, scan: Scan, index: int) -> SpokenToken | None:
        """Return the token at `index` by the first rule that claims it."""
        number, token = len(self.rules), None
        if (first := self._any.match(scan.text, index)) is not None and first.lastgroup is not None:
            number, token = self._claim(scan, index, int(first.lastgroup.removeprefix("rule")))
        if scan.is_open and not scan.saw_end:
            scan.saw_end = self._reaches_end(scan.text, index, number)
        return token

    def compile(self) -> None:
        """Compile the patterns for incremental text now instead of at the first text: it takes 20 ms."""
        _ = self._to_end

    def _claim(self, scan: Scan, index: int, first: int) -> tuple[int, SpokenToken | None]:
        """Return the token by the first rule from `first` on that claims it, and that rule's number."""
        for number, rule in enumerate(self.rules[first:], first):
            match = rule.pattern.match(scan.text, index)
            spoken = rule.speak(match, scan) if match else None
            if match and spoken is not None:
                return number, SpokenToken(spoken, max(match.end(), index + 1), dropped=not spoken)
        return len(self.rules), None

    def _reaches_end(self, text: str, index: int, number: int) -> bool:
        """Return True if text to come could make a rule match, or match otherwise, up to the rule of this number."""
        found = self._to_end.match(text, index, partial=True)
        if found is None:
            return False
        begun = (name for name, begins in found.groupdict().items() if begins is not None)
        return int(next(begun, "rule0").removeprefix("rule")) <= number

    @cached_property
    def _to_end(self) -> regex.Pattern[str]:
        return reaching("|".join(f"(?P<rule{number}>){rule.source}" for number, rule in enumerate(self.rules)))
