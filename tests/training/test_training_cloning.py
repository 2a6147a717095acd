"""Cloning's figures: likeness as a share of the speaker's own, and pitch; no judge's weights are needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training import cloning
from training.cloning import Likeness, compare, read_speakers, split, summary
from training.speakers import SAMPLE_RATE_HZ
from training.teacher import AudioChunk


def tone(seconds: float, pitch_hz: float, rate_hz: int) -> np.ndarray:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return 0.2 * sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 6))


def test_recordings_are_read_by_speaker(tmp_path: Path) -> None:
    parts = [np.full(100 * (n + 1), n, np.int16) for n in range(3)]
    ends = np.cumsum([len(part) for part in parts])
    AudioChunk(
        np.concatenate(parts), ends, np.array([405, 404, 405], np.int32), ["a", "b", "c"], np.zeros((3, 2))
    ).save(tmp_path / "0.npz")
    found = read_speakers(tmp_path)
    assert {speaker: [text for text, _ in own] for speaker, own in found.items()} == {405: ["a", "c"], 404: ["b"]}
    assert len(found[405][1][1]) == 300


def test_the_reference_is_five_seconds_and_its_recordings_are_not_compared() -> None:
    second = SAMPLE_RATE_HZ
    recordings = [(str(n), np.full(2 * second, n, np.int16)) for n in range(5)]
    parts = split(recordings)
    assert parts is not None
    reference, others = parts
    assert len(reference) == 5 * second
    assert [text for text, _ in others] == ["3", "4"]
    assert split(recordings[:4]) is None


def test_likeness_is_a_share_of_the_speakers_own_and_ignores_the_same_text() -> None:
    own = [tone(1.0, 200, 16_000), tone(1.0, 210, 16_000)]
    cloned = [tone(1.0, 100, 16_000), tone(1.0, 105, 16_000)]
    angles = {id(audio): angle for audio, angle in zip((*own, *cloned), (0.0, 0.5, 0.5, 1.0), strict=True)}

    def embed(audio: np.ndarray) -> np.ndarray:
        return np.array([np.cos(angles[id(audio)]), np.sin(angles[id(audio)])], np.float32)

    found = compare(embed, own, cloned)
    # own texts differ by 0.5; each clone is compared with the other text: 0.5 to 0.5 is 0, 1.0 to 0.0 is 1
    assert found.likeness == pytest.approx((np.cos(0.0) + np.cos(1.0)) / 2 / np.cos(0.5), abs=1e-5)
    assert found.pitch_hz == pytest.approx(205, rel=0.05)
    assert found.cloned_pitch_hz == pytest.approx(102, rel=0.05)


def test_the_summary_has_the_mean_and_the_least_likeness_and_the_correlation_of_pitches() -> None:
    found = [Likeness(0.9, 100, 110), Likeness(1.0, 200, 220), Likeness(0.95, 150, 165)]
    assert summary(found) == "3 speakers: likeness 0.950 of their own, least 0.900; correlation of pitches 1.000"
    assert cloning.REFERENCE_S == 5.0
