"""The benchmark of live text: turns on a clock of their own, and what is made of their figures."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from silent_start import assert_sent_from_its_onset

from benchmarks.live_quality import difference, held_out, summary
from benchmarks.live_turns import StepTime, TurnSpeaker
from benchmarks.offline import OfflineModel
from benchmarks.recognition import count_errors
from realtime_tts.bench.texts import tokens
from realtime_tts.contract.location import STARTER_VOICE, local_directory
from realtime_tts.model.checkpoint import load_model

TEXT = "the keys are on the table."


@functools.cache
def speaker() -> TurnSpeaker:
    return TurnSpeaker(load_model(str(local_directory(STARTER_VOICE))), StepTime(0.04, 0.0002))


def test_a_whole_turn_is_what_the_checkpoint_says_offline() -> None:
    turn, expected = speaker().whole(TEXT, "rms", 3), OfflineModel().speak(TEXT, seed=3, voice="rms")
    assert_sent_from_its_onset(turn.pcm, expected)
    assert turn.first_audio_s == pytest.approx(0.04 + 0.0002 * (len(TEXT) + 2))  # the voice's token, the text, its end
    assert (turn.num_segments, turn.num_extensions, turn.gap_s) == (1, 0, 0.0)


def test_a_live_turn_begins_with_the_first_words_and_waits_for_slow_ones() -> None:
    assert tokens(TEXT) == ["the", " keys", " are", " on", " the", " table", "."]
    fast, slow = (speaker().live(TEXT, "rms", 3, rate) for rate in (20.0, 2.0))
    for turn, rate in ((fast, 20.0), (slow, 2.0)):
        # Two words and eight letters are certain with the third token, or with the fourth that follows it.
        assert 2 / rate < turn.first_audio_s < 4 / rate + 0.06
        assert turn.num_extensions >= 1
        assert 0 < turn.extension_share < 0.3
    assert (fast.gap_s, fast.text_wait_s) == (0.0, 0.0)
    assert slow.gap_s >= slow.text_wait_s > 0.2
    again = speaker().live(TEXT, "rms", 3, 20.0)
    assert np.array_equal(again.pcm, fast.pcm)
    assert again.first_audio_s == pytest.approx(fast.first_audio_s)


@pytest.mark.parametrize(
    ("heard", "errors"),
    [("one two three", 0), ("one to three", 1), ("one three", 1), ("one two two three", 1), ("", 3), ("four", 3)],
)
def test_word_errors_are_the_fewest_that_explain_what_was_heard(heard: str, errors: int) -> None:
    assert count_errors("One, two: 3!", heard) == (errors, 3)


def row(number: int, voice: str, errors: tuple[int, int], **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"words": 10, "speech_s": 2.0, "pitch_octaves": 7.0, "pitch_spread_octaves": 0.2}
    values |= dict.fromkeys(("first_audio_s", "gap_s", "text_wait_s", "extensions", "extension_share", "too_long"), 0)
    values |= dict.fromkeys(("ends_cut", "ends_continued", "babbles", "skips", "repeats"), 0)
    whole, live = ({**values, "errors": count} for count in errors)
    return {"voice": voice, "number": number, "text": "", "whole": whole, "live": {**live, **changes}}


def test_a_difference_has_an_interval_that_takes_a_text_for_one_sample() -> None:
    same = [row(n, "a", (n % 3, n % 3)) for n in range(40)]
    assert difference(same) == (0.0, 0.0, 0.0)
    worse = [row(n, voice, (0, int(n < 10))) for n in range(40) for voice in ("a", "b")]
    points, low, high = difference(worse)
    assert points == pytest.approx(2.5)
    assert 1.0 < low < 2.0 < 3.0 < high < 4.2  # of 40 samples, not of 80
    assert difference(worse[::2])[1:] == (low, high)


def test_a_summary_counts_lengths_gaps_and_faults() -> None:
    rows = [row(n, "a", (1, 1)) for n in range(8)]
    rows += [row(8, "a", (1, 1), speech_s=1.5, gap_s=0.1), row(9, "a", (1, 1), gap_s=0.5, text_wait_s=0.4, skips=2)]
    figures = summary(rows)
    assert (figures["wer_whole"], figures["wer_live"], figures["within_length"]) == (10.0, 10.0, 90.0)
    assert (figures["with_gaps"], figures["with_text_waits"]) == (10.0, 10.0)
    assert figures["live_faults"]["skips"] == 2
    assert not any(figures["whole_faults"].values())


def test_sentences_are_taken_evenly() -> None:
    some, all_of_them = held_out(5, 0), held_out(1000, 0)
    assert [number for number, _ in some] == [0, 79, 158, 237, 316]
    assert all(all_of_them[number][1] == text for number, text in some)
    assert held_out(3, 310)[0] == all_of_them[310]
