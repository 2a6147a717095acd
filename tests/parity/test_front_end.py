"""Departures of the text front end from the reference, which only collapses white space (docs/internals/model.md)."""

from __future__ import annotations

import re

import pytest

from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import Planner


def spoken(text: str) -> list[str]:
    planner = Planner(Normalizer())
    return [segment.text for segment in (*planner.push(text, 0.0), *planner.end(0.0))]


def by_reference(text: str) -> list[str]:
    """Return what the reference gives to its tokenizer when it is not asked to normalise."""
    return [re.sub(r"\s+", " ", text)]


@pytest.mark.parametrize("text", ["How are you", "One  two\tthree", "Hello there\nhow are you"])
def test_plain_words_reach_the_model_as_the_reference_gives_them(text):
    assert spoken(text) == by_reference(text)


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("Hello there\nHow are you", ["Hello there. How are you"]),
        ("Hello there.\n\nHow are you", ["Hello there.", "How are you"]),
    ],
)
def test_a_line_break_ends_a_sentence_or_a_segment(text, ours):
    assert spoken(text) == ours != by_reference(text)


def test_a_text_is_spoken_in_segments():
    assert spoken("Where is it? Fine.") == ["Where is it?", "Fine."]


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("The “red” one", "The red one"),
        ("The red one (and the blue) is here", "The red one, and the blue, is here"),
        ("(An old man)Now this", "An old man, Now this"),
        ("Now what?! Yes", "Now what? Yes"),
        ("**Now** `this` [one](http://x.org)", "Now this one"),
        ("Now 😀 this", "Now this"),
        ("It is 5 % of $3", "It is five percent of three dollars"),
    ],
)
def test_signs_are_read_become_pauses_or_are_left_out(text, ours):
    assert " ".join(spoken(text)) == ours != by_reference(text)[0]
