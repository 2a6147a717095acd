"""WAV and Ogg Opus as other programs read them."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from realtime_tts.audio.containers import EncodedStream, wav_header
from realtime_tts.audio.samples import PLAIN_ENCODERS
from tests.support.sound_files import read_sound_file

RAMP = np.arange(-8_000, 8_001).astype("<i2")


@pytest.mark.parametrize("num_samples", [None, len(RAMP)])
def test_a_wav_of_known_or_unknown_length_is_read_back_to_the_sample(num_samples: int | None) -> None:
    samples, rate = read_sound_file(wav_header(16_000, num_samples=num_samples) + RAMP.tobytes())
    assert rate == 16_000
    assert np.array_equal(samples, RAMP / 32_768)


@pytest.mark.parametrize(
    ("codec", "encode", "tolerance"),
    [
        ("mulaw", PLAIN_ENCODERS["mulaw"], 0.04),
        ("alaw", PLAIN_ENCODERS["alaw"], 0.04),
        ("pcm_f32le", lambda pcm: (np.frombuffer(pcm, "<i2") / 32_768).astype("<f4").tobytes(), 1e-9),
    ],
)
def test_other_encodings_are_declared_rightly(codec: str, encode, tolerance: float) -> None:
    for num_samples in (None, len(RAMP)):
        samples, rate = read_sound_file(wav_header(8_000, codec, num_samples) + encode(RAMP.tobytes()))
        assert rate == 8_000
        assert np.allclose(samples[: len(RAMP)], RAMP / 32_768, rtol=tolerance, atol=0.001)


def test_a_header_of_known_length_is_what_the_standard_library_writes() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(22_050)
        writer.writeframes(RAMP.tobytes())
    assert wav_header(22_050, num_samples=len(RAMP)) + RAMP.tobytes() == file.getvalue()


@pytest.mark.parametrize("codec", ["pcm_s16le", "mulaw"])
def test_a_wav_longer_than_its_format_can_count_has_the_header_of_an_unknown_length(codec: str) -> None:
    """12 hours at 48 kHz: the file of a whole book must not end with an error."""
    assert wav_header(48_000, codec, num_samples=2**32) == wav_header(48_000, codec)


@pytest.mark.parametrize("rate", [16_000, 48_000])
@pytest.mark.parametrize("num_samples", [1, 12_345, 48_000])
def test_ogg_opus_has_exactly_the_samples_that_went_in(rate: int, num_samples: int) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 300 * np.arange(num_samples) / rate)
    pcm = np.rint(tone * 32_767).astype("<i2").tobytes()
    stream = EncodedStream("opus", rate, 96_000)
    data = b"".join([stream.push(pcm[i : i + 998]) for i in range(0, len(pcm), 998)]) + stream.finish()
    samples, out_rate = read_sound_file(data)
    assert out_rate == 48_000
    assert abs(len(samples) - num_samples * 48_000 / rate) <= 48_000 / rate
    if num_samples > 10_000:
        expected = 0.3 * np.sin(2 * np.pi * 300 * np.arange(len(samples)) / 48_000)
        assert np.sqrt(np.mean((samples - expected)[2_000:-2_000] ** 2)) < 0.02  # in phase: the pre-skip is right


def test_ogg_pages_leave_as_they_fill() -> None:
    stream = EncodedStream("opus", 48_000)
    sizes = [len(stream.push(bytes(2 * 960))) for _ in range(20)]
    assert sum(size > 0 for size in sizes) >= 17  # the header and the encoder's look-ahead take the first
    assert stream.finish()
