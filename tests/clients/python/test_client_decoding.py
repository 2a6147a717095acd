"""Packets to samples, against the server's own encoders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from realtime_tts_client import AudioFormat, MissingDependency, ProtocolError
from realtime_tts_client.decoding import Decoder, output_rate_hz, to_int16
from realtime_tts_client.playback import PlaybackClock

from realtime_tts.audio import codecs
from realtime_tts.audio.pipeline import AudioPipeline
from realtime_tts.audio.samples import PLAIN_ENCODERS

ALL = np.arange(-32_768, 32_768).astype("<i2")


@pytest.mark.parametrize(("codec", "encode"), [("mulaw", PLAIN_ENCODERS["mulaw"]), ("alaw", PLAIN_ENCODERS["alaw"])])
def test_g711_round_trip_is_idempotent_and_close(codec: str, encode) -> None:
    decoder = Decoder(AudioFormat(codec, sample_rate=8000))
    packet = encode(ALL.tobytes())
    samples = decoder.decode(packet)
    again = decoder.decode(encode(to_int16(samples).astype("<i2").tobytes()))
    assert np.array_equal(samples, again)
    # Half a step is a thirty-second of the magnitude, at most; with mu-law, of the magnitude plus its bias.
    error = np.abs(samples * 32_768 - ALL)
    assert np.all(error <= np.maximum((np.abs(ALL.astype(float)) + 132) / 31, 8))


@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le"])
def test_pcm_is_exact(codec: str) -> None:
    pipeline = AudioPipeline(16_000, codecs.AudioFormat(codec=codec, sample_rate=16_000))
    packets = pipeline.push(ALL.tobytes())
    decoder = Decoder(AudioFormat(codec, sample_rate=16_000))
    samples = np.concatenate([decoder.decode(payload) for payload in packets.payloads])
    assert np.array_equal(to_int16(samples), ALL[: len(samples)])


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_opus_is_decoded_in_step_with_the_original(rate: int) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 300 * np.arange(rate) / rate)
    pipeline = AudioPipeline(rate, codecs.AudioFormat(sample_rate=rate, bitrate=96_000))
    packets = [pipeline.push(np.rint(tone * 32_767).astype("<i2").tobytes()), *pipeline.finish()]
    decoder = Decoder(AudioFormat("opus", sample_rate=rate))
    samples = np.concatenate([decoder.decode(payload) for some in packets for payload in some.payloads])
    assert decoder.sample_rate == output_rate_hz(AudioFormat()) == 48_000
    assert 48_000 <= len(samples) < 48_000 + 960
    expected = 0.3 * np.sin(2 * np.pi * 300 * np.arange(48_000) / 48_000)
    assert np.sqrt(np.mean((samples[2_000:46_000] - expected[2_000:46_000]) ** 2)) < 0.02


def test_what_is_no_packet_is_a_typed_error() -> None:
    with pytest.raises(ProtocolError):
        Decoder(AudioFormat()).decode(b"\xff" * 40)
    with pytest.raises(ProtocolError):
        Decoder(AudioFormat("pcm_s16le")).decode(b"\x00\x00\x00")


def test_opus_without_pyav_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av.codec", None)
    with pytest.raises(MissingDependency, match="pip install av"):
        Decoder(AudioFormat())


def test_int16_is_clipped() -> None:
    assert to_int16(np.array([2.0, -2.0, 0.5], np.float32)).tolist() == [32_767, -32_768, 16_384]


def test_formats_that_make_no_sense_are_refused_here_already() -> None:
    for fields in ({"codec": "mp3"}, {"sample_rate": 0}, {"frame_ms": -20}):
        with pytest.raises(ValueError):
            AudioFormat(**fields)


def test_the_import_needs_neither_pyav_nor_torch_nor_the_server() -> None:
    code = "import sys, realtime_tts_client;print(sorted({'av', 'torch', 'realtime_tts'} & set(sys.modules)))"
    source = Path(__file__).resolve().parents[3] / "clients/python/src"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(source)}
    )
    assert result.stdout.strip() == "[]"


# ---- playback --------------------------------------------------------------------------------------------------------


def test_taken_packets_are_heard_in_real_time_and_never_before_they_are_taken() -> None:
    clock = PlaybackClock("realtime")
    assert clock.position_ms(5.0) == 0.0
    clock.take(20.0, 10.0)
    clock.take(20.0, 10.0)
    assert clock.position_ms(10.03) == pytest.approx(30.0)
    assert clock.position_ms(12.0) == 40.0  # dry
    clock.take(20.0, 12.0)
    assert clock.position_ms(12.005) == pytest.approx(45.0)
    assert clock.position_ms(13.0) == 60.0


def test_the_other_modes() -> None:
    consumed = PlaybackClock("consumed")
    consumed.take(500.0, 1.0)
    assert consumed.position_ms(1.0) == 500.0
    manual = PlaybackClock("manual")
    manual.take(500.0, 1.0)
    assert manual.position_ms(9.0) == 0.0
    manual.report(120.0, 2.0)
    assert manual.position_ms(9.0) == 120.0
