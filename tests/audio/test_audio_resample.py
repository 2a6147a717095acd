"""The streaming resampler is inaudible: same bytes for any chunking, exact length, clean and prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from realtime_tts.audio.filters import StreamResampler

RATES = [(16_000, 48_000), (24_000, 48_000), (44_100, 48_000), (48_000, 8_000), (16_000, 8_000), (48_000, 22_050)]


def resample(pcm: bytes, rates: tuple[int, int], chunk_bytes: list[int]) -> bytes:
    resampler, out, position, turn = StreamResampler(*rates), [], 0, 0
    while position < len(pcm):
        size = chunk_bytes[turn % len(chunk_bytes)]
        out.append(resampler.push(pcm[position : position + size]))
        position, turn = position + size, turn + 1
    return b"".join([*out, resampler.finish()])


def sine(rate: int, hz: float, seconds: float = 1.0, level: float = 0.5) -> np.ndarray:
    return level * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)


def s16(samples: np.ndarray) -> bytes:
    return np.rint(samples * 32_767).astype("<i2").tobytes()


def floats(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2") / 32_767


@pytest.mark.parametrize("rates", RATES)
def test_any_chunking_gives_the_same_bytes(rates: tuple[int, int]) -> None:
    pcm = np.random.default_rng(1).integers(-20_000, 20_000, rates[0] // 2).astype("<i2").tobytes()
    whole = resample(pcm, rates, [len(pcm)])
    assert resample(pcm, rates, [5120]) == whole
    assert resample(pcm, rates, [2, 14, 640, 4, 334]) == whole


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("num_samples", [1, 17, 999, 16_001])
def test_length_is_that_of_the_input_to_the_sample(rates: tuple[int, int], num_samples: int) -> None:
    out = resample(bytes(2 * num_samples), rates, [2560])
    assert abs(len(out) / 2 - num_samples * rates[1] / rates[0]) <= 1


@pytest.mark.parametrize("rates", RATES)
def test_a_sine_in_160_ms_chunks_keeps_its_phase_and_level(rates: tuple[int, int]) -> None:
    hz = 0.3 * min(rates)
    out = floats(resample(s16(sine(rates[0], hz)), rates, [rates[0] * 160 // 1000 * 2]))
    edge = rates[1] // 50  # the filter sees silence before and after
    error = (out - sine(rates[1], hz)[: len(out)])[edge:-edge]
    snr_db = 10 * np.log10(np.mean(sine(rates[1], hz) ** 2) / np.mean(error**2))
    assert snr_db > 85  # 16 bits at half level: 92


@pytest.mark.parametrize("rates", [(48_000, 8_000), (16_000, 8_000), (48_000, 24_000)])
def test_what_the_lower_rate_cannot_carry_is_gone(rates: tuple[int, int]) -> None:
    out = floats(resample(s16(sine(rates[0], 0.55 * rates[1])), rates, [5120]))
    middle = out[len(out) // 4 : -len(out) // 4]
    assert 20 * np.log10(np.sqrt(np.mean(middle**2)) + 1e-9) < -80


@pytest.mark.parametrize("rates", RATES)
def test_at_most_8_ms_are_held_back(rates: tuple[int, int]) -> None:
    resampler, num_out = StreamResampler(*rates), 0
    chunk_samples = rates[0] // 100
    for index in range(1, 40):
        num_out += len(resampler.push(bytes(2 * chunk_samples))) // 2
        assert index * chunk_samples / rates[0] - num_out / rates[1] <= 0.008


def test_full_scale_is_clipped_not_wrapped() -> None:
    square = np.where(np.arange(16_000) // 40 % 2, 32_767, -32_768).astype("<i2")
    out = np.frombuffer(resample(square.tobytes(), (16_000, 48_000), [2560]), "<i2").astype(int)
    inside = out[480:-480:120]
    assert np.abs(out).max() >= 32_767
    assert np.abs(inside).min() > 10_000 or np.abs(np.diff(out)).max() < 50_000  # overshoot never flips the sign


def test_equal_rates_pass_bytes_through() -> None:
    resampler = StreamResampler(48_000, 48_000)
    assert resampler.push(b"\x01\x02") == b"\x01\x02"
    assert resampler.finish() == b""


def test_without_samples_there_is_no_rest() -> None:
    assert StreamResampler(16_000, 48_000).finish() == b""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_a_resampler_starts_no_threads() -> None:
    before = len(list(Path("/proc/self/task").iterdir()))
    resamplers = [StreamResampler(16_000, 48_000) for _ in range(10)]
    for resampler in resamplers:
        resampler.push(bytes(5120))
    assert len(list(Path("/proc/self/task").iterdir())) <= before + 2
