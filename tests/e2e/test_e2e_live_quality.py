"""Turns of live text on a simulated clock, and the count of word errors."""

from __future__ import annotations

import numpy as np
import pytest
from live_turns import StepTime, TurnSpeaker
from offline_model import OfflineModel
from silent_start import assert_sent_from_its_onset
from voices import OTHER_VOICE, SAMPLE_RATE_HZ, STARTER_DIRECTORY

from benchmarks.recognition import count_errors
from realtime_tts.bench.texts import tokens
from realtime_tts.model.checkpoint import load_model

TEXT = "the keys are on the table."


def speaker() -> TurnSpeaker:
    """It has measured no step yet."""
    return TurnSpeaker(load_model(STARTER_DIRECTORY), StepTime(0.04, 0.0002))


def test_a_whole_turn_is_what_the_checkpoint_says_offline() -> None:
    turn, expected = speaker().whole(TEXT, OTHER_VOICE, 3), OfflineModel().speak(TEXT, seed=3, voice=OTHER_VOICE)
    assert_sent_from_its_onset(turn.pcm, expected, SAMPLE_RATE_HZ)
    assert turn.first_audio_s == pytest.approx(0.04 + 0.0002 * (len(TEXT) + 2))  # the voice's token, the text, its end
    assert (turn.num_segments, turn.num_extensions, turn.gap_s) == (1, 0, 0.0)


def test_a_live_turn_begins_with_the_first_words_and_waits_for_slow_ones() -> None:
    assert tokens(TEXT) == ["the", " keys", " are", " on", " the", " table", "."]
    fast, slow = (speaker().live(TEXT, OTHER_VOICE, 3, rate) for rate in (20.0, 2.0))
    for turn, rate in ((fast, 20.0), (slow, 2.0)):
        # Two words and eight letters are certain with the third token, or with the fourth that follows it.
        assert 2 / rate < turn.first_audio_s < 4 / rate + 0.06
        assert turn.num_extensions >= 1
        assert 0 < turn.extension_share < 0.3
    assert (fast.gap_s, fast.text_wait_s) == (0.0, 0.0)
    assert slow.gap_s >= slow.text_wait_s > 0.2
    again = speaker().live(TEXT, OTHER_VOICE, 3, 20.0)
    assert np.array_equal(again.pcm, fast.pcm)
    assert again.first_audio_s == pytest.approx(fast.first_audio_s)


@pytest.mark.parametrize(
    ("heard", "errors"),
    [("one two three", 0), ("one to three", 1), ("one three", 1), ("one two two three", 1), ("", 3), ("four", 3)],
)
def test_word_errors_are_the_fewest_that_explain_what_was_heard(heard: str, errors: int) -> None:
    assert count_errors("One, two: 3!", heard) == (errors, 3)
