"""Speech at another speed: as long as it should be, at the pitch that it had, whatever the pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.audio.filters import StreamTempo

SPEEDS = [0.25, 0.5, 0.7, 0.9, 1.1, 1.4, 2.0, 3.0, 4.0]
RATES_HZ = [16_000, 24_000, 48_000]
PATCH_MS = 160
Samples = np.ndarray[Any, Any]


def voice(rate_hz: int, seconds: float, pitch_hz: float = 110.0) -> Samples:
    """Harmonics of a pitch, as loud speech is, int16."""
    times = np.arange(round(rate_hz * seconds)) / rate_hz
    waves = sum(np.sin(2 * np.pi * pitch_hz * n * times + n) / n for n in range(1, 12))
    return np.asarray(6000 * waves, dtype="<i2")


def convert(samples: Samples, rate_hz: int, speed: float, chunks: list[int] | None = None) -> Samples:
    encoding = "s16le" if samples.dtype == np.int16 else "f32le"
    tempo = StreamTempo(rate_hz, speed, encoding)
    pieces = np.split(samples, np.cumsum(chunks)) if chunks else [samples]
    pcm = b"".join(tempo.push(piece.tobytes()) for piece in pieces)
    return np.frombuffer(pcm + tempo.finish(), samples.dtype)


def pitch_of(samples: Samples, rate_hz: int) -> float:
    """Pitch of the highest peak of the autocorrelation between 70 and 300 Hz, with a parabola through it."""
    samples = samples.astype(np.float64)
    spectrum = np.abs(np.fft.rfft(samples, 2 * len(samples))) ** 2
    correlation = np.fft.irfft(spectrum)[: rate_hz // 70]
    first = rate_hz // 300
    lag = first + int(np.argmax(correlation[first:-1]))
    before, at, after = correlation[lag - 1 : lag + 2]
    return rate_hz / (lag + (before - after) / (2 * (before - 2 * at + after)))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("speed", SPEEDS)
def test_pitch_is_kept_and_the_length_is_exact(rate_hz: int, speed: float) -> None:
    samples = voice(rate_hz, 1.5)
    converted = convert(samples, rate_hz, speed)
    assert len(converted) == round(len(samples) / speed)
    assert pitch_of(samples, rate_hz) == pytest.approx(110, rel=0.002)
    assert pitch_of(converted, rate_hz) == pytest.approx(110, rel=0.01)


@pytest.mark.parametrize("speed", SPEEDS)
def test_what_is_heard_when_is_where_the_speed_says(speed: float) -> None:
    """A click track: each click is where it belongs, to within a window."""
    rate_hz, ticks_s = 16_000, (0.2, 0.7, 1.2, 1.7)
    samples = np.zeros(2 * rate_hz, "<i2")
    for tick_s in ticks_s:
        samples[round(tick_s * rate_hz) :][:320] = voice(rate_hz, 0.02, 300)
    converted = np.abs(convert(samples, rate_hz, speed).astype(float))
    for tick_s in ticks_s:
        low, high = (round((tick_s / speed + offset_s) * rate_hz) for offset_s in (-0.07, 0.09))
        assert converted[max(0, low) : high].max() > 2000


@settings(max_examples=30, deadline=None)
@given(speed=st.floats(0.25, 4.0), chunks=st.lists(st.integers(0, 3000), max_size=12), encoding=st.sampled_from("if"))
def test_pieces_do_not_matter(speed: float, chunks: list[int], encoding: str) -> None:
    samples = voice(16_000, 0.4)
    samples = samples if encoding == "i" else (samples / 32768).astype("<f4")
    assert np.array_equal(convert(samples, 16_000, speed, chunks), convert(samples, 16_000, speed))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("speed", [0.7, 1.1, 1.4])
def test_a_patch_is_enough_for_a_first_packet(rate_hz: int, speed: float) -> None:
    tempo = StreamTempo(rate_hz, speed)
    patch_samples = rate_hz * PATCH_MS // 1000
    first = tempo.push(voice(rate_hz, PATCH_MS / 1000).tobytes())
    num_held = patch_samples / speed - len(first) // 2
    assert num_held <= 0.1 * rate_hz
    assert len(first) // 2 >= 0.05 * rate_hz


def test_little_and_nothing_have_their_length_too() -> None:
    assert StreamTempo(16_000, 1.4).finish() == b""
    assert len(convert(voice(16_000, 0.004), 16_000, 0.5)) == 128
