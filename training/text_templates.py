"""A small grammar of what a voice agent says: sentences whose slots are filled from word lists.

Every template is ours. A slot is `{name}`; `fill` draws each occurrence anew from a seeded generator.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

_TEXTS = Path(__file__).parent / "texts"


def _read_words(name: str) -> list[str]:
    return (_TEXTS / f"{name}.txt").read_text(encoding="ascii").split()


FIRST_NAMES, LAST_NAMES, PLACES = (_read_words(name) for name in ("first_names", "last_names", "places"))
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
POLITE = ["please", "thanks", "sorry", "hello", "hi", "okay", "sure", "great", "right", "well", "yes", "no"]

TEMPLATES = (_TEXTS / "templates.txt").read_text(encoding="ascii").splitlines()


def number_words(value: int) -> str:
    """English words for 0 … 999,999, with hyphens and "and" as the normaliser writes them."""
    if value < 20:
        return _ONES[value]
    if value < 100:
        tens, ones = divmod(value, 10)
        return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{_ONES[hundreds]} hundred" + (f" and {number_words(rest)}" if rest else "")
    thousands, rest = divmod(value, 1000)
    joint = " and " if 0 < rest < 100 else ", " if rest else ""
    return f"{number_words(thousands)} thousand{joint}{number_words(rest) if rest else ''}"


def ordinal_words(value: int) -> str:
    """English words for 1st … 99th."""
    head, _, last = number_words(value).rpartition("-")
    regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    last = _ORDINALS.get(last, regular)
    return f"{head}-{last}" if head else last


class Grammar:
    """Fills templates. `lexicon` maps "noun", "verb", "adj", "adv" to their words, commonest first."""

    def __init__(self, lexicon: dict[str, list[str]], rng: random.Random) -> None:
        self._lexicon = lexicon
        self._rng = rng

    def sentence(self) -> str:
        return self.fill(self._rng.choice(TEMPLATES))

    def fill(self, template: str) -> str:
        text = re.sub(r"\{(\w+)\}", lambda match: self.slot(match.group(1)), template)
        return re.sub(r"\ba (?=[aeiou])", "an ", text)

    def slot(self, name: str) -> str:
        """One filler of a slot."""
        rng = self._rng
        if name in self._lexicon or name == "noun_s":
            words = self._lexicon["noun" if name == "noun_s" else name]
            # half of the draws from the commonest words, half from all: agents mostly say common words
            word = rng.choice(words[: max(1, len(words) // 10)] if rng.random() < 0.5 else words)
            return _plural(word) if name == "noun_s" else word
        return _SLOTS[name](rng)


def _plural(noun: str) -> str:
    if re.search(r"(?:s|x|z|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"


def _time(rng: random.Random) -> str:
    hour, minute = number_words(rng.randint(1, 12)), rng.choice([0, 0, 15, 30, 45, rng.randint(1, 59)])
    if minute == 0:
        return f"{hour} {rng.choice(['o-clock', 'a m', 'p m', 'in the morning', 'in the evening'])}".replace(
            "o-clock", "o'clock"
        )
    if minute in (15, 30) and rng.random() < 0.3:
        return f"{'quarter' if minute == 15 else 'half'} past {hour}"
    spoken = number_words(minute) if minute > 9 else f"oh {number_words(minute)}"
    return f"{hour} {spoken}" + rng.choice(["", " a m", " p m"])


def _money(rng: random.Random) -> str:
    whole = number_words(int(10 ** rng.uniform(0.3, 4)))
    unit = rng.choice(["dollars", "dollars", "euros", "pounds"])
    return f"{whole} {unit}" + (f" and {number_words(rng.randint(2, 99))} cents" if rng.random() < 0.4 else "")


def _year(rng: random.Random) -> str:
    year = rng.randint(1800, 2030)
    if 2000 <= year < 2010:
        return "two thousand" + (f" and {number_words(year - 2000)}" if year > 2000 else "")
    low = year % 100
    return f"{number_words(year // 100)} " + (
        number_words(low) if low > 9 else f"oh {number_words(low)}" if low else "hundred"
    )


def _digits(rng: random.Random, count: int | None = None) -> str:
    return " ".join(_ONES[rng.randint(0, 9)] for _ in range(count or rng.randint(3, 6)))


def _phone(rng: random.Random) -> str:
    return ", ".join(_digits(rng, count) for count in (3, 3, 4))


def _letters(rng: random.Random) -> str:
    separator = rng.choice([" ", ", "])
    return separator.join(rng.choice(LETTERS) for _ in range(rng.randint(2, 6)))


_SLOTS = {
    "first": lambda rng: rng.choice(FIRST_NAMES),
    "last": lambda rng: rng.choice(LAST_NAMES),
    "place": lambda rng: rng.choice(PLACES),
    "day": lambda rng: rng.choice(DAYS),
    "month": lambda rng: rng.choice(MONTHS),
    "ordinal": lambda rng: ordinal_words(rng.randint(1, 31)),
    "number": lambda rng: number_words(int(10 ** rng.uniform(0.2, 5) if rng.random() < 0.3 else rng.randint(2, 120))),
    "digit": lambda rng: _ONES[rng.randint(0, 9)],
    "digits": _digits,
    "phone": _phone,
    "letters": _letters,
    "time": _time,
    "money": _money,
    "year": _year,
}
