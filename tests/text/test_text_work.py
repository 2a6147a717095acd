"""Planning is linear in the text, whatever the characters: the work is counted, not timed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from cProfile import Profile

import pytest

from realtime_tts.session.context_text import SLICE_CHARS
from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import Planner

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
SPELLING = Normalizer("en", LETTERS)
SHORT, LONG = 1_000, 2_500  # characters
MOST = 2.75  # times the work of the short
UNITS = [
    "5%", "1,", "a.", "$1 ", "(", "a", "word ", "1", "-", "😀", "U.S. ", "汉", "x_", "㎏%", " ", "\n", "`", '"', "a@",
    "a-", "\u0301", "A1", "#A-", "0800 ", "Mon-", "$-", "12 in. ", "Привет ", "a😀", "x" * 250 + " ",
    "a " * 19 + "x" * 259 + " ",
]  # fmt: skip
ORDINARY = "We called the office on Monday and asked whether our order could be shipped before the weekend. "


def plan(text: str, step: int, *, live: bool) -> None:
    planner = Planner(SPELLING, live=live)
    for start in range(0, len(text), step):
        planner.push(text[start : start + step], float(start))
    planner.end(float(len(text)))


def count_calls(work: Callable[[], object]) -> int:
    """Function calls, of Python's and of C."""
    profile = Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def count_work(text: str, step: int, *, live: bool = False) -> int:
    """Function calls that planning takes."""
    return count_calls(lambda: plan(text, step, live=live))


@functools.cache
def work_of(unit: str, step: int, *, live: bool = False) -> int:
    """What `SHORT` characters take; it is asked for more than once."""
    text = (unit * SHORT)[:SHORT]
    plan(text, step, live=live)  # caches
    return count_work(text, step, live=live)


@pytest.mark.parametrize("unit", UNITS)
def test_work_grows_with_the_text(unit: str) -> None:
    text = (unit * LONG)[:LONG]
    for step, live in ((SHORT, False), (1, False), (1, True)):
        short = work_of(unit, step, live=live)
        long = count_work(text, LONG if step == SHORT else 1, live=live)
        assert long <= MOST * short


@pytest.mark.parametrize("unit", UNITS)
def test_no_character_costs_much(unit: str) -> None:
    """Per character, in calls: the dearest texts ("㎏%") are at 130."""
    assert work_of(unit, SHORT) <= 150 * SHORT


@pytest.mark.parametrize("unit", [ORDINARY, *UNITS])
def test_live_planning_costs_a_small_multiple(unit: str) -> None:
    """Character by character; the dearest (one-letter words, each given out) is at 2."""
    assert work_of(unit, 1, live=True) <= 2.5 * work_of(unit, 1)


def test_ordinary_text_costs_least() -> None:
    assert work_of(ORDINARY, SHORT) <= 40 * SHORT


def stretches(text: str, *, live: bool) -> Iterator[Callable[[], object]]:
    """The pieces of work that cannot be interrupted, to be called in order, the text coming as a session reads it."""
    planner = Planner(SPELLING, live=live)
    works = [
        planner.pushing(text[start : start + SLICE_CHARS], float(start)) for start in range(0, len(text), SLICE_CHARS)
    ]
    for work in (*works, planner.ending(float(len(text)))):
        is_over = False

        def one(work: Iterator[object] = work) -> None:
            nonlocal is_over
            is_over = next(work, None) is None

        while not is_over:
            yield one


@pytest.mark.parametrize("unit", [ORDINARY, *UNITS, "\ufdfa", "\u00bd\u2153\u00bc", "MCMXCIX ", "e\u0301\u0323"])
@pytest.mark.parametrize("live", [False, True])
def test_no_stretch_of_work_is_long(unit: str, live: bool) -> None:
    """The dearest ("㎏%") are at 12,000 calls, which take a millisecond; all of a segment at once would be 40,000."""
    text = (unit * SHORT)[:SHORT]
    for stretch in stretches(text, live=live):  # caches
        stretch()
    assert max(count_calls(stretch) for stretch in stretches(text, live=live)) <= 14_000
