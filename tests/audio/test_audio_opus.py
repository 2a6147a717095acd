"""Opus round trips: every frame one packet, delay as declared, close to the original."""

from __future__ import annotations

import av
import numpy as np
import pytest
from opus_decoder import OpusDecoder

from realtime_tts.audio.codecs import FRAMES_MS, OPUS_RATES_HZ, AudioFormat
from realtime_tts.audio.opus import OpusEncoder, _open_encoder, header_only
from realtime_tts.audio.pipeline import AudioPipeline
from tests.support.single_packets import single_packets


def voice(rate: int, seconds: float = 1.0) -> np.ndarray:
    """A gliding harmonic sound with syllables, -1…1: something like speech, below 2 kHz."""
    t = np.arange(int(rate * seconds)) / rate
    phase = 2 * np.pi * (120 * t + 15 * np.sin(2 * np.pi * t))
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)
    return 0.25 * syllables * sum(np.sin(k * phase) / k for k in range(1, 12))


def s16(samples: np.ndarray) -> bytes:
    return np.rint(samples * 32_767).astype("<i2").tobytes()


def round_trip(fmt: AudioFormat, samples: np.ndarray) -> tuple[np.ndarray, AudioPipeline]:
    """[n] at the format's rate → what a decoder makes of the packets, at 48 kHz, the delay left in."""
    pipeline, decoder = AudioPipeline(fmt.sample_rate, fmt), OpusDecoder()
    packets = single_packets([pipeline.push(s16(samples)), *pipeline.finish()])
    return np.concatenate([decoder.decode(packet.payload) for packet in packets]), pipeline


@pytest.mark.parametrize("rate", OPUS_RATES_HZ)
@pytest.mark.parametrize("frame_ms", FRAMES_MS)
def test_each_frame_is_one_packet_of_its_length(rate: int, frame_ms: int) -> None:
    fmt = AudioFormat(sample_rate=rate, frame_ms=frame_ms)
    encoder, decoder = OpusEncoder(fmt), OpusDecoder()
    pcm = s16(voice(rate, frame_ms / 1000))
    for packet in encoder.encode([pcm] * 20) + encoder.encode([pcm]):
        assert 1 <= len(packet) <= 1275 * 3
        assert len(decoder.decode(packet)) == 48 * frame_ms


@pytest.mark.parametrize("frame_ms", FRAMES_MS)
def test_the_decoded_signal_lags_by_exactly_the_declared_delay(frame_ms: int) -> None:
    fmt = AudioFormat(sample_rate=48_000, frame_ms=frame_ms, bitrate=128_000)
    original = voice(48_000)
    decoded, pipeline = round_trip(fmt, original)
    lags = range(700)
    scores = [float(np.dot(decoded[lag : lag + len(original)], original[: len(decoded) - lag])) for lag in lags]
    assert lags[int(np.argmax(scores))] == pipeline.delay_samples == 312


@pytest.mark.parametrize(("rate", "frame_ms"), [(48_000, 20), (16_000, 10), (24_000, 60)])
def test_packets_are_those_that_pyav_makes_by_its_own_way(rate: int, frame_ms: int) -> None:
    """`OpusEncoder` goes below PyAV's `encode`; whatever that is in another version, packets are the same, each at once
    and of its own frame."""
    fmt = AudioFormat(sample_rate=rate, frame_ms=frame_ms)
    pcm, num_bytes = s16(voice(rate, 1.2)), 2 * fmt.frame_samples
    frames = [pcm[start : start + num_bytes] for start in range(0, len(pcm) - num_bytes + 1, num_bytes)]
    reference, expected = _open_encoder(fmt), []
    for number, frame in enumerate(frames):
        samples = av.AudioFrame(format="s16", layout="mono", samples=fmt.frame_samples)
        samples.planes[0].update(frame)
        samples.sample_rate, samples.pts = rate, number * fmt.frame_samples
        expected += [bytes(packet) for packet in reference.encode(samples)]
    made, others = OpusEncoder(fmt), OpusEncoder(fmt)
    packets = []
    for frame in frames:
        packets += made.encode([frame])
        others.encode([bytes(num_bytes)])
    assert packets == expected


def test_a_transparent_bitrate_has_a_high_signal_to_noise_ratio() -> None:
    original = voice(48_000)
    decoded, pipeline = round_trip(AudioFormat(bitrate=256_000), original)
    aligned = decoded[pipeline.delay_samples :][: len(original)]
    snr_db = 10 * np.log10(np.mean(original**2) / np.mean((aligned - original) ** 2))
    assert snr_db > 24


@pytest.mark.parametrize("num_samples", [1, 647, 648, 649, 960, 961, 48_000])
def test_the_last_sample_is_decoded_too(num_samples: int) -> None:
    decoded, pipeline = round_trip(AudioFormat(), np.zeros(num_samples))
    assert len(decoded) >= num_samples + pipeline.delay_samples
    assert len(decoded) - num_samples - pipeline.delay_samples < 960  # and no packet more than that takes


def test_a_sound_at_the_very_end_survives() -> None:
    original = np.concatenate([np.zeros(9_600 - 480), voice(48_000, 0.01)])  # ends on a frame edge
    decoded, pipeline = round_trip(AudioFormat(bitrate=96_000), original)
    last_10_ms = decoded[pipeline.delay_samples + 9_600 - 480 :][:480]
    assert np.sqrt(np.mean(last_10_ms**2)) > 0.5 * np.sqrt(np.mean(original[-480:] ** 2))


def test_bitrate_is_kept_to() -> None:
    for bitrate in (16_000, 32_000, 64_000):
        pipeline = AudioPipeline(48_000, AudioFormat(bitrate=bitrate))
        num_bytes = pipeline.push(s16(voice(48_000, 4.0))).num_bytes
        assert 0.5 * bitrate < num_bytes * 8 / 4 < 1.3 * bitrate


@pytest.mark.parametrize("frame_ms", FRAMES_MS)
def test_dtx_makes_silence_cheap_and_time_goes_on(frame_ms: int) -> None:
    silence = np.random.default_rng(0).normal(0, 3e-5, 48_000 * 3)  # the noise floor of a quiet line
    pcm = s16(voice(48_000)) + s16(silence) + s16(voice(48_000))
    packets, decoded = {}, {}
    for dtx in (False, True):
        packets[dtx] = AudioPipeline(48_000, AudioFormat(dtx=dtx, frame_ms=frame_ms)).push(pcm).payloads
        decoder = OpusDecoder()
        decoded[dtx] = [decoder.decode(packet) for packet in packets[dtx]]
    assert {len(chunk) for chunk in decoded[True]} == {48 * frame_ms}
    first, last = 1300 // frame_ms, 3900 // frame_ms
    cost = {dtx: sum(map(len, packets[dtx][first:last])) for dtx in packets}
    assert cost[True] < 0.3 * cost[False]
    assert max(np.abs(chunk).max() for chunk in decoded[True][first:last]) < 2e-3
    levels = {dtx: np.sqrt(np.mean(np.concatenate(decoded[dtx][last + 10 :]) ** 2)) for dtx in packets}
    assert levels[True] == pytest.approx(levels[False], rel=0.02)  # speech comes back as it was


@pytest.mark.parametrize(
    ("packet", "header"),
    [
        (b"\x78abc", b"\x78"),
        (b"\x79abcd", b"\x79"),
        (b"\x7a\x01abc", b"\x79"),
        (b"\x7b\xc3\x01\x01ab", b"\x7b\x03"),
    ],
)
def test_a_header_keeps_the_mode_and_the_number_of_frames(packet: bytes, header: bytes) -> None:
    assert header_only(packet) == header


def test_fec_repeats_the_packet_before() -> None:
    plain, protected = (
        AudioPipeline(16_000, AudioFormat(sample_rate=16_000, fec=fec)).push(s16(voice(16_000))).payloads
        for fec in (False, True)
    )
    # Opus' table of contents byte: configurations 0…15 are the speech and hybrid modes, where FEC lives.
    assert all(packet[0] >> 3 < 16 for packet in protected[2:])
    assert plain != protected


def test_a_frame_of_another_length_raises() -> None:
    with pytest.raises(ValueError, match="1920"):
        OpusEncoder(AudioFormat()).encode([b"\x00" * 1918])
