"""Word times from weights and audio lengths."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from session_driver import FakePlanner, FakeSegment, FakeWord

from realtime_tts.session.alignment import PRIOR_MS_PER_CHAR, WordAligner
from realtime_tts.session.messages import TimedWord


def aligner(*sentences: str) -> WordAligner:
    made, planner = WordAligner(1.0), FakePlanner()
    for sentence in sentences:
        for segment in planner.push(sentence, 0):
            made.put_segment(segment)
    return made


def times(words: list[TimedWord]) -> list[tuple[str, float, float]]:
    return [(word.text, round(word.start_ms, 3), round(word.end_ms, 3)) for word in words]


def test_words_of_a_finished_segment_share_its_audio_by_weight() -> None:
    words = aligner("One four, abc.")
    words.progress(0, 1000, done=True)
    assert times(words.commit_until(20)) == [("One", 0, 300), ("four", 300, 700), ("abc", 700, 1000)]
    assert words.commit_until(math.inf) == []


def test_a_word_of_an_unfinished_segment_comes_when_its_audio_is_about_to_leave() -> None:
    words = aligner("One four, abc.")
    words.progress(0, 500, done=False)
    estimate = 14 * PRIOR_MS_PER_CHAR
    assert times(words.commit_until(20)) == [("One", 0, estimate * 0.3)]
    assert words.commit_until(estimate * 0.3) == []
    assert [w.text for w in words.commit_until(estimate * 0.3 + 1)] == ["four"]


def test_what_an_estimate_got_wrong_the_words_after_it_bear() -> None:
    words = aligner("One four, abc.")
    words.commit_until(20)
    words.progress(0, 273 + 700, done=True)
    assert times(words.commit_until(300)) == [("four", 273, 673), ("abc", 673, 973)]


def test_a_segment_longer_than_its_estimate_stretches_the_rest() -> None:
    words = aligner("One four, abc.")
    words.commit_until(20)
    words.progress(0, 3273, done=False)
    assert times(words.commit_until(300)) == [("four", 273, pytest.approx(273 + 3000 * 4 / 7, abs=0.001))]


def test_a_segment_shorter_than_what_was_promised_squeezes_the_rest_to_nothing() -> None:
    words = aligner("One four, abc.", "Next.")
    words.commit_until(300)
    words.progress(0, 100, done=True)
    words.progress(1, 900, done=True)
    committed = words.commit_until(math.inf)
    assert [w.text for w in committed] == ["abc", "Next"]
    assert committed[0].start_ms == committed[0].end_ms == pytest.approx(637)
    assert (committed[1].start_ms, committed[1].end_ms) == (pytest.approx(637), pytest.approx(1000))


def test_segments_follow_on_each_other_at_their_real_lengths() -> None:
    words = aligner("One.", "Two.")
    words.progress(0, 400, done=True)
    words.progress(1, 600, done=True)
    assert times(words.commit_until(400)) == [("One", 0, 400)]
    assert times(words.commit_until(401)) == [("Two", 400, 1000)]


def test_nothing_of_a_segment_comes_before_the_one_before_it_is_done() -> None:
    words = aligner("One.", "Two.")
    words.progress(0, 400, done=False)
    assert [w.text for w in words.commit_until(10_000)] == ["One"]
    words.progress(1, 400, done=False)
    assert words.commit_until(10_000) == []


def test_the_rate_of_finished_segments_sets_the_estimate_of_the_next() -> None:
    slow, planner = WordAligner(1.0), FakePlanner()
    for segment in planner.push("x" * 399 + "." + "One four, abc.", 0):
        slow.put_segment(segment)
    slow.progress(0, 400 * 130, done=True)
    slow.commit_until(400 * 130)
    [word] = slow.commit_until(400 * 130 + 1)
    assert 0.3 * 14 * 115 < word.end_ms - word.start_ms < 0.3 * 14 * 130


def test_words_without_weight_and_segments_without_audio_lose_nothing() -> None:
    words = WordAligner(1.0)
    words.put_segment(FakeSegment(0, "a b", 0, 3, (FakeWord("a", 0, 1, 0), FakeWord("b", 2, 3, 0))))
    words.put_segment(FakeSegment(1, "c", 3, 4, (FakeWord("c", 3, 4, 1),)))
    words.progress(0, 300, done=True)
    words.progress(1, 0, done=True)
    assert times(words.commit_until(math.inf)) == [("a", 0, 300), ("b", 300, 300), ("c", 300, 300)]


def test_heard_is_the_last_word_that_was_heard_to_its_end() -> None:
    words = aligner("One four, abc.")
    words.progress(0, 1000, done=True)
    words.commit_until(20)
    assert [words.heard_chars(ms) for ms in (0, 299, 300, 699, 700, 999, 1000)] == [0, 0, 3, 3, 8, 8, 13]


def test_progress_never_falls_and_stops_with_done() -> None:
    words = aligner("One.")
    words.progress(0, 500, done=False)
    words.progress(0, 300, done=True)
    words.progress(0, 900, done=True)
    assert times(words.commit_until(1)) == [("One", 0, 500)]


def test_finish_gives_the_words_of_segments_that_are_not_done() -> None:
    words = aligner("One.", "Two.")
    words.progress(0, 500, done=False)
    words.finish()
    assert times(words.commit_until(math.inf)) == [("One", 0, 500), ("Two", 500, 500)]


def test_segments_out_of_order_are_a_callers_mistake() -> None:
    words = aligner("One.")
    with pytest.raises(ValueError, match="segment 0 has lost words"):
        words.put_segment(FakeSegment(0, "x", 0, 1, ()))
    with pytest.raises(ValueError, match="unknown segment"):
        words.progress(-1, 0, done=False)


@pytest.mark.parametrize("seed", range(20))
def test_however_progress_and_sending_interleave_words_keep_their_order(seed: int) -> None:
    source = random.Random(seed)
    text = " ".join("x" * source.randint(1, 9) + source.choice(["", "."]) for _ in range(60)) + " end."
    words = aligner(text)
    lengths = [source.uniform(0, 4000) for _ in range(text.count("."))]
    committed: list[TimedWord] = []
    sent_ms, base_ms = 0.0, 0.0
    for index, length in enumerate(lengths):
        made = 0.0
        while made < length:
            made = min(length, made + source.uniform(10, 900))
            words.progress(index, made, done=made == length)
            sent_ms = max(sent_ms, min(base_ms + made, sent_ms + source.uniform(0, 1000)))
            committed += words.commit_until(sent_ms)
        base_ms += length
        words.progress(index, length, done=True)
    committed += words.commit_until(math.inf)
    assert [w.text for w in committed] == [w.strip(".") for w in text.split() if w.strip(".")]
    assert all(text[w.start : w.end] == w.text for w in committed)
    edges = [ms for w in committed for ms in (w.start_ms, w.end_ms)]
    assert edges == sorted(edges)


# ---- measured ----------------------------------------------------------------------------------------------------


def measured(text: str, audio_ms: float, *points: tuple[float, float], done: bool = True) -> WordAligner:
    words = aligner(text)
    for point in points:
        words.progress(0, point[0], done=False, reached=point)
    words.progress(0, audio_ms, done=done)
    return words


def test_a_measured_word_begins_when_its_first_character_is_reached() -> None:
    words = measured("One four, abc.", 1400, (400, 4), (900, 9), (1100, 10))
    assert times(words.commit_until(20)) == [("One", 0, 400), ("four", 400, 900), ("abc", 1100, 1362.5)]


def test_a_pause_belongs_to_no_measured_word() -> None:
    words = measured("One four.", 3000, (300, 3), (2000, 3), (2100, 4), (2500, 8))
    assert times(words.commit_until(20)) == [("One", 0, 550), ("four", 2100, 2750)]


def test_measured_words_wait_for_the_packet_in_which_they_begin() -> None:
    words = measured("One four, abc.", 900, (400, 4), (800, 8), done=False)
    assert times(words.commit_until(400)) == [("One", 0, 400)]
    assert times(words.commit_until(401)) == [("four", 400, 900)]
    assert words.commit_until(900) == []


def test_what_lies_behind_the_last_point_goes_on_at_the_pace_of_before() -> None:
    words = measured("One four, abc.", 900, (400, 4), (800, 8), done=False)
    words.commit_until(401)
    assert times(words.commit_until(1001)) == [("abc", 1000, 1350)]  # two characters of 100 ms after 800


def test_without_points_yet_a_usual_pace_is_taken() -> None:
    words = measured("One four, abc.", 160, (58, 0.5), done=False)
    word = words.commit_until(20)[0]
    assert (word.text, word.start_ms, word.measured) == ("One", 0, True)
    assert word.end_ms == pytest.approx(58 + 3.5 * PRIOR_MS_PER_CHAR)


def test_at_the_end_the_rest_of_the_text_has_been_spoken() -> None:
    words = measured("One four, abc.", 1400, (400, 4), (800, 8))
    assert times(words.commit_until(20))[2] == ("abc", 1000, 1350)


def test_points_that_go_back_or_lie_outside_change_nothing() -> None:
    words = measured("One four, abc.", 1400, (-50, 0), (400, 4), (300, 6), (800, 3), (800, 8), (1000, 99))
    approx = pytest.approx
    assert times(words.commit_until(20)) == [
        ("One", 0, 400),
        ("four", 400, approx(833.333)),
        ("abc", approx(866.667), approx(983.333)),
    ]


def test_what_was_heard_ends_with_the_last_measured_word_that_did() -> None:
    words = measured("One four, abc.", 1400, (400, 4), (800, 8), (1000, 10), (1300, 13))
    words.commit_until(math.inf)
    assert [words.heard_chars(ms) for ms in (399, 400, 899, 900, 1349, 1350)] == [0, 3, 3, 8, 8, 13]


def test_segments_with_and_without_points_follow_each_other() -> None:
    words = aligner("One.", "Two.")
    words.progress(0, 400, done=False, reached=(300, 3))
    words.progress(0, 500, done=True)
    words.progress(1, 600, done=True)
    given = words.commit_until(math.inf)
    assert times(given) == [("One", 0, 400), ("Two", 500, 1100)]
    assert [word.measured for word in given] == [True, False]


@pytest.mark.parametrize("seed", range(60))
def test_measured_words_come_once_in_order_and_their_times_never_go_back(seed: int) -> None:
    """With the ends that are corrected, which are those that the aligner has itself."""
    dice = random.Random(seed)
    text = " ".join("abcdefgh"[: dice.randint(1, 8)] for _ in range(12)) + "."
    words, given, sent_ms, made_ms, char = aligner(text), list[TimedWord](), 0.0, 0.0, 0.0

    def commit(until_ms: float) -> None:
        committed = words.commit_until(until_ms)
        if words.previous_end_ms is not None:
            given[-1] = replace(given[-1], end_ms=words.previous_end_ms)
        given.extend(committed)

    while char < len(text):
        made_ms += 160
        char += dice.choice((0, 0.5, 2, 5, 11))
        known = dice.random() < 0.9
        words.progress(0, made_ms, done=False, reached=(made_ms - 102, char) if known else None)
        while sent_ms < made_ms and dice.random() < 0.9:
            sent_ms = min(made_ms, sent_ms + dice.choice((20, 20, 20, 500)))
            commit(sent_ms)
    words.progress(0, made_ms, done=True)
    commit(math.inf)
    assert [word.text for word in given] == text.removesuffix(".").split()
    assert [word.end_ms for word in given] == pytest.approx(list(words._ends_ms), abs=0.5)
    assert all(word.end_ms >= word.start_ms >= 0 for word in given)
    for earlier, later in itertools.pairwise(given):
        assert later.start_ms >= earlier.start_ms
        assert later.end_ms >= earlier.end_ms


def test_the_end_of_a_word_is_measured_by_the_time_the_next_one_begins() -> None:
    words = measured("One four, abc.", 320, (200, 2), done=False)
    assert times(words.commit_until(20)) == [("One", 0, 330)]  # at a usual pace
    assert words.previous_end_ms is None
    words.progress(0, 800, done=False, reached=(700, 5))
    assert [word.text for word in words.commit_until(640)] == ["four"]
    assert words.previous_end_ms == pytest.approx(533.333)
    assert (words.heard_chars(530), words.heard_chars(534)) == (0, 3)
    assert words.settle_end() is None


def test_the_end_of_the_last_word_is_measured_by_the_end_of_the_audio() -> None:
    words = measured("One four.", 500, (400, 4), done=False)
    words.commit_until(500)
    words.progress(0, 1000, done=False, reached=(900, 8))
    words.progress(0, 1200, done=True)
    assert words.settle_end() == 1050
    assert words.settle_end() is None
    assert words.word_end_ms(1000) == 1050


def test_how_much_of_a_word_was_heard() -> None:
    words = measured("One four.", 3000, (300, 3), (2000, 3), (2100, 4), (2500, 8))
    words.commit_until(math.inf)
    assert [words.word_share(ms) for ms in (0, 275, 550, 1000, 2100, 2425, 2750)] == [0, 0.5, 0, 0, 0, 0.5, 0]


# ---- segments that grow --------------------------------------------------------------------------------------------


def part(text: str, num_words: int | None = None) -> FakeSegment:
    """The first words of a segment that is not final; without a number, the whole."""
    (whole,) = FakePlanner().push(text, 0)
    return whole if num_words is None else replace(whole, words=whole.words[:num_words], final=False)


def test_a_segment_that_grows_gives_each_word_once() -> None:
    text, words = "One four, abc.", WordAligner(1.0)
    words.put_segment(part(text, 1))
    words.progress(0, 320, done=False, reached=(320, 4.5))
    assert [word.text for word in words.commit_until(320)] == ["One"]
    words.put_segment(part(text, 2))
    assert [word.text for word in words.commit_until(320)] == ["four"]
    words.progress(0, 900, done=False, reached=(900, 9))
    assert words.commit_until(900) == []
    words.put_segment(part(text))
    words.progress(0, 1400, done=True, reached=(1400, 14))
    assert times(words.commit_until(1400)) == [("abc", 1000, 1350)]
    assert (words.num_done, words.num_bytes) == (1, 72)
    words.put_segment(part(text))  # nothing waits for it any more


def test_a_segment_that_grows_without_points_is_estimated_as_far_as_it_is_known() -> None:
    text, words = "One four, abc.", WordAligner(1.0)
    words.put_segment(part(text, 0))
    assert words.commit_until(100) == []
    words.put_segment(part(text, 1))
    assert times(words.commit_until(20)) == [("One", 0, 3 * PRIOR_MS_PER_CHAR)]
    assert words.commit_until(400) == []
    words.put_segment(part(text))
    words.progress(0, 895, done=True)
    assert times(words.commit_until(400)) == [("four", 195, 595), ("abc", 595, 895)]


def test_an_update_that_loses_words_or_means_no_segment_is_a_callers_mistake() -> None:
    words = aligner("One four, abc.")
    with pytest.raises(ValueError, match="lost words"):
        words.put_segment(part("One four, abc.", 2))
    with pytest.raises(ValueError, match="unknown segment 2"):
        words.put_segment(replace(part("One."), index=2))


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_that_grows_ends_with_the_words_of_the_whole(seed: int) -> None:
    """Its text stays ahead of the speech, as the engine waits for it: the times are those of the whole too."""
    dice = random.Random(seed)
    text = " ".join("abcdefgh"[: dice.randint(1, 8)] for _ in range(12)) + "."
    whole, grown = aligner(text), WordAligner(1.0)
    num_known, made_ms, char = 1, 0.0, 0.0
    grown.put_segment(part(text, num_known))
    given: tuple[list[TimedWord], list[TimedWord]] = ([], [])
    while char < len(text):
        made_ms += 160
        char += dice.choice((0, 0.5, 2, 5))
        while num_known < 12 and (part(text).words[num_known - 1].spoken_start <= char + 8 or dice.random() < 0.3):
            num_known += 1
        grown.put_segment(part(text, num_known))
        for words, found in zip((whole, grown), given, strict=True):
            words.progress(0, made_ms, done=False, reached=(made_ms, char))
            found += words.commit_until(made_ms)
    grown.put_segment(part(text))
    for words, found in zip((whole, grown), given, strict=True):
        words.progress(0, made_ms, done=True)
        found += words.commit_until(math.inf)
    assert given[0] == given[1]
    assert [word.text for word in given[1]] == text.removesuffix(".").split()
