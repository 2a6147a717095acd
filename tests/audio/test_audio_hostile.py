"""Recordings as the world has them, and as an enemy makes them: taken, or refused typed, in bounded time and memory.

Most are decoded in this process, with the function that the decoding process runs; what limits it is tested through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from compressed_silence import silent_flac

from realtime_tts.audio import decode, decode_worker
from realtime_tts.audio.containers import wav_header
from realtime_tts.audio.decode import decode_recording
from realtime_tts.errors import AudioDecodeError

RATE_HZ = 48_000
SECONDS = 0.5


def tone(rate: int = 16_000, seconds: float = SECONDS, channels: int = 1) -> np.ndarray[Any, Any]:
    """[n, channels] int16, 440 Hz."""
    wave = np.rint(12_000 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)).astype(np.int16)
    return np.repeat(wave[:, None], channels, axis=1)


def encoded(container: str, codec: str, rate: int = 48_000, layout: str = "mono", video: str | None = None) -> bytes:
    """A file with half a second of tone, and some frames of `video`."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, options={"strict": "experimental"})
        context = stream.codec_context
        context.layout, context.bit_rate = layout, 64_000
        if video:
            add_pictures(output, video, [context.open])
        if not context.is_open:
            context.open()
        pcm = tone(rate, channels=len(av.AudioLayout(layout).channels))
        sound = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout=layout)
        sound.sample_rate, sound.pts = rate, 0
        resampler = av.AudioResampler(context.format, layout, rate, frame_size=context.frame_size or None)
        for converted in [*resampler.resample(sound), *resampler.resample(None)]:
            output.mux(stream.encode(converted))
        output.mux(stream.encode(None))
    return file.getvalue()


def add_pictures(output: Any, codec: str, before: list[Callable[[], None]]) -> None:
    stream = output.add_stream(codec, rate=5)
    stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
    for call in before:  # what must be done before the file begins
        call()
    for index in range(3):
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        frame.pts = index
        output.mux(stream.encode(frame))
    output.mux(stream.encode(None))


def wav(samples: np.ndarray[Any, Any], rate: int, tag: int = 1) -> bytes:
    """[n, channels] of any type as a WAV file; tag 1: integers, 3: floats."""
    num_channels, width = samples.shape[1], samples.dtype.itemsize
    about = struct.pack(
        "<HHIIHH", tag, num_channels, rate, rate * num_channels * width, num_channels * width, 8 * width
    )
    body = samples.tobytes()
    chunks = b"fmt " + struct.pack("<I", 16) + about + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def here(data: bytes, max_seconds: float = 60.0) -> np.ndarray[Any, Any]:
    """[n] at 48 kHz. Raises as the process does."""
    return np.frombuffer(decode_worker.decode(data, RATE_HZ, max_seconds), "<i2")


def frequency(pcm: np.ndarray[Any, Any]) -> float:
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    return float(np.argmax(spectrum)) * RATE_HZ / len(pcm)


# ---- what is taken ---------------------------------------------------------------------------------------------------

CONTAINERS: dict[str, Callable[[], bytes]] = {
    "WAV, 24 bit": lambda: encoded("wav", "pcm_s24le"),
    "WAV, 32 bit": lambda: encoded("wav", "pcm_s32le"),
    "WAV, 8 bit": lambda: encoded("wav", "pcm_u8"),
    "WAV, 32 bit float": lambda: wav((tone() / 32768).astype("<f4"), 16_000, 3),
    "WAV, 64 bit float": lambda: wav((tone() / 32768).astype("<f8"), 16_000, 3),
    "WAV, 8 channels": lambda: encoded("wav", "pcm_s16le", layout="7.1"),
    "WAV, 8 kHz": lambda: encoded("wav", "pcm_s16le", rate=8_000),
    "WAV, 192 kHz": lambda: encoded("wav", "pcm_s16le", rate=192_000),
    "WAV, ADPCM": lambda: encoded("wav", "adpcm_ms"),
    "W64": lambda: encoded("w64", "pcm_s16le"),
    "AIFF": lambda: encoded("aiff", "pcm_s16be"),
    "AU": lambda: encoded("au", "pcm_s16be"),
    "CAF": lambda: encoded("caf", "pcm_s16be"),
    "ALAC in M4A": lambda: encoded("ipod", "alac"),
    "Vorbis in Ogg": lambda: encoded("ogg", "vorbis", layout="stereo"),
    "FLAC in Ogg": lambda: encoded("ogg", "flac"),
    "Opus in Matroska": lambda: encoded("matroska", "libopus"),
    "AAC in ADTS": lambda: encoded("adts", "aac"),
    "WMA": lambda: encoded("asf", "wmav2"),
    "5.1 in MP4": lambda: encoded("mp4", "aac", layout="5.1"),
    "a film in MP4": lambda: encoded("mp4", "aac", video="mpeg4"),
    "a film in WebM": lambda: encoded("webm", "libopus", video="libvpx"),
    "MP3 with a cover": lambda: with_cover(encoded("mp3", "libmp3lame")),
    "MP3 with large tags": lambda: id3(b"PRIV", bytes(300_000)) + encoded("mp3", "libmp3lame"),
    "WAV without an end": lambda: encoded("wav", "pcm_s16le")[:-4001],
    "WAV that declares too much": lambda: longer_than_it_is(encoded("wav", "pcm_s16le")),
    "WAV with other chunks": lambda: with_chunk(wav(tone(), 16_000), b"LIST", bytes(200_000)),
}


def id3(kind: bytes, content: bytes) -> bytes:
    """An ID3v2.4 tag of one frame."""

    def spread(number: int) -> bytes:
        return bytes((number >> shift) & 0x7F for shift in (21, 14, 7, 0))

    frame = kind + spread(len(content)) + b"\0\0" + content
    return b"ID3\x04\0\0" + spread(len(frame)) + frame


def with_cover(mp3: bytes) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="image2pipe") as output:
        stream = output.add_stream("png", rate=1)
        stream.width = stream.height = 16
        stream.pix_fmt = "rgb24"
        output.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")))
        output.mux(stream.encode(None))
    return id3(b"APIC", b"\0image/png\0\x03\0" + file.getvalue()) + mp3


def longer_than_it_is(data: bytes) -> bytes:
    at = data.index(b"data") + 4
    return data[:at] + struct.pack("<I", 0xFFFFFFF0) + data[at + 4 :]


def with_chunk(data: bytes, kind: bytes, content: bytes) -> bytes:
    return data[:12] + kind + struct.pack("<I", len(content)) + content + data[12:]


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_people_record_is_taken(name: str) -> None:
    pcm = here(CONTAINERS[name]())
    assert len(pcm) / RATE_HZ == pytest.approx(SECONDS, abs=0.09)  # lossy codecs pad
    assert frequency(pcm) == pytest.approx(440, abs=4)
    assert np.abs(pcm.astype(int)).max() < 32_000  # nor does a mix of channels clip


def test_streams_that_follow_each_other_are_one_recording() -> None:
    """Ogg files may be put behind each other; players go on with the next."""
    pcm = here(encoded("ogg", "flac") + encoded("ogg", "flac"))
    assert SECONDS - 0.05 <= len(pcm) / RATE_HZ <= 2 * SECONDS + 0.1


# ---- what is refused -------------------------------------------------------------------------------------------------


def floats(*faults: float) -> bytes:
    samples = (tone() / 32768).astype("<f4")
    samples[1000 : 1000 + len(faults), 0] = faults
    return wav(samples, 16_000, 3)


def header(**changed: int) -> bytes:
    """A WAV file with a header that lies: fields by their offset, as `at_24`."""
    data = bytearray(wav(tone(), 16_000))
    for where, value in changed.items():
        at = int(where.removeprefix("at_"))
        data[at : at + 4] = struct.pack("<I", value)
    return bytes(data)


REFUSED: dict[str, Callable[[], bytes]] = {
    "NaN": lambda: floats(float("nan")),
    "infinity": lambda: floats(float("inf")),
    "both infinities": lambda: floats(float("inf"), float("-inf")),
    "no channels": lambda: header(at_22=0x3E800000),
    "a rate of zero": lambda: header(at_24=0),
    "a header alone": lambda: wav_header(16_000, num_samples=0),
    "half a header": lambda: wav_header(16_000)[:20],
    "an MP3 that is text": lambda: id3(b"TIT2", b"\0Title") + b"all that I can say " * 200,
    "an Ogg of one page": lambda: encoded("ogg", "libopus")[:58],
    "a picture": lambda: with_cover(b"")[-200:],
    "HTML": lambda: b"<!doctype html><audio src='http://127.0.0.1/x.wav'></audio>" * 20,
    "a zip": lambda: b"PK\x03\x04" + bytes(500),
    "a gzip": lambda: b"\x1f\x8b\x08" + bytes(500),
    "a pickle": lambda: b"\x80\x04\x95" + bytes(500),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_is_no_recording_is_refused(name: str) -> None:
    with pytest.raises(decode_worker.Refused):
        here(REFUSED[name]())


@pytest.mark.parametrize("name", ["WAV, 24 bit", "FLAC in Ogg", "a film in MP4", "MP3 with a cover", "WMA", "AIFF"])
def test_a_file_that_breaks_off_gives_what_there_is_or_is_refused(name: str) -> None:
    data = CONTAINERS[name]()
    for share in (0.05, 0.3, 0.6, 0.95):
        try:
            pcm = here(data[: int(share * len(data))])
        except decode_worker.Refused:
            continue
        assert len(pcm) <= (SECONDS + 0.1) * RATE_HZ


@pytest.mark.parametrize("name", ["WAV, 24 bit", "Vorbis in Ogg", "5.1 in MP4", "AAC in ADTS"])
def test_files_with_flipped_bits_are_decoded_or_refused(name: str) -> None:
    data, generator = CONTAINERS[name](), np.random.default_rng(7)
    for _ in range(20):
        broken = bytearray(data)
        for at in generator.integers(0, len(data), 12):
            broken[at] ^= 1 << int(generator.integers(0, 8))
        with contextlib.suppress(decode_worker.Refused):
            assert len(here(bytes(broken))) <= 60 * RATE_HZ


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[tuple[int, Callable[[], int]]]:
    """A port, and how many have knocked there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def num_knocks() -> int:
            try:
                server.accept()[0].close()
            except TimeoutError:
                return 0
            return 1 + num_knocks()

        yield server.getsockname()[1], num_knocks


LISTS = {
    "HLS": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{url}\n#EXT-X-ENDLIST\n",
    "HLS with a key": '#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI="{url}"\n#EXTINF:10,\n{url}\n#EXT-X-ENDLIST\n',
    "M3U": "#EXTM3U\n{url}\n",
    "PLS": "[playlist]\nFile1={url}\nNumberOfEntries=1\n",
    "concat": "ffconcat version 1.0\nfile '{url}'\n",
    "DASH": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet><Representation>'
    "<BaseURL>{url}</BaseURL></Representation></AdaptationSet></Period></MPD>",
    "ASX": '<asx version="3.0"><entry><ref href="{url}"/></entry></asx>',
    "SDP": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {port} RTP/AVP 0\n",
    "SMIL": '<smil><body><audio src="{url}"/></body></smil>',
    "an address alone": "{url}",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_file_that_names_an_address_is_not_followed(name: str, listener: tuple[int, Callable[[], int]]) -> None:
    port, num_knocks = listener
    for scheme in ("http", "tcp", "rtsp", "file"):
        text = LISTS[name].format(url=f"{scheme}://127.0.0.1:{port}/a.wav", port=port)
        with pytest.raises(decode_worker.Refused):
            here(text.encode())
    assert num_knocks() == 0


def test_a_film_whose_sound_lies_elsewhere_is_not_followed(listener: tuple[int, Callable[[], int]]) -> None:
    port, num_knocks = listener
    data = encoded("mov", "pcm_s16le")
    at = data.index(b"dref") + 12  # the first entry: size, type, flags
    url = f"http://127.0.0.1:{port}/a\0".encode()
    entry = struct.pack(">I4sI", 12 + len(url), b"url ", 0) + url
    broken = data[:at] + entry + data[at + 12 :]
    with contextlib.suppress(decode_worker.Refused):
        here(broken)
    assert num_knocks() == 0


# ---- bounds, through the process -------------------------------------------------------------------------------------


def huge_index() -> bytes:
    """An MP4 whose index claims four thousand million samples."""
    data = encoded("mp4", "aac")
    at = data.index(b"stsz") + 12
    return data[:at] + struct.pack(">I", 0xFFFFFFFF) + data[at + 4 :]


BOMBS: dict[str, Callable[[], bytes]] = {
    "one sample a second": lambda: wav(np.zeros((2_000_000, 1), np.uint8), 1),
    "a rate beyond all": lambda: header(at_24=0xFFFFFFFF),
    "30,000 channels": lambda: wav(np.zeros((20, 30_000), np.int16), 16_000),
    "an index beyond all": huge_index,
    "a tag beyond all": lambda: b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(1_000_000),
}


@pytest.mark.skipif(sys.platform != "linux", reason="address space cannot be limited elsewhere")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "an index beyond all" else pytest.mark.slow) for name in BOMBS]
)
def test_a_bomb_costs_what_the_limits_say(name: str, tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(BOMBS[name]())
    command = [sys.executable, "-c", COSTS, str(tmp_path / "bomb")]
    costs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert costs["duration_s"] <= 60.0
    assert costs["cpu_s"] < 5
    assert costs["memory"] < decode.MEMORY_BYTES


# In a process of its own, since the memory of its children is that of the largest one.
COSTS = f"""
import asyncio, contextlib, json, resource, sys
from pathlib import Path
from realtime_tts.audio import decode
from realtime_tts.errors import AudioDecodeError

decode.CPU_S, duration_s = 4, 0.0
with contextlib.suppress(AudioDecodeError):
    duration_s = asyncio.run(decode.decode_recording(Path(sys.argv[1]).read_bytes(), {RATE_HZ})).duration_s
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
costs = dict(duration_s=duration_s, cpu_s=usage.ru_utime + usage.ru_stime, memory=1024 * usage.ru_maxrss)
print(json.dumps(costs))
"""


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_ten_hours_of_silence_are_stopped_in_the_first_minute() -> None:
    """In seven megabytes of FLAC."""
    data = silent_flac(36_000)
    before = cpu_of_children()
    with pytest.raises(AudioDecodeError, match="longer than 60 s"):
        asyncio.run(decode_recording(data, RATE_HZ))
    assert cpu_of_children() - before < 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CONTAINERS, *REFUSED])
def test_the_process_does_as_its_function(name: str) -> None:
    data = (CONTAINERS | REFUSED)[name]()
    if name in CONTAINERS:
        assert asyncio.run(decode_recording(data, RATE_HZ)).pcm == here(data).tobytes()
    else:
        with pytest.raises(decode_worker.Refused) as wanted:
            here(data)
        with pytest.raises(AudioDecodeError) as refused:
            asyncio.run(decode_recording(data, RATE_HZ))
        assert refused.value.message == str(wanted.value)
