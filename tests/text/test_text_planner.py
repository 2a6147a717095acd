"""From deltas to speech segments: lengths, offsets, words, weights, stalls."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.text.normalizer import NormalizedText, Normalizer
from realtime_tts.text.planner import Planner, PlannerFactory, Segment
from realtime_tts.text.segmenter import SegmenterConfig
from realtime_tts.text.skipped import NONE
from realtime_tts.text.spoken import Span
from realtime_tts.text.words import place_words

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
SPELLING = Normalizer("en", LETTERS)
SHORT = SegmenterConfig(max_chars=70)


def plan(text: str, normalizer: Normalizer = SPELLING, config: SegmenterConfig = SHORT) -> list[Segment]:
    planner = Planner(normalizer, config)
    return [*planner.push(text, 0.0), *planner.end(0.0)]


def word_texts(text: str, normalizer: Normalizer = SPELLING) -> list[str]:
    return [word.text for segment in plan(text, normalizer) for word in segment.words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, big world!", ["Hello,", "big", "world!"]),
        ("Pay $3.50 now", ["Pay", "$3.50", "now"]),
        ("On March 3, 2024 we met", ["On", "March", "3,", "2024", "we", "met"]),
        ("one — two", ["one", "two"]),
        ("hi 😀 there 👍", ["hi", "there"]),
        ("**so** “it” (is)", ["**so**", "“it”", "(is)"]),
        ("yes—no", ["yes—no"]),
        ("- one\n- two", ["one", "two"]),
        ("Tom & Jerry", ["Tom", "&", "Jerry"]),
        ("5 km away", ["5", "km", "away"]),
    ],
)
def test_words_are_what_was_sent(text: str, words: list[str]) -> None:
    assert word_texts(text) == words


def test_cjk_characters_are_words() -> None:
    assert word_texts("我有3个，“好”的。OK", Normalizer("zh")) == ["我", "有", "3", "个，", "“好”", "的。", "OK"]


def test_a_word_weighs_as_much_as_its_reading() -> None:
    (segment,) = plan("in 1999 so, on")
    short, number, comma, last = (word.weight for word in segment.words)
    assert number > 5 * short
    assert comma > short
    assert last == pytest.approx(short)


def test_a_token_of_several_words_shares_its_weight() -> None:
    (segment,) = plan("March 3, 2024")
    whole = plan("2024-03-05")[0].words[0].weight
    assert sum(word.weight for word in segment.words) == pytest.approx(whole, abs=1.5)
    assert all(word.weight > 1 for word in segment.words)


SPELT = [
    ("I paid $5 million then", ["I", "paid", "five", "million dollars", "then"]),
    ("on March 3, 2024 it", ["on", "March", "third,", "twenty twenty-four", "it"]),
    ("yes—no so - on", ["yes, no", "so", "on"]),
    ("the U.S.'s 2025's 😀 best", ["the", "U S's", "twenty twenty-five's", "best"]),
    ("5 km and 5 – 10", ["five", "kilometers", "and", "five", "to", "ten"]),
    ("**so** <b>(it)</b> [12] is", ["so", "it", "is"]),
    ("5 \u00bd cups", ["five and a", "half", "cups"]),
]


@pytest.mark.parametrize(("text", "spoken"), SPELT)
def test_a_word_knows_its_reading(text: str, spoken: list[str]) -> None:
    (segment,) = plan(text)
    assert [segment.text[word.spoken_start : word.spoken_end] for word in segment.words] == spoken


@pytest.mark.parametrize("dash", [" – ", " - ", "–", "—"])
def test_a_range_of_amounts_is_one_however_it_arrives(dash: str) -> None:
    text = f"It costs $5{dash}$10 a month."
    for pieces in ([text], list(text), [f"It costs $5{dash}", "$10 a month."]):
        planner = Planner(SPELLING, SegmenterConfig(max_chars=70, first_min_chars=1, min_chars=1))
        segments = [segment for piece in pieces for segment in planner.push(piece, 0.0)] + planner.end(0.0)
        assert [segment.text for segment in segments] == ["It costs five to ten dollars a month."]


def test_a_reading_with_fewer_words_than_its_source_is_cut_within() -> None:
    part = NormalizedText("abcdef", "x y z", (Span(0, 6, 0, 5),), NONE * 5)
    words = place_words(part, 10)
    assert [(word.text, word.start, part.text[word.spoken_start : word.spoken_end]) for word in words] == [
        ("x", 10, "ab"),
        ("y", 12, "cd"),
        ("z", 14, "ef"),
    ]


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "!!! ???", "😀😀", "—", "\u200b", "((((", "Привет", "\x00\x01"])
def test_what_cannot_be_spoken_gives_no_segment(text: str) -> None:
    planner = Planner(SPELLING, SHORT, stall_flush_s=0.5)
    assert planner.push(text, 0.0) == []
    assert planner.end(0.0) == []
    assert planner.num_chars == len(text)
    assert planner.next_deadline() is None


def test_offsets_count_skipped_text() -> None:
    text = "😀 " * 100 + "Hello there. " + "🎉" * 80 + " And 1,234 more of them."
    segments = plan(text)
    assert [segment.index for segment in segments] == list(range(len(segments)))
    for segment in segments:
        for word in segment.words:
            assert text[word.start : word.end] == word.text
    assert [word.text for segment in segments for word in segment.words] == (
        ["Hello", "there.", "And", "1,234", "more", "of", "them."]
    )


@pytest.mark.parametrize(
    "text",
    [
        "It was 1,234,567 against 7,654,321 in 1999 and 2,345,678 in 2001.",
        "9" * 200,
        "$1,234,567.89 " * 20,
        "https://example.com/" + "/".join(f"part{n}" for n in range(60)),
        "ＡＢＣ" * 60,
        "x" * 1000,
        "ß" * 300,
    ],
)
def test_spoken_text_fits_however_much_it_grows(text: str) -> None:
    segments = plan(text)
    assert segments
    assert max(len(segment.text) for segment in segments) <= 70
    assert (segments[0].start, segments[-1].end) == (0, len(text))
    assert all(one.end == two.start for one, two in itertools.pairwise(segments))
    assert all(segment.words for segment in segments)


def test_grown_text_is_divided_at_pauses_and_between_words() -> None:
    spoken = [segment.text for segment in plan("It was 1,234,567 in 1999, but 2,345,678 in 2001.")]
    assert spoken == [
        "It was one million two hundred thirty-four thousand five hundred",
        "sixty-seven in nineteen ninety-nine,",
        "but two million three hundred forty-five thousand six hundred",
        "seventy-eight in two thousand one.",
    ]


def test_a_stalled_stream_is_flushed() -> None:
    planner = Planner(SPELLING, SHORT, stall_flush_s=0.5)
    planner.push("Let me check, ", 10.0)
    assert planner.next_deadline() == 10.5
    assert planner.tick(10.4) == []
    assert [segment.text for segment in planner.tick(10.5)] == ["Let me check,"]
    assert planner.next_deadline() is None
    assert planner.tick(99.0) == []


def test_a_stream_stalled_within_a_word_is_waited_for_twice_as_long() -> None:
    planner = Planner(SPELLING, SHORT, stall_flush_s=0.5)
    planner.push("Let me che", 10.0)
    assert planner.next_deadline() == 11.0
    planner.push("ck", 10.7)
    assert planner.tick(11.0) == []
    assert [segment.text for segment in planner.tick(11.7)] == ["Let me check"]


def test_without_a_stall_limit_pending_text_waits() -> None:
    planner = Planner(SPELLING, SHORT)
    planner.push("Hello", 0.0)
    assert planner.next_deadline() is None
    assert planner.tick(1e9) == []
    assert [segment.text for segment in planner.flush(1e9)] == ["Hello"]


def test_an_empty_delta_changes_nothing() -> None:
    planner = Planner(SPELLING, SHORT, stall_flush_s=1.0)
    planner.push("Hello", 0.0)
    assert planner.push("", 5.0) == []
    assert planner.next_deadline() == 2.0


def test_a_second_end_has_no_effect() -> None:
    planner = Planner(SPELLING)
    planner.push("Hi", 0.0)
    assert len(planner.end(0.0)) == 1
    assert planner.end(0.0) == []


def test_lone_surrogates_are_replaced_in_place() -> None:
    (segment,) = plan("one\ud800two é")
    assert [(word.text, word.start) for word in segment.words] == [("one", 0), ("two", 4), ("é", 8)]
    assert segment.text.encode()


PLAIN_WORDS = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9), min_size=1, max_size=60)


@given(words=PLAIN_WORDS, stops=st.lists(st.sampled_from(["", ",", ".", "!", "?"]), min_size=60, max_size=60))
@settings(max_examples=200, deadline=None)
def test_every_plain_word_is_spoken_once(words: list[str], stops: list[str]) -> None:
    sent = [word + stop for word, stop in zip(words, stops, strict=False)]
    assert word_texts(" ".join(sent), Normalizer("en")) == sent


@pytest.mark.parametrize(
    "unit",
    ["a@", "1,", "(", "a.", "x_", "9", "/a", "- ", " ", "[a", "](", "<b ", "A.", "a-", "http://", "1-", "1 ", "1:",
     "$1-", "+1", "'1", "a\u0301", "\u0301", "我", "我1", "`", '"', "—", "\n", "😀", "--a", "@a", "#a ", "U.S. ",
     "Jan 1 ", "5'", "1/2 ", "1.1", "*", "=", "x^", "word ", "+123456789012345 "]
)  # fmt: skip
def test_ten_thousand_hostile_characters_are_planned(unit: str) -> None:
    """The suite's time limit is what an exponential rule would run into; `test_text_work.py` counts the work."""
    text = (unit * 10_000)[:10_000]
    planner = Planner(SPELLING, SHORT)
    segments = planner.push(text[:8_000], 0.0)
    segments += [segment for char in text[8_000:] for segment in planner.push(char, 0.0)]
    segments += planner.end(0.0)
    live = Planner(SPELLING, SHORT, live=True)
    given = [segment for at, char in enumerate(text[:2_000]) for segment in live.push(char, at)]
    assert all(len(segment.text) <= 73 for segment in [*segments, *given])
    assert planner.num_chars == 10_000
    assert len(SPELLING.normalize(text).text) >= sum(len(segment.text) for segment in segments) * 0.5


def test_a_factory_makes_planners_within_the_models_limits() -> None:
    factory = PlannerFactory("abcdefghijklmnopqrstuvwxyz ,.", 40, None)
    planner = factory.make("en")
    segments = [*planner.push("Naïve words, forty two of them, and more words still. " * 3, 0.0), *planner.end(0.0)]
    assert max(len(segment.text) for segment in segments) <= 43
    assert set("".join(segment.text for segment in segments).lower()) <= set("abcdefghijklmnopqrstuvwxyz ,.")
    assert factory.make("en") is not planner
