"""Forty lines in each of twelve languages, and odd texts in all of them: what reaches a model of any character.

`languages.jsonl` has for each line: language, the line, what the reference's normaliser makes of it (or the error that
it raises), what ours makes of it, and why that is not the line itself. The reference's default is the line itself, with
white space collapsed; its normaliser, which is off by default, knows Chinese and English alone.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from odd_texts import ODD_TEXTS

from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import PlannerFactory
from realtime_tts.text.skipped import DROPPED

ROWS = [json.loads(line) for line in (Path(__file__).parent / "languages.jsonl").read_text("utf-8").splitlines()]
REASONS = {
    "number, sign or abbreviation": "read in words, in the languages that have rules",
    "markup": "Markdown, links and emoticons have no sound",
    "pictograph": "reported as unspeakable",
    "leading dash": "there is no pause before the first word",
    "space between characters": "Chinese and Japanese have none, as for the reference's normaliser",
    "form of characters": "ligatures and characters of other width in their usual form",
}
LANGUAGES = ["de", "fr", "es", "it", "pt", "ru", "ar", "hi", "th", "ko", "ja", "zh"]
OF_ANOTHER_SCRIPT = [
    row for row in ROWS if row[0] in LANGUAGES[5:] and not any(char.isascii() and char.isalpha() for char in row[1])
]
ANY_CHARACTER = PlannerFactory(None, 200, None)
STARTER_VOICE = PlannerFactory("abcdefghijklmnopqrstuvwxyz ,.?!'-", 200, None)


def test_there_are_forty_lines_in_each_of_twelve_languages() -> None:
    assert Counter(row[0] for row in ROWS) == dict.fromkeys(LANGUAGES, 40)


@pytest.mark.parametrize(("language", "line", "by_reference", "ours", "reason"), ROWS)
def test_a_line_reaches_the_model_as_it_is_but_for_a_reason(
    language: str, line: str, by_reference: str, ours: str, reason: str
) -> None:
    assert Normalizer(language).normalize(line).text == ours
    assert (ours == " ".join(line.split())) == (reason == "")
    assert reason in REASONS or not reason


@pytest.mark.parametrize(("language", "line", "by_reference", "ours", "reason"), OF_ANOTHER_SCRIPT)
def test_a_line_of_another_script_needs_no_language(
    language: str, line: str, by_reference: str, ours: str, reason: str
) -> None:
    assert Normalizer("en").normalize(line).text == ours


def plan(
    text: str, language: str, planners: PlannerFactory = ANY_CHARACTER, *, live: bool
) -> tuple[list[str], list[tuple[int, int]], list[tuple[int, int]]]:
    """Return texts of the final segments, ranges of the words, and what is skipped; text comes by characters."""
    planner = planners.make(language, live=live, text_type="text")
    given = [each for at, char in enumerate(text) for each in planner.push(char, at / 1e6)]
    given += planner.end(1.0)
    assert planner.end(2.0) == []
    final = [each for each in given if each.final]
    assert [each.index for each in final] == list(range(len(final)))
    for each in given:
        assert final[each.index].text.startswith(each.text)
    return (
        [each.text for each in final],
        [(w.start, w.end) for s in final for w in s.words],
        list(planner.take_skipped()),
    )


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_line_ends_once_and_loses_no_letter_without_a_report(language: str, live: bool) -> None:
    for line in (row[1] for row in ROWS if row[0] == language):
        texts, words, skipped = plan(line, language, live=live)
        assert texts
        dropped = Normalizer(language).normalize(line).ranges(DROPPED)
        told = {at for start, end in [*words, *skipped, *dropped] for at in range(start, end)}
        assert not [char for at, char in enumerate(line) if char.isalnum() and at not in told]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("language", ["en", "xx", "de", "th"])
@pytest.mark.parametrize("planners", [ANY_CHARACTER, STARTER_VOICE])
def test_odd_texts_end_once_and_lose_nothing_without_a_report(
    language: str, live: bool, planners: PlannerFactory
) -> None:
    charset = None if planners is ANY_CHARACTER else frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
    for text in ODD_TEXTS:
        _, words, skipped = plan(text, language, planners, live=live)
        dropped = Normalizer(language, charset).normalize(text).ranges(DROPPED)
        told = {at for start, end in [*words, *skipped, *dropped] for at in range(start, end)}
        assert not [char for at, char in enumerate(text) if char.isalnum() and at not in told], text


def test_there_are_126_odd_texts() -> None:
    assert len(set(ODD_TEXTS)) == len(ODD_TEXTS) == 126
