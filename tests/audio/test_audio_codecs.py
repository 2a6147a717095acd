"""Formats are validated; G.711 is exact against an independent reading of the recommendation and against FFmpeg."""

from __future__ import annotations

import itertools
import struct

import av
import pytest
from av.codec import CodecContext

from realtime_tts.audio.codecs import CODECS, FRAMES_MS, OPUS_RATES_HZ, PCM_RATES_HZ, AudioFormat
from realtime_tts.audio.samples import PLAIN_ENCODERS
from realtime_tts.errors import UnsupportedAudioFormat

ALL_SAMPLES = range(-32_768, 32_768)
ALL_PCM = struct.pack("<65536h", *ALL_SAMPLES)


def test_every_listed_combination_is_a_format_with_whole_frames() -> None:
    for codec, frame_ms in itertools.product(CODECS, FRAMES_MS):
        for rate in OPUS_RATES_HZ if codec in ("opus", "ogg_opus") else PCM_RATES_HZ:
            fmt = AudioFormat(codec=codec, sample_rate=rate, frame_ms=frame_ms)
            assert abs(fmt.frame_samples - rate * frame_ms / 1000) < 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"codec": "vorbis"}, "audio.codec"),
        ({"codec": None}, "audio.codec"),
        ({"codec": ["opus"]}, "audio.codec"),
        ({"sample_rate": 44_100}, "audio.sample_rate"),
        ({"sample_rate": 48_000.0}, "audio.sample_rate"),
        ({"sample_rate": "48000"}, "audio.sample_rate"),
        ({"codec": "mulaw", "sample_rate": 96_000}, "audio.sample_rate"),
        ({"codec": "mulaw", "sample_rate": True}, "audio.sample_rate"),
        ({"frame_ms": 30}, "audio.frame_ms"),
        ({"frame_ms": 20.0}, "audio.frame_ms"),
        ({"bitrate": 5_999}, "audio.bitrate"),
        ({"bitrate": 256_001}, "audio.bitrate"),
        ({"bitrate": float("nan")}, "audio.bitrate"),
        ({"dtx": 1}, "audio.dtx"),
        ({"fec": "yes"}, "audio.fec"),
    ],
)
def test_anything_else_is_refused_by_name(fields: dict, named: str) -> None:
    with pytest.raises(UnsupportedAudioFormat) as caught:
        AudioFormat(**fields)
    assert caught.value.field == named


def mulaw_by_decision_values(sample: int) -> int:
    """G.711 table 2: 14-bit decision values; segments end at 31, 95, 223 … 8159, steps 2, 4, 8 … 256 (the first
    interval of all is 1 wide)."""
    magnitude = abs(sample) / 4
    edges = [0, *range(1, 31, 2)]
    for segment, start in enumerate((31, 95, 223, 479, 991, 2015, 4063), start=1):
        edges += [start + step * 2 ** (segment + 1) for step in range(16)]
    code = max(i for i, edge in enumerate(edges) if magnitude >= edge)
    return (0x7F if sample < 0 else 0xFF) - code


def alaw_by_decision_values(sample: int) -> int:
    """G.711 table 1: 13-bit decision values; segments end at 64, 128, 256 … 4096, steps 2, 2, 4, 8 … 128."""
    magnitude = (sample if sample >= 0 else -sample - 1) // 8
    edges = [*range(0, 64, 2)]
    for segment in range(2, 8):
        edges += [32 * 2 ** (segment - 1) + step * 2**segment for step in range(16)]
    code = max(i for i, edge in enumerate(edges) if magnitude >= edge)
    return (code | (0x80 if sample >= 0 else 0)) ^ 0x55


INTERESTING = sorted(
    {s for edge in range(0, 32_769, 16) for s in (edge - 1, edge, edge + 1, -edge - 1, -edge, -edge + 1)}
    & set(ALL_SAMPLES)
)


@pytest.mark.parametrize(
    ("encode", "expected"),
    [(PLAIN_ENCODERS["mulaw"], mulaw_by_decision_values), (PLAIN_ENCODERS["alaw"], alaw_by_decision_values)],
)
def test_g711_equals_the_decision_values_of_the_recommendation(encode, expected) -> None:
    near_edges = INTERESTING[::5] + INTERESTING[: 4 * 64] + [s for s in INTERESTING if abs(s) < 1100]
    assert list(encode(struct.pack(f"<{len(near_edges)}h", *near_edges))) == [expected(s) for s in near_edges]


def test_g711_landmarks() -> None:
    pcm = struct.pack("<6h", 0, -1, 32_767, -32_768, 4, -4)
    assert PLAIN_ENCODERS["mulaw"](pcm) == bytes([0xFF, 0x7F, 0x80, 0x00, 0xFE, 0x7E])
    assert PLAIN_ENCODERS["alaw"](pcm)[:4] == bytes([0xD5, 0x55, 0xAA, 0x2A])


@pytest.mark.parametrize(
    ("encode", "codec"), [(PLAIN_ENCODERS["mulaw"], "pcm_mulaw"), (PLAIN_ENCODERS["alaw"], "pcm_alaw")]
)
def test_no_sample_decodes_further_away_than_its_step(encode, codec: str) -> None:
    decoder = CodecContext.create(codec, "r")
    decoder.sample_rate, decoder.layout = 8000, "mono"
    decoder.open()
    decoded = decoder.decode(av.Packet(encode(ALL_PCM)))[0].to_ndarray().reshape(-1)
    for sample, value in zip(ALL_SAMPLES, decoded.tolist(), strict=True):
        # Half a step of the widest reading: a sixteenth of the magnitude above the linear part; and clipping.
        assert abs(sample - value) <= max(16, abs(sample) / 31 + 4) or abs(sample) > 32_124
        assert sample == 0 or (value >= 0) == (sample > 0) or abs(sample) < 16


def test_halves_of_samples_are_refused() -> None:
    with pytest.raises(ValueError):
        PLAIN_ENCODERS["mulaw"](b"\x00\x00\x00")
