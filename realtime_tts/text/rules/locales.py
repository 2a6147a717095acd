"""Nouns, currencies and forms of one language, from its tables.

A noun is written ``singular|plural``, or as one form in which ``+`` stands for the s of the plural; ``(f)`` marks a
feminine noun. A currency is ``unit / hundredth``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from realtime_tts.text.language_data import word_table


class Noun(NamedTuple):
    """Singular and plural of a noun.

    `is_feminine`: numbers before it may take another form than before a masculine or neuter noun.
    """

    one: str
    many: str
    is_feminine: bool = False

    def after(self, number: str) -> str:
        """Return the form that follows a number, which is written in digits."""
        return self.one if number == "1" else self.many


class Currency(NamedTuple):
    """Names of the unit, and of its hundredth, if it has one."""

    unit: Noun
    cent: Noun | None


def noun(written: str) -> Noun:
    forms = written.removesuffix("(f)").strip()
    one, _, many = forms.partition("|")
    return Noun(one.replace("+", ""), many or one.replace("+", "s"), written.endswith("(f)"))


def units(language: str) -> dict[str, Noun]:
    """Return the units of measure of a language."""
    return {name: noun(spoken) for name, spoken in word_table("units", language).items()}


def currencies(language: str) -> dict[str, Currency]:
    parts = ((name, spoken.partition(" / ")) for name, spoken in word_table("currencies", language).items())
    return {name: Currency(noun(unit), noun(cent) if cent else None) for name, (unit, _, cent) in parts}


@dataclass(frozen=True, slots=True)
class Forms:
    """Other words and forms of one language: its table `forms`. Decimals have a comma in all of these languages.

    Attributes:
        point: word for the comma.
        to: word between the ends of a range.
        cents_joint: word between the whole units of an amount and its cents.
        hour: noun after the number of a clock's hour.
        hour_words: pattern of the written hour after a time.
        group: separator of the thousands of a number.
        of: word between a round number of millions and its noun.
        month_joint: word before a month and before a year.
        first: word for the first day of a month, if it is not the cardinal.
        and_minutes: word between hour and minutes.
        decimals: "digits" if decimals are said digit by digit.
    """

    point: str
    minus: str
    to: str
    cents_joint: str
    hour: str
    hour_words: str
    group: str = "."
    of: str = ""
    month_joint: str = ""
    first: str = ""
    and_minutes: str = ""
    decimals: str = ""
