"""Files carry tags that the speech is synthetic, and decode as before."""

from __future__ import annotations

import io
import wave

import av
import numpy as np
import pytest

from realtime_tts.audio.containers import wav_header
from realtime_tts.audio.pipeline import SpeechStream
from realtime_tts.audio.provenance import Provenance
from realtime_tts.audio.stream_format import StreamFormat

MADE_BY = Provenance("realtime-tts 1", "a-model", "voice-1")
PCM = np.rint(12_000 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000)).astype("<i2").tobytes()
FORMATS = {
    "wav": StreamFormat("wav", "pcm_s16le", 24_000),
    "wav of floats": StreamFormat("wav", "pcm_f32le", 24_000),
    "mp3": StreamFormat("mp3", "mp3", 24_000, 96_000),
    "ogg": StreamFormat("ogg", "opus", 48_000, 32_000),
    "flac": StreamFormat("flac", "flac", 24_000),
}


def stream(fmt: StreamFormat, provenance: Provenance | None) -> bytes:
    made = SpeechStream(24_000, fmt, provenance)
    return made.push(PCM[:20_002]) + made.push(PCM[20_002:]) + made.finish()


def read(data: bytes) -> tuple[dict[str, str], np.ndarray]:
    """Tags by their names in lower case, and samples."""
    with av.open(io.BytesIO(data)) as container:
        found = {**container.metadata, **container.streams.audio[0].metadata}
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    return {name.lower(): value for name, value in found.items()}, np.concatenate(frames)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_says_what_has_made_it_and_sounds_the_same(name: str) -> None:
    said, samples = read(stream(FORMATS[name], MADE_BY))
    silent, plain = read(stream(FORMATS[name], None))
    assert said["comment"] == "Synthetic speech made by realtime-tts 1 with the model a-model in the voice voice-1"
    assert "comment" not in silent
    assert np.array_equal(samples, plain)


@pytest.mark.parametrize("fmt", [StreamFormat("raw", "pcm_s16le", 24_000), StreamFormat("adts", "aac", 24_000, 64_000)])
def test_what_has_no_place_for_it_stays_as_it_is(fmt: StreamFormat) -> None:
    assert stream(fmt, MADE_BY) == stream(fmt, None)


@pytest.mark.parametrize("num_samples", [None, 0, 7, 24_000])
@pytest.mark.parametrize("voice", ["v", "vo"])  # chunks begin at even offsets
def test_a_wav_header_holds_its_lengths(num_samples: int | None, voice: str) -> None:
    header = wav_header(24_000, num_samples=num_samples, provenance=Provenance("x", voice=voice))
    assert len(header) % 2 == 0
    data = header + PCM[: 2 * (num_samples or 100)]
    if num_samples is not None:
        data = header + PCM[: 2 * num_samples]
        assert int.from_bytes(data[4:8], "little") == len(data) - 8
        with wave.open(io.BytesIO(data)) as file:
            assert file.getnframes() == num_samples
    assert header.endswith(b"data" + header[-4:])
    assert f"in the voice {voice}\0".encode() in header


def test_what_is_not_known_is_not_said() -> None:
    assert Provenance("x").statement == "Synthetic speech made by x"
