"""The pause between sentences: in front of each sentence but the first, wherever the text was cut into messages."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.text.planner import MAX_SENTENCE_SILENCE_MS, PlannerFactory, Segment

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.?!'-"
FACTORY = PlannerFactory(LETTERS, 70, 1.0)


def plan(*deltas: str, pause_ms: float = 300.0, live: bool = False) -> list[Segment]:
    """The segments as they were known last."""
    planner = FACTORY.make("en", live=live, sentence_pause_ms=pause_ms)
    latest: dict[int, Segment] = {}
    for number, delta in enumerate(deltas):
        latest |= {segment.index: segment for segment in planner.push(delta, 0.05 * number)}
    latest |= {segment.index: segment for segment in planner.end(0.05 * len(deltas))}
    assert sorted(latest) == list(range(len(latest)))
    return [latest[index] for index in sorted(latest)]


def outline(segments: list[Segment]) -> list[str | float]:
    return [segment.silence_ms or segment.text.lower() for segment in segments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["one.", 300.0, "two!", 300.0, "three?"]),
        ("Only one, with a clause in it.", ["only one, with a clause in it."]),
        ("Dr. Smith is here. Yes.", ["doctor smith is here.", 300.0, "yes."]),
        ("A line\n\nand another", ["a line.", 300.0, "and another"]),
        ("One. [pause 1s] Two. Three.", ["one.", 1000.0, "two.", 300.0, "three."]),
        ('One. <break strength="none"/>Two.', ["one.", "two."]),
        ("One. 😀. Two.", ["one.", 300.0, "two."]),
        ("", []),
    ],
)
def test_a_sentence_waits_for_its_predecessor_to_ring_out(text: str, expected: list[str | float]) -> None:
    assert outline(plan(text)) == expected
    assert outline(plan(*text)) == expected


def test_without_it_short_sentences_are_spoken_together() -> None:
    segments = plan("One. Two. Three. Four. Five.", pause_ms=0.0)
    assert not any(segment.silence_ms for segment in segments)
    assert len(segments) < 5


def test_a_flush_between_sentences_is_no_way_around_it() -> None:
    planner = FACTORY.make("en", sentence_pause_ms=300.0)
    segments = planner.push("Hello there.", 0.0) + planner.flush(0.0) + planner.push("Go on", 1.0) + planner.flush(1.0)
    segments += planner.push("and on.", 2.0) + planner.end(2.0)
    assert outline(segments) == ["hello there.", 300.0, "go on", "and on."]


TEXTS = st.lists(
    st.sampled_from(["Hello there. ", "well, ", "One ", "two", "[pause 1s]", "Why? ", "\n\n", "é ", ". ", "汉。"]),
    max_size=14,
).map("".join)


@settings(deadline=None)
@given(TEXTS, st.booleans(), st.data())
def test_pauses_do_not_depend_on_how_the_text_was_split(text: str, live: bool, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    segments = plan(*pieces, live=live)
    assert outline(segments) == outline(plan(text))
    assert not any(one.silence_ms == two.silence_ms == 300.0 for one, two in itertools.pairwise(segments))
    for segment in segments:
        assert all(text[word.start : word.end] == word.text for word in segment.words)


def test_a_context_full_of_sentences_has_so_much_silence_and_no_more() -> None:
    segments = plan("A b. " * 450, pause_ms=3000.0)
    assert sum(segment.silence_ms for segment in segments) == MAX_SENTENCE_SILENCE_MS
    assert segments[-1].text
