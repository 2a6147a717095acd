"""The evaluation's measures, on signals whose true values are known; and the teacher, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.recognition import plain_words, word_error_rate
from training.flite import NAMED_SPEAKERS, VOICES, Flite, Speaker, pseudo_speakers, trim, utterance, warped_alpha
from training.formants import Reading, formants
from training.spectral import SpectralLoss, mel_filters
from training.speech_metrics import align, distances, pitch, rank_correlation, seam_jumps, speech_seconds


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
    assert seam_jumps(clean, 2560).max() < 0.1
    broken = clean.copy()
    broken[2560:] = np.clip(broken[2560:].astype(int) + 12000, -32768, 32767)
    assert seam_jumps(broken, 2560).max() > 0.5


def test_a_voice_s_pulse_on_a_seam_is_no_click_but_a_click_between_pulses_is() -> None:
    wave = np.zeros(8000)
    wave[::160] = 1.0
    pulses = (8_000 * np.convolve(wave, np.exp(-np.arange(60) / 12))[:8000]).astype(np.int16)
    assert seam_jumps(pulses, 2560).max() < 0.1
    pulses[2640:2700] += np.linspace(20_000, 0, 60).astype(np.int16)
    assert seam_jumps(pulses, 2560, shift=80).max() > 0.5


def test_rank_correlation_sees_order_only_and_shares_the_rank_of_ties() -> None:
    assert rank_correlation([1, 2, 3, 9], [10, 20, 30, 31]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9486833)


def test_a_sound_is_at_no_distance_from_itself_and_nearer_to_its_kind() -> None:
    a, b = buzz(0.4, 120), np.random.default_rng(0).normal(0, 3000, 6400).astype(np.int16)
    assert distances(a, a, aligned=True) == (0.0, 0.0)
    assert distances(buzz(0.4, 125), a, aligned=False)[0] < distances(b, a, aligned=False)[0]


def test_alignment_follows_a_stretched_sequence() -> None:
    theirs = np.arange(10.0)[:, None]
    rows, columns = align(np.repeat(theirs, 2, axis=0), theirs)
    assert (rows // 2 == columns).all()


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


def test_trimming_leaves_fixed_margins_even_where_the_recording_has_none() -> None:
    sound = buzz(0.5, 120)
    for recording in (np.pad(sound, 8000), sound):
        assert len(trim(recording)) == pytest.approx(8000 + 160 * 16, abs=320)


def test_trimming_cuts_breath_before_speech_but_not_a_weak_end() -> None:
    breath = np.random.default_rng(0).normal(0, 3000 / 120, 4000).astype(np.int16)
    recording = np.concatenate([breath, buzz(0.5, 120), breath])
    assert len(trim(recording)) == pytest.approx(960 + 8000 + 4000 + 1920, abs=320)


def test_warping_by_one_changes_nothing() -> None:
    assert warped_alpha(0.42, 1.0) == pytest.approx(0.42)
    assert warped_alpha(0.42, 1.1) < 0.42 < warped_alpha(0.42, 0.9)


def test_pseudo_speakers_are_seeded() -> None:
    assert pseudo_speakers(5, 1) == pseudo_speakers(5, 1)
    assert pseudo_speakers(5, 1) != pseudo_speakers(5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("voice", ["slt", "rms", "awb"])
def test_the_teacher_moves_pitch_and_rate_as_told(flite: Flite, voice: str) -> None:
    text = "a new day has come, and we are here."
    plain, high, fast = (flite.speak(text, Speaker("x", voice, *factors)) for factors in ((), (1.25,), (1, 1, 1.25)))
    assert np.median(pitch(high)) / np.median(pitch(plain)) == pytest.approx(1.25, rel=0.06)
    assert len(plain) / len(fast) == pytest.approx(1.25, rel=0.05)
    again = flite.speak(text, Speaker("x", voice))
    # one speaker's settings do not stick to the next; its noise excitation differs from call to call
    assert len(again) == len(plain)
    assert np.median(pitch(again)) == pytest.approx(np.median(pitch(plain)), rel=0.02)


def test_a_second_flite_begins_from_the_voices_as_they_are(flite: Flite) -> None:
    text = "a new day has come, and we are here."
    plain = flite.speak(text, Speaker("x", "slt"))
    shifted = flite.speak(text, Speaker("x", "slt", formants=1.15))
    again = Flite().speak(text, Speaker("x", "slt"))
    # the noise excitation is another each time
    assert distances(again, plain, aligned=True)[0] < 0.3 * distances(shifted, plain, aligned=True)[0]


def test_no_utterance_is_shorter_than_the_model_can_say(flite: Flite) -> None:
    assert len(utterance(flite, "a", NAMED_SPEAKERS[0])) >= 4 * 2560


@pytest.mark.slow
def test_a_speaker_with_a_shorter_vocal_tract_measures_higher(flite: Flite) -> None:
    # of one sentence the measure is noisy, as the teacher's excitation is
    texts = [
        "the weather will be warm, and we may swim.",
        "who took the umbrella?",
        "seven old ships lay in the harbour.",
    ]

    def readings(speaker: Speaker) -> list[Reading]:
        return [Reading.of(utterance(flite, text, speaker)) for text in texts]

    bases = [readings(speaker) for speaker in NAMED_SPEAKERS]
    for voice in VOICES:
        low, high = (formants(readings(Speaker("x", voice, 1.0, warp)), bases) for warp in (0.92, 1.08))
        assert high - low > 0.06, "half of what was set, or more"
