"""Amounts, units, decimals, dates, times, ordinals and abbreviations of the languages in `locales`.

A whole number by itself stays in digits for a model that reads them: its form may depend on the noun after it (Spanish
"doscientos", "doscientas"), which the model knows and a rule does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from realtime_tts.text.language_data import LANGUAGES, word_set, word_table, words
from realtime_tts.text.rules.base import Rule, RuleList, Scan, Speak, any_of
from realtime_tts.text.rules.locales import Currency, Forms, Noun, currencies, noun, units
from realtime_tts.text.rules.verbalize import foreign_words

_END = r"(?![^\W_])"
_MAX_BYTE = 255
_AGREE_THROUGHOUT = ("es", "pt")  # languages in which not only the last word of a number has a form before a noun
_MILLIONS = ("mill", "milh", "bil")  # beginnings of the words after which it does
_THOUSAND = "mil"  # a magnitude that is no noun
_GERMAN_DATIVE = frozenset({"am", "vom", "zum", "dem", "den", "ab", "seit", "bis", "beim"})


@cache
def local_rules(language: str) -> RuleList | None:
    """Return the rules of a language, or None if it has none."""
    forms = word_table("forms", language)
    return RuleList(_Reader(language, Forms(**forms)).rules()) if forms else None


def all_local_rules() -> tuple[RuleList, ...]:
    """Return the rules of every language that has any."""
    return tuple(rules for language in LANGUAGES if (rules := local_rules(language)) is not None)


class _Reader:
    """Rules of one language, and the readings of their matches."""

    def __init__(self, language: str, forms: Forms) -> None:
        self._language, self._forms, self._hour = language, forms, noun(forms.hour)
        self._units, self._currencies, self._months = units(language), currencies(language), words("months", language)
        self._abbreviations = word_table("abbreviations", language)
        self._compact = {name.replace(" ", ""): spoken for name, spoken in self._abbreviations.items()}
        self._final = word_set("final_abbreviations", language)
        self._one, self._one_feminine = word_table("one", language), word_table("one_feminine", language)
        self._ordinals = word_table("ordinals", language)
        self._magnitudes = {name: noun(spoken) for name, spoken in word_table("magnitudes", language).items()}

    def rules(self) -> list[Rule]:
        """Return the rules in order of precedence."""
        forms, before_number = self._forms, word_table("abbreviations_before_numbers", self._language)
        day, month, year = r"(0?[1-9]|[12]\d|3[01])", r"(0?[1-9]|1[0-2])", r"(\d{4})"
        group = re.escape(forms.group)
        number = rf"(?:\d{{1,3}}(?:{group}\d{{3}}){{1,4}}|\d{{1,12}})(?:,\d{{1,6}})?(?![.,]?\d)"
        higher = rf"(?: ?[-–] ?({number}))?"
        currency, unit, magnitude = any_of(self._currencies), any_of(self._units), any_of(self._magnitudes)
        return [
            Rule(rf"{year}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?![\d-])", self._date),
            Rule(rf"{day}[./-]{month}[./-]{year}(?![\d/-]|\.\d)", self._date),
            # A degree sign for the letter: "il 1° maggio".
            *self._only("es it pt", Rule(r"1°(?= [^\W\d_])", lambda match, scan: self._ordinal_words("1"))),
            *self._only("de", Rule(rf"{day}\. ?{month}\.(?:(\d\d)(?!\d))?(?!\d)", self._short_date)),
            *self._only(
                "de",
                Rule(rf"{day}\. (?={'|'.join(self._months)})", lambda match, scan: self._day(match[1], match, scan)),
            ),
            Rule(rf"([01]?\d|2[0-4]):([0-5]\d)(?![:\d])(?: ?{forms.hour_words}{_END})?", self._time),
            *self._only("es fr pt", Rule(rf"([01]?\d|2[0-4]) ?h ?([0-5]\d){_END}", self._time)),
            Rule(rf"({currency}) ?({number}){higher} ?({magnitude}){_END}", self._large_amount_at(2, 3, 4, 1)),
            Rule(rf"({number}){higher} ?({magnitude}) ?({currency}){_END}", self._large_amount_at(1, 2, 3, 4)),
            Rule(rf"({number}){higher} ?({currency}){_END}", self._amount_at(1, 2, 3)),
            Rule(rf"({currency}) ?({number}){higher}", self._amount_at(2, 3, 1)),
            Rule(r"[€£¥]|\$(?!\w)", self._symbol),
            Rule(rf"({number}){higher} ?({unit})(?![^\W_]|[²³])", self._quantity),
            Rule(rf"(?<![\d.]){number}", self._plain),
            Rule(r"-(?=\d)(?<![^\s(]-)", forms.minus),
            Rule(r"[§&](?= )|§(?=\d)", self._sign),
            Rule(rf"(\d{{1,4}})({any_of(self._ordinals)}){_END}", self._ordinal),
            Rule(rf"(?:{any_of(self._abbreviations)})(?![^\W_])", self._abbreviation),
            Rule(rf"(?:{any_of(before_number)}) ?(?=\d)", before_number),
            *self._only("fr", Rule(r"M\.(?= [A-ZÀ-Þ][^\W\d_])", "Monsieur")),
        ]

    def _only(self, languages: str, rule: Rule) -> list[Rule]:
        return [rule] if self._language in languages.split() else []

    # Numbers

    def _words(self, number: str, noun: Noun | None = None) -> str:
        """Return the number in words, in its form before `noun`: a cardinal, with a decimal part."""
        whole, _, fraction = number.replace(self._forms.group, "").partition(",")
        if fraction:
            return f"{self._cardinal(whole)} {self._forms.point} {self._fraction(fraction)}"
        words = self._cardinal(whole).split(" ")
        first = len(words) - 1
        if self._language in _AGREE_THROUGHOUT:
            first = max((place + 1 for place, word in enumerate(words) if word.startswith(_MILLIONS)), default=0)
        forms = {} if noun is None else self._one_feminine if noun.is_feminine else self._one
        return " ".join([*words[:first], *(self._agreed(word, forms) for word in words[first:])])

    def _agreed(self, word: str, forms: Mapping[str, str]) -> str:
        """Return a word of a number in its form before a noun."""
        for ending, form in forms.items():
            if word == ending or (word.endswith(ending) and self._language != "it"):
                return word.removesuffix(ending) + form
        return word

    def _cardinal(self, digits: str) -> str:
        return foreign_words(digits, self._language).replace(",", "")

    def _ordinal_words(self, digits: str) -> str:
        return foreign_words(digits, self._language, "ordinal")

    def _fraction(self, digits: str) -> str:
        if self._forms.decimals == "digits" or len(digits) > 2 or digits[0] == "0":
            return " ".join(map(self._cardinal, digits))
        return self._cardinal(digits)

    def _counted(self, number: str, unit: Noun, scan: Scan) -> str:
        """Return the number with the name of what it counts."""
        is_whole = "," not in number
        plain = number.replace(self._forms.group, "")
        name = unit.after(plain)
        if is_whole and unit.is_feminine and not scan.spell:
            return f"{plain} {name}"
        of = self._of(name) if is_whole and len(plain) > 6 and plain.endswith("000000") else ""
        return f"{self._words(number, unit)} {of}{name}"

    def _of(self, name: str) -> str:
        """Return the word between millions and the noun `name`."""
        of = self._forms.of
        return "de " if of == "d'" and name[0] not in "aeiou" else of

    # Dates and times

    def _date(self, match: re.Match[str], scan: Scan) -> str | None:
        if not self._months:
            return None
        day, month, year = match.groups() if len(match[1]) <= 2 else match.group(3, 2, 1)
        parts = (self._day(day, match, scan), self._months[int(month) - 1], foreign_words(year, self._language, "year"))
        return f" {self._forms.month_joint}".join(parts)

    def _short_date(self, match: re.Match[str], scan: Scan) -> str | None:
        """ "am 3.5." and "vom 3.5.24", only after a word that says it is a date."""
        if scan.previous_word(match.start()).lower() not in _GERMAN_DATIVE | {"der"}:
            return None
        month = self._months[int(match.group(2)) - 1]
        year = f" {self._cardinal(match.group(3))}" if match.group(3) else ""
        return f"{self._day(match.group(1), match, scan)} {month}{year}"

    def _day(self, day: str, match: re.Match[str], scan: Scan) -> str:
        if self._language == "de":
            before = scan.previous_word(match.start()).lower()
            ending = "n" if before in _GERMAN_DATIVE else "" if before in ("der", "die", "das") else "r"
            return f"{self._ordinal_words(day)}{ending}"
        if int(day) == 1 and self._forms.first:
            return self._forms.first
        return self._cardinal(day)

    def _time(self, match: re.Match[str], scan: Scan) -> str | None:
        hour, minute = int(match.group(1)), int(match.group(2))
        hours = self._hours(hour)
        if not minute or self._language != "es":
            hours = f"{hours} {self._hour.after(str(hour))}".strip()
        return f"{hours} {self._forms.and_minutes}{self._cardinal(str(minute))}" if minute else hours

    def _hours(self, hour: int) -> str:
        """Return the cardinal before the noun of an hour; the table `hours` has the words that change there."""
        counting = word_table("hours", self._language)
        return " ".join(counting.get(word, word) for word in self._cardinal(str(hour)).split())

    # Amounts and quantities

    def _amount_at(self, low: int, high: int, currency: int) -> Speak:
        """Return the reader of a pattern whose groups have these numbers."""
        return lambda match, scan: self._amount(match[low], match[high], self._currencies[match[currency]], scan)

    def _amount(self, low: str, high: str | None, currency: Currency, scan: Scan) -> str:
        if high:
            return f"{self._words(low)} {self._forms.to} {self._amount(high, None, currency, scan)}"
        whole, _, fraction = low.partition(",")
        if len(fraction) != 2 or currency.cent is None:
            return self._counted(low, currency.unit, scan)
        cents = self._counted(str(int(fraction)), currency.cent, scan)
        if not int(fraction):
            return self._counted(whole, currency.unit, scan)
        if not int(whole.replace(self._forms.group, "")):
            return cents
        return f"{self._counted(whole, currency.unit, scan)} {self._forms.cents_joint} {cents}"

    def _large_amount_at(self, low: int, high: int, magnitude: int, currency: int) -> Speak:
        """Return the reader of a pattern of an amount in thousands or more, whose groups have these numbers."""

        def speak(match: re.Match[str], scan: Scan) -> str:
            name, unit = match[magnitude], self._currencies[match[currency]].unit
            large = self._magnitudes[name]
            if large.many != _THOUSAND:
                of = self._of(unit.many)
            else:
                large, of = large._replace(is_feminine=unit.is_feminine), ""
            is_one = large.many == _THOUSAND and match[low] == "1" and not match[high]
            amount = _THOUSAND if is_one else self._counted(match[high] or match[low], large, scan)
            stop = self._stop(name, match.end(), scan) if name.endswith(".") and magnitude > currency else ""
            range_from = f"{self._words(match[low])} {self._forms.to} " if match[high] else ""
            return f"{range_from}{amount} {of}{unit.many}{stop}"

        return speak

    def _symbol(self, match: re.Match[str], scan: Scan) -> str | None:
        currency = self._currencies.get(match.group())
        return currency.unit.many if currency is not None else None

    def _quantity(self, match: re.Match[str], scan: Scan) -> str | None:
        low, high, name = match.groups()
        spoken = self._counted(high or low, self._units[name], scan)
        if name.endswith("."):
            spoken += self._stop(name, match.end(), scan)
        return f"{self._words(low)} {self._forms.to} {spoken}" if high else spoken

    def _plain(self, match: re.Match[str], scan: Scan) -> str | None:
        """Return a decimal in words; of a whole number the digits without separators."""
        number = match.group()
        if "," in number:
            return self._words(number)
        parts = number.split(self._forms.group)
        is_address = len(parts) == 4 and all(int(part) <= _MAX_BYTE for part in parts)
        if len(parts) == 1 or is_address:
            return None
        return self._words(number) if scan.spell else "".join(parts)

    def _sign(self, match: re.Match[str], scan: Scan) -> str | None:
        if self._language == "es" and re.match("h?i", scan.next_word(match.end()), re.IGNORECASE):
            return "e"  # "Pérez e Hijos"
        return word_table("signs", self._language).get(match.group())

    # Ordinals and abbreviations

    def _ordinal(self, match: re.Match[str], scan: Scan) -> str | None:
        number, letters = match.groups()
        if letters in ("er", "re", "ère") and number != "1":
            return None
        old, _, new = self._ordinals[letters].partition("|")
        words = self._ordinal_words(number).split()
        return " ".join(word.removesuffix(old) + new if old and word.endswith(old) else word for word in words)

    def _abbreviation(self, match: re.Match[str], scan: Scan) -> str | None:
        written = match.group().replace(" ", "")
        spoken = self._compact[written]
        return spoken + self._stop(written, match.end(), scan) if written.endswith(".") else spoken

    def _stop(self, abbreviation: str, end: int, scan: Scan) -> str:
        """Return the full stop of an abbreviation that ends at `end` if it also ends the sentence."""
        following = scan.next_word(end)
        is_over = not scan.ahead(end, 3).strip()
        return "." * (is_over or (abbreviation in self._final and following[:1].isupper()))
