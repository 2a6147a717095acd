"""Text with pauses: the speech around them is that of the text without them, and places count their characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.text.planner import EMPTY_SPEECH_MS, MAX_SILENCE_MS, Planner, PlannerFactory, Segment

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.?!'-"
FACTORY = PlannerFactory(LETTERS, 70, 1.0)


def planner(live: bool = False) -> Planner:
    return FACTORY.make("en", live=live)


def plan(*deltas: str) -> list[Segment]:
    made = planner()
    segments = [segment for delta in deltas for segment in made.push(delta, 0.0)]
    return [*segments, *made.end(0.0)]


def outline(segments: list[Segment]) -> list[str | float]:
    return [segment.silence_ms or segment.text.lower() for segment in segments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there. [pause 1s] How are you?", ["hello there.", 1000.0, "how are you?"]),
        ('Wait<break time="300ms"/>for it', ["wait", 300.0, "for it"]),
        ("[pause]First.", [500.0, "first."]),
        ("Last.[pause 2s]", ["last.", 2000.0]),
        ("[pause 1s][pause 2s]", [1000.0, 2000.0]),
        ('A<break strength="none"/>b', ["a", "b"]),
        ("one </break> two", ["one", "two"]),
        ("if a < b [see", ["if a is less than b, see"]),
        ("no pause at all", ["no pause at all"]),
        ("Code <spell>AB-12</spell>, then go.", ["code a b dash one two, then go."]),
        ("Call <spell>(555) 01</spell>.", ["call five five five, zero one."]),
        ('Stop!<emotion value="sad"/>I was here.', ["stop! i was here."]),
        ('One two <speed ratio="1.5"/>three.', ["one two", "three."]),
    ],
)
def test_a_pause_is_a_segment_of_its_own(text: str, expected: list[str | float]) -> None:
    segments = plan(text)
    assert outline(segments) == expected
    assert [segment.index for segment in segments] == list(range(len(segments)))
    assert outline(plan(*text)) == expected


TEXTS = st.lists(
    st.sampled_from(
        [
            "Hello there. ",
            "well, ",
            "one ",
            "two",
            "5 km ",
            "[pause 1s]",
            '<break time="20ms"/>',
            "</break>",
            "<",
            "[",
            "é ",
            ".",
        ]
    ),
    max_size=14,
).map("".join)


@settings(deadline=None)
@given(TEXTS, st.booleans(), st.data())
def test_words_are_places_of_the_text_as_sent(text: str, live: bool, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    made, now = planner(live), 0.0
    latest: dict[int, Segment] = {}
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        now += 0.05
        given = made.push(text[start:end], now)
        for segment in [*given, *made.tick(now)]:
            assert segment.index >= max(latest, default=0)  # one that is over does not come again
            latest[segment.index] = segment
    for segment in made.end(now):
        latest[segment.index] = segment
    assert sorted(latest) == list(range(len(latest)))
    assert made.num_chars == len(text)
    place = 0
    for index in sorted(latest):
        segment = latest[index]
        assert segment.final
        for word in segment.words:
            assert place <= word.start < word.end
            assert text[word.start : word.end] == word.text
            place = word.end
        if segment.silence_ms:
            assert text[segment.start : segment.end][:1] in "<["
            assert (segment.text, segment.words) == ("", ())


@settings(deadline=None)
@given(TEXTS, st.lists(st.integers(1, 5), max_size=40))
def test_any_split_gives_the_same_segments(text: str, sizes: list[int]) -> None:
    deltas, at = [], 0
    for size in sizes:
        deltas.append(text[at : at + size])
        at += size
    assert plan(*deltas, text[at:]) == plan(text)


def test_what_may_become_a_pause_waits_no_longer_than_a_stalled_stream() -> None:
    made = planner()
    assert made.push("<break", 1.0) == []
    assert made.next_deadline() == 2.0
    assert made.tick(1.9) == []
    assert outline(made.tick(2.0)) == ["break"]
    assert made.next_deadline() is None
    assert made.end(2.5) == []
    endless = PlannerFactory(LETTERS, 70, None).make("en")
    endless.push("[pau", 0.0)
    assert endless.next_deadline() is None
    assert outline(endless.flush(5.0)) == ["pau"]


def test_a_live_text_ends_its_open_segment_at_a_pause() -> None:
    made, given = planner(live=True), []
    text = "I would like to think about it [pause 1s] before I say anything"
    for number, word in enumerate(text.split()):
        given += made.push(word + " ", 0.1 * number)
    given += made.end(3.0)
    finals = [segment for segment in given if segment.final]
    assert outline(finals) == ["i would like to think about it", 1000.0, "before i say anything"]
    assert [segment.index for segment in finals] == [0, 1, 2]
    assert any(not segment.final and segment.index == 0 for segment in given)
    assert any(not segment.final and segment.index == 2 for segment in given)


def test_a_text_full_of_pauses_is_not_silent_for_hours() -> None:
    segments = plan("[pause 7s]" * 500 + "done")
    assert sum(segment.silence_ms for segment in segments) == MAX_SILENCE_MS
    assert (segments[-1].text.lower(), segments[-1].start) == ("done", 5000)


def test_what_cannot_be_spoken_is_told_by_its_place_in_the_text() -> None:
    made = planner()
    text = "Hello [pause 1s] \u4f60\u597d there."
    made.push(text, 0.0)
    made.end(0.0)
    ((start, end),) = made.take_skipped()
    assert text[start:end] == "\u4f60\u597d"


def test_cartesias_tags_change_what_follows_and_words_keep_their_places() -> None:
    text = 'A b. <speed ratio="1.5"/>C<volume ratio="0.5"/> d <spell>X-1</spell>.</speed> Now<emotion value="x"/>then.'
    for segments in (plan(text), plan(*text)):
        manners = [(segment.text.lower(), segment.speed, segment.volume) for segment in segments]
        assert manners == [
            ("a b.", 1.0, 1.0), ("c", 1.5, 1.0), ("d x dash one.", 1.5, 0.5), ("now then.", 1.0, 0.5),
        ]  # fmt: skip
        words = [word for segment in segments for word in segment.words]
        assert [word.text for word in words] == ["A", "b.", "C", "d", "X-1", "Now", "then."]
        assert all(text[word.start : word.end] == word.text for word in words)


@pytest.mark.parametrize("text", ["...", "\U0001f600", "*** ---", "<speak></speak>", '<break time="0s"/>'])
@pytest.mark.parametrize("live", [False, True])
def test_a_text_without_a_segment_is_filled_with_silence(text: str, live: bool) -> None:
    assert outline(plan(text)) == []
    made = FACTORY.make("en", live=live, fill_empty=True)
    segments = [*made.push(text, 0.0), *made.flush(0.0), *made.end(0.0), *made.end(0.0)]
    assert outline(segments) == [EMPTY_SPEECH_MS]
    assert (segments[0].start, segments[0].end) == (0, len(text))
    assert list(made.take_skipped()) == [(0, len(text))]
    assert list(made.take_skipped()) == []


def test_characters_by_number_may_be_skipped() -> None:
    made = planner()
    assert made.may_skip("<speak>Hello &#x1F600;</speak>")
    assert not made.may_skip("<speak>Hello &amp; goodbye</speak>")


def test_what_follows_a_filled_flush_is_spoken_in_its_place() -> None:
    made = FACTORY.make("en", fill_empty=True)
    text = "*** Hello there."
    segments = [*made.push(text[:4], 0.0), *made.flush(0.0)]
    assert list(made.take_skipped()) == [(0, 4)]
    segments += [*made.push(text[4:], 0.0), *made.flush(0.0), *made.end(0.0)]
    assert outline(segments) == [EMPTY_SPEECH_MS, "hello there."]
    assert text[segments[1].words[0].start : segments[1].words[-1].end] == "Hello there."
    assert list(made.take_skipped()) == []


@pytest.mark.parametrize("text", ["", " \n", "Hello.", "\U0001f600 Hello.", "[pause 1s]", "Hello. \U0001f600"])
def test_no_other_text_is_filled(text: str) -> None:
    made = FACTORY.make("en", fill_empty=True)
    assert outline([*made.push(text, 0.0), *made.end(0.0)]) == outline(plan(text))
    assert (0, len(text)) not in made.take_skipped()
