"""Where the stream is cut; and that the cut does not depend on how the text arrived."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from realtime_tts.text.segmenter import Segmenter, SegmenterConfig, TextSegment

EAGER = SegmenterConfig(max_chars=200, first_min_chars=1, min_chars=1)
SHORT = SegmenterConfig(max_chars=70)


def segment(text: str, config: SegmenterConfig | None = None) -> list[TextSegment]:
    segmenter = Segmenter(config)
    return [*segmenter.push(text), *segmenter.flush()]


def texts(text: str, config: SegmenterConfig | None = None) -> list[str]:
    return [each.text.strip() for each in segment(text, config)]


# `|` marks every place where the most eager setting cuts.
SENTENCE_CUTS = [
    "One. |Two! |Three? |Four",
    "Wait... |What",
    "Well... |maybe so",
    "“Stop!” |He did",
    "He said “stop.” |Then left",
    "(It was late.) |We left",
    "“Really?” |she asked",
    "Dr. Smith and Mr. J. R. Jones met",
    "fruit, |e.g. this",
    "the U.S. Army base",
    "in the U.S. |The end",
    "by Acme Inc. |However it was",
    "by Acme Inc. Paris",
    "at 5 p.m. |Then we left",
    "it ended at approx. five",
    "pi is 3.14 and v2.0.1 is out. |Good",
    "No. |That is wrong",
    "see No. 5 and fig. 3 here",
    "It is in Apt. 4B and Rm. 12 here",
    "on Sat. 3 May",
    "the warm sun. |It shone",
    "Plan B. |Then rest",
    "one, |two; |three: |four",
    "March 3, 2024",
    "1,000 men",
    "yes — |really",
    "yes—|really",
    "yes - |really",
    "open Mon – Fri, |Jan—Mar and Sat. - Sun. only",
    "5 – 10 men",
    "from $5 – $10, |€5 - €10 or $5—$10 a month",
    "# Title\n|Text goes on",
    "a line that is\nonly wrapped",
    "two paragraphs\n\n|here",
    "List:\n|- one\n|- two",
    "1. Buy milk\n|2. Drink it",
    "It costs 5. |Next",
    "Great 😀 |Next",
    "Great! |😀 |Next",
    "call `f(a, b); g()` now",
    "see https://a.io/x?a=1,2;b.c now",
    "你好，|世界。|今天很好！|走吧？|好；|是",
    "「你好。」|他说。|「好。」|走",
    "say *this.* |Then that",
    "[note: |this]",
]


@pytest.mark.parametrize("marked", SENTENCE_CUTS)
def test_cuts_after_sentences_and_clauses(marked: str) -> None:
    eager = SegmenterConfig(first_min_chars=1, min_chars=1, clause_chars=1)
    segments = segment(marked.replace("|", ""), eager)
    assert "|".join(each.text for each in segments) == marked


def test_first_segment_comes_at_the_first_clause_that_is_long_enough() -> None:
    segmenter = Segmenter()
    assert segmenter.push("Well, I think that is right,") == []
    assert [each.text for each in segmenter.push(" b")] == ["Well, I think that is right, "]


def test_tiny_sentences_are_merged_with_what_follows() -> None:
    assert texts("Yes. I can do that now. ")[0] == "Yes. I can do that now."
    assert texts("Oh. No. Hm. Ah.") == ["Oh. No. Hm. Ah."]


def test_later_segments_grow() -> None:
    lengths = [len(each) for each in texts("This is one sentence. " * 20)]
    assert lengths[0] < 25
    assert lengths[0] < lengths[1] < lengths[2]
    assert max(lengths) <= 200


def test_a_clause_ends_a_later_segment_only_when_it_is_long() -> None:
    found = texts("Here is the first. Here, after a short clause, is a sentence that goes on, on and on, to its end.")
    assert found == [
        "Here is the first.",
        "Here, after a short clause, is a sentence that goes on, on and on, to its end.",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a sentence of some length, with a clause that goes on well beyond the limit", "a sentence of some length,"),
        (
            "a very long sentence without any punctuation that goes on and on for quite some time",
            "a very long sentence without any punctuation that goes on and on",
        ),
        ("x" * 40 + " " + "y" * 40, "x" * 40),
        (
            "the people of the village all came to see the parade on the day of March 3",
            "the people of the village all came to see the parade on the day",
        ),
    ],
)  # fmt: skip
def test_overlong_text_is_cut_at_the_best_place(text: str, first: str) -> None:
    config = SegmenterConfig(max_chars=70, first_min_chars=70)
    assert texts(text, config)[0] == first


def test_a_long_word_stays_whole_up_to_its_own_limit() -> None:
    url = "https://example.com/" + "a" * 100
    assert texts(f"See {url} now please", SHORT) == [f"See {url}", "now please"]
    assert [len(each) for each in texts("x" * 700, SHORT)] == [300, 300, 100]


def test_short_words_before_one_that_is_too_long_stay_together() -> None:
    assert [len(each) for each in texts("See it at " + "x" * 400, SHORT)] == [9, 300, 100]


def test_text_is_sure_up_to_the_last_gap_that_no_earlier_one_beats() -> None:
    segmenter = Segmenter(SegmenterConfig(max_chars=120, first_min_chars=60))
    segmenter.push("one two th")
    assert segmenter.sure_text(0) == "one two "
    segmenter.push("ree four, five six of the March 3 se")
    assert segmenter.sure_text(4) == "two three four, five six of the "
    segmenter.push("ven, and")
    assert segmenter.sure_text(4) == "two three four, five six of the March 3 seven, "
    segmenter.push(" eight n")
    assert segmenter.sure_text(4) == "two three four, five six of the March 3 seven, "
    segmenter.flush()
    assert segmenter.sure_text(0) == ""


def test_cjk_text_is_cut_between_characters() -> None:
    found = texts("汉" * 150, SHORT)
    assert [len(each) for each in found] == [70, 70, 10]


def test_flush_emits_what_is_pending_and_starts_early_again() -> None:
    segmenter = Segmenter()
    segmenter.push("This is a first sentence of text. And a second one ")
    assert [each.text for each in segmenter.flush()] == ["And a second one "]
    assert segmenter.flush() == []
    assert [each.text for each in segmenter.push("Here we go. A")] == []
    assert [each.text for each in segmenter.push("nd there we are, b")] == ["Here we go. And there we are, "]


def test_counts_what_is_pending() -> None:
    segmenter = Segmenter()
    segmenter.push("  \n")
    assert (segmenter.num_chars, segmenter.has_words) == (3, False)
    segmenter.push("It goes on for a while. Then")
    assert (segmenter.num_chars, segmenter.has_words) == (31, True)


@pytest.mark.parametrize(
    ("text", "mid_word"),
    [
        ("", False), ("hel", True), ("hello ", False), ("hello.", False), ("hello,", False), ("3.", True),
        ("it'", True), ("$", True), ("e\u0301", True), (".", False), ("hi!", False), ("hi)", False),
    ],
)  # fmt: skip
def test_knows_whether_the_last_word_may_go_on(text: str, mid_word: bool) -> None:
    segmenter = Segmenter()
    segmenter.push(text)
    assert segmenter.ends_mid_word is mid_word


def test_white_space_floods_are_one_space() -> None:
    text = "a" + " " * 5000 + "b" + " " * 5000 + "c."
    assert texts(text, SHORT) == [text]


PIECES = st.sampled_from(
    ["word", "a", "The", " ", "  ", ". ", ".", ", ", "! ", "?", "\n", "\n\n", "U.S.", "Dr. ", "e.g. ", "etc. ", "3.14",
     "5", "—", " - ", "…", "“", "”", ")", "`", "`a, b`", "https://a.io/b?c,d ", "你好", "。", "，", "「", "」", "😀",
     "e\u0301", "It ", "J. ", "\u200d", "*", "- "]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=60).map("".join)
CONFIGS = st.builds(
    SegmenterConfig,
    max_chars=st.integers(1, 90),
    first_min_chars=st.integers(1, 30),
    min_chars=st.integers(1, 60),
    clause_chars=st.integers(1, 60),
    max_word_chars=st.integers(1, 120),
)


@given(text=TEXTS, config=CONFIGS, seed=st.integers(0, 2**32))
@example(text="in the U.S. The end of the U.S. Army, e.g. this. " * 4, config=SHORT, seed=1)
@settings(max_examples=300, deadline=None)
def test_any_split_of_the_stream_gives_the_same_segments(text: str, config: SegmenterConfig, seed: int) -> None:
    whole = segment(text, config)
    rng = random.Random(seed)
    segmenter, found, start = Segmenter(config), [], 0
    while start < len(text):
        end = start + rng.randint(0, 7)
        found += segmenter.push(text[start:end])
        start = end
    found += segmenter.flush()
    assert found == whole


@given(text=TEXTS, config=CONFIGS)
@settings(max_examples=300, deadline=None)
def test_segments_tile_the_stream(text: str, config: SegmenterConfig) -> None:
    offset = 0
    for each in segment(text, config):
        assert (each.start, each.end) == (offset, offset + len(each.text))
        assert text[each.start : each.end] == each.text
        offset = each.end
    assert offset == len(text)


@given(text=TEXTS, config=CONFIGS)
@settings(max_examples=300, deadline=None)
def test_a_segment_is_overlong_only_for_one_word(text: str, config: SegmenterConfig) -> None:
    for each in segment(text, config):
        visible = len(" ".join(each.text.split()))
        longest = max(map(len, each.text.split()), default=0)
        assert visible <= max(config.max_chars, config.max_word_chars, longest) + config.max_chars


def test_ten_thousand_deltas_equal_one_message() -> None:
    text = ("The quick brown fox, e.g. this one, jumps over 3.14 lazy dogs in the U.S. Then it rests. " * 120)[:10_000]
    segmenter = Segmenter(SHORT)
    found = [each for char in text for each in segmenter.push(char)]
    assert [*found, *segmenter.flush()] == segment(text, SHORT)
