"""Volume: products below the knee, never beyond full scale, the same for every cut, and nothing at all at 1."""

from __future__ import annotations

import numpy as np
import pytest

from realtime_tts.audio.volume import KNEE, at_volume

RAMP = np.linspace(-1, 1, 20_001).astype("<f4")


def ramp_at(volume: float) -> np.ndarray:
    return np.frombuffer(at_volume(RAMP.tobytes(), volume, "f32le"), "<f4")


@pytest.mark.parametrize("encoding", ["s16le", "f32le"])
def test_at_one_the_bytes_are_the_same(encoding: str) -> None:
    pcm = np.random.default_rng(0).integers(-32768, 32768, 4000, np.int16).tobytes()
    assert at_volume(pcm, 1.0, encoding) == pcm


@pytest.mark.parametrize("volume", [0.0, 0.25, 0.5, 0.9])
def test_softer_is_a_product(volume: float) -> None:
    np.testing.assert_allclose(ramp_at(volume), RAMP * volume, atol=1e-7)


@pytest.mark.parametrize("volume", [1.1, 1.5, 2.0])
def test_louder_is_a_product_up_to_the_knee_and_stays_within_full_scale(volume: float) -> None:
    louder = ramp_at(volume)
    below = np.abs(RAMP * volume) <= KNEE
    np.testing.assert_allclose(louder[below], (RAMP * volume)[below], rtol=1e-6)
    assert np.abs(louder).max() <= 1.0
    assert (np.diff(louder) >= 0).all(), "a louder sample never becomes a softer one"
    assert np.abs(np.diff(louder)).max() <= 1.001 * volume * np.diff(RAMP).max(), "the curve has no step at the knee"
    np.testing.assert_array_equal(louder, -louder[::-1])


def test_samples_of_16_bits_never_wrap_around() -> None:
    loudest = np.array([-32768, 32767, -32768, 20_000, -20_000], "<i2")
    louder = np.frombuffer(at_volume(loudest.tobytes(), 2.0), "<i2").astype(int)
    assert list(np.sign(louder)) == [-1, 1, -1, 1, -1]
    assert (np.abs(louder) >= np.abs(loudest.astype(int)) * 0.97).all()


def test_pieces_may_be_cut_anywhere() -> None:
    pcm = np.random.default_rng(1).integers(-32768, 32768, 999, np.int16).tobytes()
    pieces = b"".join(at_volume(pcm[start : start + 74], 1.7) for start in range(0, len(pcm), 74))
    assert pieces == at_volume(pcm, 1.7)
