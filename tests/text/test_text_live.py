"""Live planning: what is given early is the beginning of what is given when the segment is whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest
import test_text_normalizer_table as table
from hypothesis import given, settings
from hypothesis import strategies as st
from test_text_open import NORMALIZERS, TEXTS

from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import OPEN_STALL_S, Planner, PlannerFactory, Segment
from realtime_tts.text.segmenter import SegmenterConfig

SPELLING = table.SPELLING


def live(stall_flush_s: float | None = None, config: SegmenterConfig | None = None) -> Planner:
    return Planner(SPELLING, config, stall_flush_s, live=True)


def feed(planner: Planner, text: str, now: float = 0.0) -> list[Segment]:
    """Pushed character by character, a microsecond apart."""
    return [segment for at, char in enumerate(text) for segment in planner.push(char, now + at / 1e6)]


def told(segments: list[Segment]) -> list[tuple[int, str, bool]]:
    return [(segment.index, segment.text, segment.final) for segment in segments]


def test_a_segment_is_given_from_its_first_words_on_until_it_is_final() -> None:
    planner = live()
    assert told(feed(planner, "Let me check that for you, it")) == [
        (0, "Let me check", False),
        (0, "Let me check that", False),
        (0, "Let me check that for", False),
        (0, "Let me check that for you,", True),
    ]
    assert told(feed(planner, " should take a momen")) == [(1, "it should", False), (1, "it should take", False),
                                                           (1, "it should take a", False)]  # fmt: skip
    assert told(planner.end(0.0)) == [(1, "it should take a momen", True)]
    assert planner.end(0.0) == []


def test_words_follow_one_behind_the_text_since_a_pause_may_still_come() -> None:
    *_, open_segment = feed(live(), "We sat so (then")
    assert open_segment.text == "We sat so"
    assert [word.text for word in open_segment.words] == ["We", "sat"]
    assert (open_segment.start, open_segment.end) == (0, 9)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("Yes, of ", None),  # seven characters
        ("I do so ", None),
        ("Understandably so", None),
        ("it cost me $5", "it cost me"),
        ("it cost me $5 ", "it cost me"),
        ("it cost me $5 m", "it cost me"),
        ("we see it on St. Pau", "we see it on"),
        ("and this is [a link", "and this is"),
        ("and this is https://a.io/b", "and this is"),
        ("we are open Mon ", "we are open"),
        ("and this is *so* ", "and this is"),
        ("and this is 😀 so ", "and this is"),
        ("the API key ", None),
        ("the API key is ", None),
        ("the API key is i", "the A P I key is"),
    ],
)
def test_only_words_that_nothing_can_change_are_given(text: str, given: str | None) -> None:
    segments = feed(live(), text)
    assert (segments[-1].text if segments else None) == given


def test_few_words_are_given_at_once_when_they_are_all() -> None:
    planner = live()
    assert feed(planner, "Yes.") == []
    assert told(planner.flush(0.0)) == [(0, "Yes.", True)]


def test_text_that_is_whole_when_it_comes_is_given_whole() -> None:
    planner = live()
    assert told(planner.push("Let me check that. It will only take a moment of", 1.0)) == [
        (0, "Let me check that.", True)
    ]
    assert told(planner.end(1.0)) == [(1, "It will only take a moment of", True)]
    assert planner.next_deadline() is None


def test_slices_of_one_time_are_one_piece() -> None:
    planner = live()
    assert [planner.push(part, 1.0) for part in ("Let me ", "check that ", "for ", "you")] == [[]] * 4
    assert told(planner.end(1.0)) == [(0, "Let me check that for you", True)]


@pytest.mark.parametrize("blank", [" ", "\n"])
def test_a_blank_after_a_piece_is_no_stream(blank: str) -> None:
    planner = live()
    assert planner.push("Let me check that for you", 1.0) == []
    assert planner.push(blank, 1.01) == []
    assert told(planner.end(1.02)) == [(0, "Let me check that for you" + "." * (blank == "\n"), True)]


def test_words_after_a_short_clause_do_not_wait_for_its_sentence() -> None:
    *_, last = feed(live(), "Sure, I can help you wi")
    assert last.text == "Sure, I can help you"


def test_a_piece_whose_end_does_not_follow_is_begun_with() -> None:
    planner = live(stall_flush_s=0.5)
    assert planner.push("Let me check that for", 1.0) == []
    assert planner.next_deadline() == pytest.approx(1.03)
    assert planner.tick(1.02) == []
    assert told(planner.tick(1.03)) == [(0, "Let me check that", False)]
    assert planner.next_deadline() == 2.0  # it ended within a word
    assert planner.tick(1.9) == []
    assert told(planner.tick(2.0)) == [(0, "Let me check that for", True)]
    assert planner.next_deadline() is None


def test_a_piece_that_is_ended_in_time_is_not_begun_with() -> None:
    planner = live()
    planner.push("Let me check that for", 1.0)
    assert told(planner.end(1.01)) == [(0, "Let me check that for", True)]
    assert planner.tick(2.0) == []


def test_the_next_piece_tells_as_well_that_text_is_streamed() -> None:
    planner = live()
    planner.push("Let me check that for", 1.0)
    assert told(planner.push(" ", 1.01)) == []
    assert told(planner.push("you", 1.02)) == [(0, "Let me check that for", False)]
    assert planner.next_deadline() is None


def test_a_stalled_half_word_is_not_spoken_before_the_stall_limit() -> None:
    planner = live(stall_flush_s=0.5)
    assert told(feed(planner, "Let me see whe"))[-1] == (0, "Let me see", False)
    assert planner.tick(0.9) == []
    assert told(planner.tick(1.01)) == [(0, "Let me see whe", True)]
    assert told(feed(planner, "ther it is so", 1.1)) == [(1, "ther it is", False)]


def test_half_of_the_longest_segment_is_given_before_its_end_is_known() -> None:
    """Spoken text that is too long for one segment is divided, but never earlier than there."""
    planner = live(config=SegmenterConfig(max_chars=60))
    text = "they counted 1,234,567 of them in all the town and 7,654,321"
    *_, last = feed(planner, text)
    assert last.text == "they counted"
    final = planner.end(0.0)
    assert [segment.final for segment in final] == [True] * len(final)
    assert final[0].text.startswith(last.text)
    assert [segment.text for segment in final] == [
        segment.text for segment in whole(text, SegmenterConfig(max_chars=60))
    ]


def test_a_factory_makes_live_planners() -> None:
    planner = PlannerFactory(None, 200, None).make("en", live=True)
    assert [segment.final for segment in feed(planner, "Let me check it")] == [False]


def test_a_text_that_stalls_for_ever_does_not_hold_the_engine_for_ever() -> None:
    factory = PlannerFactory(None, 200, None)
    planner = factory.make("en", live=True)
    *_, opened = feed(planner, "Let me check it ", 5.0)
    assert not opened.final
    assert planner.next_deadline() == pytest.approx(5.0 + OPEN_STALL_S, abs=0.001)
    assert [segment.final for segment in planner.tick(5.1 + OPEN_STALL_S)] == [True]
    patient = factory.make("en")
    feed(patient, "Let me check it ", 5.0)
    assert patient.next_deadline() is None


def whole(
    text: str,
    config: SegmenterConfig | None = None,
    normalizer: Normalizer = SPELLING,
    flushes: Collection[int] = (),
) -> list[Segment]:
    """What the mode that waits gives, with a flush before some characters."""
    planner, found = Planner(normalizer, config), []
    for index, char in enumerate(text):
        found += planner.flush(0.0) if index in flushes else []
        found += planner.push(char, 0.0)
    return [*found, *planner.end(0.0)]


def check_growth(segments: list[Segment], text: str) -> None:
    """Each segment comes in order, ever longer, and at last final; all of what is given stands."""
    sent = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    before: Segment | None = None
    for segment in segments:
        spoken_end = 0
        for word in segment.words:
            assert sent[word.start : word.end] == word.text
            assert spoken_end <= word.spoken_start <= word.spoken_end <= len(segment.text)
            spoken_end = word.spoken_end
        if before is None or before.final:
            assert segment.index == (0 if before is None else before.index + 1)
            assert segment.final or (len(segment.text) >= 8 and segment.text == segment.text.strip())
        else:
            assert segment.index == before.index
            assert segment.start == before.start
            assert segment.text.startswith(before.text)
            assert segment.words[: len(before.words)] == before.words
            assert segment.final or (segment.end > before.end and len(segment.text) > len(before.text))
        before = segment
    assert before is None or before.final


CONFIGS = st.builds(
    SegmenterConfig,
    max_chars=st.integers(1, 90) | st.just(200),
    first_min_chars=st.integers(1, 30),
    min_chars=st.integers(1, 60),
    clause_chars=st.integers(1, 60) | st.just(120),
    max_word_chars=st.integers(1, 120) | st.just(300),
)
WORDS = """
    the a of and it was in to I We said that Dr. Smith March 3 $5 U.S. No. well, then: so. Yes! really? e.g. API 12
    (and more) — was-it etc. never over while which https://a.io/b
"""
ENGLISH = st.lists(st.sampled_from(WORDS.split()), min_size=3, max_size=70).map(" ".join)


@given(
    text=TEXTS | ENGLISH | st.text(max_size=60),
    normalizer=NORMALIZERS,
    config=CONFIGS,
    seed=st.integers(0, 2**32),
    longest=st.sampled_from([1, 3, 9, 40]),
    num_flushes=st.sampled_from([0, 0, 1, 3]),
)
@settings(max_examples=1000, deadline=None)
def test_whatever_the_split_what_is_given_early_is_how_the_whole_begins(
    text: str, normalizer: Normalizer, config: SegmenterConfig, seed: int, longest: int, num_flushes: int
) -> None:
    rng = random.Random(seed)
    flushes = {rng.randrange(len(text) + 1) for _ in range(num_flushes)}
    planner = Planner(normalizer, config, live=True)
    found, start, now = [], 0, 0.0
    while start < len(text):
        if start in flushes:
            found += planner.flush(now)
        end = min([start + rng.randint(1, longest), len(text), *(at for at in flushes if at > start)])
        found += planner.push(text[start:end], now)
        start, now = end, now + rng.choice([0.0, 0.1])
        found += planner.tick(now)
    found += planner.end(now)
    check_growth(found, text)
    assert [each for each in found if each.final] == whole(text, config, normalizer, flushes)


@pytest.mark.parametrize(
    "cut",
    [lambda text: [text], lambda text: list(text), lambda text: [part + " " for part in text.split(" ")]],
    ids=["whole", "characters", "words"],
)
def test_both_modes_leave_out_the_same(cut: Callable[[str], list[str]]) -> None:
    text = "Well 😀 then, see [this](http://x.y/z) Привет thing, 🎉 and more. And so on 👍 "
    found = []
    for planner in (Planner(SPELLING), live()):
        for piece in cut(text):
            planner.push(piece, 0.0)
        planner.end(0.0)
        found.append(planner.take_skipped())
    assert found[0] == found[1] == [(5, 6), (38, 44), (52, 53), (74, 75)]
