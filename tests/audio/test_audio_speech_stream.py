"""Streams in every container, as other programs decode them."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest

from realtime_tts.audio.filters import StreamResampler
from realtime_tts.audio.pipeline import SpeechStream
from realtime_tts.audio.samples import PLAIN_ENCODERS
from realtime_tts.audio.stream_format import CODECS_OF, StreamFormat
from realtime_tts.errors import UnsupportedAudioFormat
from tests.support.sound_files import read_sound_file

MODEL_RATE_HZ = 16_000
TONE_HZ = 300
MP3_DELAY, AAC_DELAY = 1105, 1024
PATCH = MODEL_RATE_HZ * 160 // 1000
COMPRESSED = [
    StreamFormat("mp3", "mp3", 22_050, 32_000),
    StreamFormat("mp3", "mp3", 24_000, 96_000),
    StreamFormat("mp3", "mp3", 44_100, 128_000),
    StreamFormat("mp3", "mp3", 8_000, 32_000),
    StreamFormat("ogg", "opus", 48_000, 64_000),
    StreamFormat("ogg", "opus", 44_100, 64_000),
    StreamFormat("flac", "flac", 24_000),
    StreamFormat("flac", "flac", 22_050),
    StreamFormat("adts", "aac", 24_000),
    StreamFormat("adts", "aac", 44_100),
]


def name_of(fmt: StreamFormat) -> str:
    return f"{fmt.container}-{fmt.codec}-{fmt.sample_rate}"


def tone(num_samples: int, rate_hz: int = MODEL_RATE_HZ) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * TONE_HZ * np.arange(num_samples) / rate_hz)


def pcm_of(samples: np.ndarray) -> bytes:
    return np.rint(samples * 32_767).astype("<i2").tobytes()


def streamed(fmt: StreamFormat, pcm: bytes, chunk_bytes: int = 2 * PATCH) -> list[bytes]:
    stream = SpeechStream(MODEL_RATE_HZ, fmt)
    return [*(stream.push(pcm[i : i + chunk_bytes]) for i in range(0, len(pcm), chunk_bytes)), stream.finish()]


def resampled(pcm: bytes, rate_hz: int) -> bytes:
    resampler = StreamResampler(MODEL_RATE_HZ, rate_hz)
    return resampler.push(pcm) + resampler.finish()


@pytest.mark.parametrize("fmt", COMPRESSED, ids=name_of)
@pytest.mark.parametrize("num_samples", [1, PATCH, 20_011])
def test_nothing_of_a_stream_is_lost_nor_moved(fmt: StreamFormat, num_samples: int) -> None:
    samples, rate = read_sound_file(b"".join(streamed(fmt, pcm_of(tone(num_samples)))))
    assert rate == (48_000 if fmt.codec == "opus" else fmt.sample_rate)
    wanted = -(-num_samples * rate // MODEL_RATE_HZ)
    delay = {"mp3": MP3_DELAY, "aac": AAC_DELAY}.get(fmt.codec, 0)
    if delay:
        assert wanted + delay <= len(samples) < wanted + delay + 3 * 1152
    else:
        assert abs(len(samples) - wanted) <= rate / MODEL_RATE_HZ
    if num_samples > PATCH:
        heard = samples[delay:][:wanted]
        difference = (heard - tone(len(heard), rate))[rate // 20 : -rate // 20]
        assert np.sqrt(np.mean(difference**2)) < 0.02


@pytest.mark.parametrize("fmt", [fmt for fmt in COMPRESSED if fmt.sample_rate > 8_000], ids=name_of)
def test_the_first_patch_is_heard_before_the_second_is_made(fmt: StreamFormat) -> None:
    chunks = streamed(fmt, pcm_of(tone(5 * PATCH)))
    samples, _ = read_sound_file(chunks[0])
    assert len(samples) > 0
    assert all(chunks), "every patch brings some bytes out"


def test_mp3_at_8_khz_holds_a_patch_back() -> None:
    """A frame there has 72 ms, and LAME looks two of them ahead."""
    chunks = streamed(COMPRESSED[3], pcm_of(tone(5 * PATCH)))
    assert not chunks[0]
    assert all(chunks[1:])


@pytest.mark.parametrize("fmt", COMPRESSED, ids=name_of)
def test_bytes_depend_on_the_samples_alone(fmt: StreamFormat) -> None:
    pcm = pcm_of(tone(9_999))
    whole, in_bits = (b"".join(streamed(fmt, pcm, size)) for size in (len(pcm), 778))
    if fmt.container == "ogg":  # each file has a serial number of its own
        assert np.array_equal(read_sound_file(whole)[0], read_sound_file(in_bits)[0])
    else:
        assert whole == in_bits


def test_mp3_has_the_constant_bit_rate_that_was_asked_for() -> None:
    for fmt in COMPRESSED[:4]:
        with av.open(io.BytesIO(b"".join(streamed(fmt, pcm_of(tone(32_000)))))) as container:
            assert container.streams.audio[0].bit_rate == fmt.bitrate


@pytest.mark.parametrize("codec", CODECS_OF["raw"])
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100])
def test_plain_samples_are_the_resamplers_own(codec: str, rate_hz: int) -> None:
    pcm = pcm_of(tone(9_999))
    expected = PLAIN_ENCODERS[codec](resampled(pcm, rate_hz) if rate_hz != MODEL_RATE_HZ else pcm)
    raw = b"".join(streamed(StreamFormat("raw", codec, rate_hz), pcm, 778))
    wav = b"".join(streamed(StreamFormat("wav", codec, rate_hz), pcm, 778))
    assert raw == expected
    assert wav[:4] == b"RIFF"
    assert wav[44:] == expected


@pytest.mark.parametrize(("container", "codec"), [(c, codec) for c, codecs in CODECS_OF.items() for codec in codecs])
def test_a_stream_without_samples_ends(container: str, codec: str) -> None:
    end = SpeechStream(MODEL_RATE_HZ, StreamFormat(container, codec, 24_000)).finish()
    assert bool(end) == (container in ("wav", "ogg", "flac"))  # which have a header


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (("mp4", "aac", 24_000), "container"),
        (("mp3", "opus", 24_000), "encoding"),
        (("raw", "mp3", 24_000), "encoding"),
        (("raw", "pcm_s16le", 23_999), "sample_rate"),
        (("raw", "pcm_s16le", 24_000.0), "sample_rate"),
        (("mp3", "mp3", 22_050, 320_000), "bitrate"),
        (("mp3", "mp3", 44_100, 33_000), "bitrate"),
        (("mp3", "mp3", 8_000, 128_000), "bitrate"),
        (("ogg", "opus", 48_000, 1_000_000), "bitrate"),
        (("adts", "aac", 8_000, 256_000), "bitrate"),
        (("adts", "aac", 24_000, True), "bitrate"),
    ],
)
def test_what_does_not_go_together_is_named(fields: tuple[object, ...], field: str) -> None:
    with pytest.raises(UnsupportedAudioFormat) as caught:
        StreamFormat(*fields)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000])
@pytest.mark.parametrize("container", ["mp3", "ogg", "flac", "adts", "wav"])
def test_every_rate_is_made(container: str, rate_hz: int) -> None:
    fmt = StreamFormat(container, CODECS_OF[container][0], rate_hz)
    _, found_rate = read_sound_file(b"".join(streamed(fmt, pcm_of(tone(3_200)))))
    assert found_rate == (48_000 if container == "ogg" else rate_hz)
