"""The evaluation's measures, on signals whose true values are known; and the teacher, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.recognition import plain_words, word_error_rate
from training.spectral import SpectralLoss, mel_filters
from training.speech_metrics import jumps_at, pitch, speech_seconds

SEAMS = range(2560, 15_000, 2560)


def buzz(seconds: float, pitch_hz: float) -> np.ndarray:
    t = np.arange(int(seconds * 16000)) / 16000
    return (3000 * sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 8))).astype(np.int16)


@pytest.mark.parametrize("pitch_hz", [85.0, 130.0, 210.0, 320.0])
def test_pitch_of_a_buzz_is_its_own(pitch_hz: float) -> None:
    assert np.median(pitch(buzz(0.5, pitch_hz))) == pytest.approx(pitch_hz, rel=0.02)


def test_noise_has_no_pitch() -> None:
    noise = np.random.default_rng(0).normal(0, 3000, 16000).astype(np.int16)
    assert len(pitch(noise)) < 5


def test_speech_is_measured_without_the_silence_around_it() -> None:
    padded = np.pad(buzz(1.0, 120), (8000, 4000))
    assert speech_seconds(padded) == pytest.approx(1.0, abs=0.02)
    assert speech_seconds(np.zeros(16000, np.int16)) == 0.0


def test_a_click_at_a_seam_is_seen_and_a_clean_seam_is_not() -> None:
    clean = buzz(1.0, 120)
    assert jumps_at(clean, SEAMS).max() < 0.1
    broken = clean.copy()
    broken[2560:] = np.clip(broken[2560:].astype(int) + 12000, -32768, 32767)
    assert jumps_at(broken, SEAMS).max() > 0.5


def test_a_voice_s_pulse_on_a_seam_is_no_click_but_a_click_between_pulses_is() -> None:
    wave = np.zeros(8000)
    wave[::160] = 1.0
    pulses = (8_000 * np.convolve(wave, np.exp(-np.arange(60) / 12))[:8000]).astype(np.int16)
    assert jumps_at(pulses, SEAMS[:2]).max() < 0.1
    pulses[2640:2700] += np.linspace(20_000, 0, 60).astype(np.int16)
    assert jumps_at(pulses, [seam + 80 for seam in SEAMS[:2]]).max() > 0.5


def test_word_error_rate_weighs_texts_by_their_words() -> None:
    assert plain_words("Twenty-one, please: it's 21!") == "twenty one please it's twenty one"
    assert word_error_rate(["one two three", "four."], ["one two three", "five"]) == 0.25


def test_mel_filters_leave_no_bin_empty() -> None:
    for bins, size in ((10, 64), (40, 640), (128, 2048)):
        assert (mel_filters(bins, size).sum(1) > 0).all()


def test_spectral_loss_is_zero_for_equal_waves_and_survives_silence() -> None:
    loss = SpectralLoss()
    wave = torch.from_numpy(buzz(0.4, 120)).float()[None] / 32768
    assert loss(wave, wave)[0].item() == 0
    silent = torch.zeros_like(wave, requires_grad=True)
    loss(silent, wave)[0].backward()
    assert torch.isfinite(silent.grad).all()
