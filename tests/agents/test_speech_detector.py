"""Speech by its loudness."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from script import ANSWERS, tokens
from speech_detector import SpeechDetector, level_db

RATE_HZ = 8000


def noise(ms: int, level: float) -> np.ndarray:
    return (np.random.default_rng(0).normal(0, level, RATE_HZ * ms // 1000)).clip(-32768, 32767).astype(np.int16)


def test_speech_begins_and_ends_once_it_has_lasted() -> None:
    detector = SpeechDetector(RATE_HZ)
    assert detector.feed(noise(1000, 30)) == []
    assert detector.feed(noise(60, 3000)) == []
    assert detector.feed(noise(20, 3000)) == ["started"]
    assert detector.changed_ms == detector.loud_ms == 80
    assert detector.feed(noise(380, 30)) == []
    assert detector.loud_ms == 80  # without the quiet since
    assert detector.feed(noise(20, 30)) == ["stopped"]
    assert not detector.speaking


@pytest.mark.parametrize("background", [0, 30, 300])
def test_a_click_and_steady_noise_are_no_speech(background: float) -> None:
    detector = SpeechDetector(RATE_HZ)
    detector.feed(noise(3000, background))
    assert detector.feed(np.concatenate([noise(40, 8000), noise(1000, background)])) == []


def test_a_room_that_becomes_louder_is_speech_for_a_while_only() -> None:
    detector = SpeechDetector(RATE_HZ)
    detector.feed(noise(1000, 100))
    assert detector.feed(noise(30_000, 1500)) == ["started", "stopped"]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30))
def test_the_cut_into_pieces_does_not_matter(sizes: list[int]) -> None:
    samples = np.concatenate([noise(200, 20), noise(300, 4000), noise(600, 20)])
    whole, pieces = SpeechDetector(RATE_HZ), SpeechDetector(RATE_HZ)
    changes, start = [], 0
    for size in sizes:
        changes += pieces.feed(samples[start : start + size])
        start += size
    changes += pieces.feed(samples[start:])
    assert changes == whole.feed(samples) == ["started", "stopped"]


def test_levels() -> None:
    assert level_db(np.zeros(100, np.int16)) == level_db(np.zeros(0, np.int16)) == -90.0
    assert level_db(np.full(100, 32767, np.int16)) == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("text", [*ANSWERS, "", "  ", "a\nb  c ", "extraordinarily"])
def test_tokens_are_the_text(text: str) -> None:
    assert "".join(tokens(text)) == text
    assert all(len(token) <= 6 for token in tokens(text))
