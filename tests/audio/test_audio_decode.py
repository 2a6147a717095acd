"""Recordings of all kinds, honest and hostile, decoded within limits."""

from __future__ import annotations

import asyncio
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from compressed_silence import silent_flac

from realtime_tts.audio import decode
from realtime_tts.audio.containers import wav_header
from realtime_tts.audio.decode import Recording, decode_recording
from realtime_tts.audio.isolated import run_isolated
from realtime_tts.errors import AudioDecodeError


def decoded(data: bytes, rate: int) -> Recording:
    return asyncio.run(decode_recording(data, rate))


def tone(rate: int, seconds: float, channels: int = 1) -> np.ndarray:
    """[channels, n] int16, 440 Hz."""
    wave = np.rint(12_000 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)).astype(np.int16)
    return np.tile(wave, (channels, 1))


def encoded(container: str, codec: str, rate: int, channels: int, seconds: float = 0.5) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate)
        stream.codec_context.layout = "stereo" if channels == 2 else "mono"
        resampler = av.AudioResampler(
            format=stream.codec_context.format or "s16",
            layout=stream.codec_context.layout,
            rate=rate,
            frame_size=stream.codec_context.frame_size or None,
        )
        interleaved = tone(rate, seconds, channels).T.reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(interleaved, format="s16", layout=stream.codec_context.layout.name)
        frame.sample_rate, frame.pts = rate, 0
        for converted in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(converted))
        output.mux(stream.encode(None))
    return file.getvalue()


def wav(samples: np.ndarray, rate: int = 16_000) -> bytes:
    return wav_header(rate, num_samples=len(samples)) + samples.astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("container", "codec", "rate", "channels"),
    [
        ("wav", "pcm_s16le", 44_100, 2),
        ("wav", "pcm_f32le", 48_000, 1),
        ("wav", "pcm_mulaw", 8_000, 1),
        ("flac", "flac", 44_100, 2),
        ("ogg", "libopus", 48_000, 2),
        ("mp3", "libmp3lame", 22_050, 1),
        ("mp4", "aac", 44_100, 2),
        ("webm", "libopus", 48_000, 1),
    ],
)
def test_usual_files_become_mono_at_the_wanted_rate(container: str, codec: str, rate: int, channels: int) -> None:
    recording = decoded(encoded(container, codec, rate, channels), 16_000)
    assert recording.sample_rate == 16_000
    assert recording.duration_s == pytest.approx(0.5, abs=0.07)  # lossy codecs pad
    samples = np.frombuffer(recording.pcm, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    assert np.argmax(spectrum) * 16_000 / len(samples) == pytest.approx(440, abs=4)


async def test_samples_at_the_wanted_rate_are_unchanged() -> None:
    assert (await decode_recording(wav(tone(16_000, 0.2)[0]), 16_000)).pcm == tone(16_000, 0.2)[0].tobytes()


HOSTILE = {
    "noise": bytes(np.random.default_rng(5).integers(0, 256, 4_000, dtype=np.uint8)),
    "text": b"Dear sir, this is not a recording.\n" * 20,
    "a playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n",
    "a concat list": b"ffconcat version 1.0\nfile /etc/hostname\n",
    "a session description": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
    "a header without audio": wav_header(16_000, num_samples=0),
    "a cut header": wav_header(16_000)[:30],
    "no channels": wav_header(16_000)[:22] + b"\x00\x00" + wav_header(16_000)[24:] + bytes(100),
    "zeros": bytes(10_000),
    "a video without sound": None,
}


def silent_video() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        output.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_recording_is_a_typed_error(name: str) -> None:
    with pytest.raises(AudioDecodeError) as caught:
        decoded(HOSTILE[name] or silent_video(), 16_000)
    assert caught.value.field == "audio"
    assert "/etc" not in caught.value.message


def test_a_damaged_tail_costs_no_more_than_itself() -> None:
    data = encoded("flac", "flac", 16_000, 1, seconds=1.0)
    try:
        recording = decoded(data[: len(data) // 2] + bytes(500), 16_000)
    except AudioDecodeError:
        return  # refusing is right too; guessing more audio than there was is not
    assert recording.duration_s <= 1.0


async def test_limits_of_size_and_length_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    data = wav(tone(16_000, 0.6)[0])
    monkeypatch.setattr(decode, "MAX_S", 0.5)
    with pytest.raises(AudioDecodeError, match="longer than"):
        await decode_recording(data, 16_000)
    monkeypatch.setattr(decode, "MAX_BYTES", len(data) - 1)
    with pytest.raises(AudioDecodeError, match="larger than"):
        await decode_recording(data, 16_000)
    with pytest.raises(AudioDecodeError, match="empty"):
        await decode_recording(b"", 16_000)


def test_a_small_file_of_very_long_silence_is_stopped_early() -> None:
    """A decompression bomb: half an hour in a third of a megabyte."""
    data = silent_flac(1_800)
    assert len(data) < 400_000
    with pytest.raises(AudioDecodeError, match="longer than 60 s"):
        decoded(data, 48_000)


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="address space cannot be limited on macOS")
def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MEMORY_BYTES", 60 * 1024 * 1024)
    with pytest.raises(AudioDecodeError, match=r"limits|memory"):
        decoded(wav(tone(16_000, 0.2)[0]), 16_000)


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="other systems refuse some of the limits")
def test_the_decoding_process_can_start_no_process_and_open_few_files() -> None:
    """Reads the limits as set: for root the system does not enforce the number of processes."""
    code = (
        "import json, resource, runpy, sys; "
        "limit = runpy.run_path(sys.argv[1])['limit_resources']; limit(1 << 30, 10, 0); "
        "names = ('RLIMIT_NPROC', 'RLIMIT_NOFILE', 'RLIMIT_FSIZE', 'RLIMIT_CORE'); "
        "print(json.dumps({name: resource.getrlimit(getattr(resource, name))[1] for name in names}))"
    )
    worker = Path(decode.__file__).with_name("decode_worker.py")
    done = subprocess.run([sys.executable, "-I", "-c", code, str(worker)], capture_output=True, check=True)
    limits = json.loads(done.stdout)
    assert limits == {"RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 16, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}


async def test_the_decoding_process_gets_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALTIME_TTS_SERVER__API_KEY", "a secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    script = tmp_path / "script.py"
    script.write_text("import json, os; print(json.dumps(dict(os.environ)))")
    returncode, stdout, _ = await run_isolated(script, data=b"", wall_s=30.0)
    assert returncode == 0
    assert json.loads(stdout).keys() - {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"} == {"LD_LIBRARY_PATH"}


async def test_time_is_limited_and_nothing_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    data = wav(tone(16_000, 0.2)[0])
    monkeypatch.setattr(decode, "WALL_S", 0.001)
    with pytest.raises(AudioDecodeError, match="limits"):
        await decode_recording(data, 16_000)


async def test_cancelling_ends_the_process() -> None:
    before = children()
    task = asyncio.create_task(decode_recording(wav(tone(16_000, 0.2)[0]), 16_000))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() <= before


def children() -> set[int]:
    """Process ids of our children, on systems with /proc."""
    found = set()
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    parent = file.read().rsplit(b")", 1)[1].split()[1]
            except OSError:
                continue
            if int(parent) == os.getpid():
                found.add(int(entry))
    return found


def test_a_wav_that_declares_a_huge_length_is_read_to_its_real_end() -> None:
    header = bytearray(wav_header(16_000, num_samples=1_600))
    header[40:44] = struct.pack("<I", 0xFFFFFFF0)
    recording = decoded(bytes(header) + bytes(3_200), 16_000)
    assert len(recording.pcm) == 3_200
