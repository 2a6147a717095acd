"""The pipeline of one context: gapless, independent of chunks, right lengths, light to import."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.pipeline import AudioPipeline, warm_up
from tests.support.single_packets import Packet, single_packets
from tests.support.sound_files import read_sound_file

FORMATS = [
    AudioFormat(),
    AudioFormat(sample_rate=24_000, frame_ms=60),
    AudioFormat(codec="pcm_s16le", sample_rate=44_100),
    AudioFormat(codec="pcm_s16le", sample_rate=16_000, frame_ms=10),
    AudioFormat(codec="pcm_f32le", sample_rate=22_050),
    AudioFormat(codec="mulaw", sample_rate=8_000),
    AudioFormat(codec="alaw", sample_rate=8_000, frame_ms=40),
]

STREAMS = [
    AudioFormat("ogg_opus", 48_000, frame_ms=40, bitrate=64_000),
    AudioFormat("mp3", 22_050, frame_ms=40, bitrate=32_000),
    AudioFormat("mp3", 44_100, frame_ms=40, bitrate=128_000),
]
MOST_PADDING = {"ogg_opus": 0, "mp3": 3 * 1152}  # samples that a decoder gives beyond those that went in


def run(fmt: AudioFormat, chunks: list[bytes], input_rate_hz: int = 16_000) -> list[Packet]:
    pipeline = AudioPipeline(input_rate_hz, fmt)
    return single_packets([*map(pipeline.push, chunks), *pipeline.finish()])


def decoded(pieces: list[Packet]) -> np.ndarray:
    return read_sound_file(b"".join(piece.payload for piece in pieces))[0]


def tone(num_samples: int, hz: float = 220.0, rate: int = 16_000) -> bytes:
    return np.rint(9_000 * np.sin(2 * np.pi * hz * np.arange(num_samples) / rate)).astype("<i2").tobytes()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.frame_ms}")
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 9_999), max_size=8))
def test_any_chunking_gives_the_same_packets(fmt: AudioFormat, cuts: list[int]) -> None:
    pcm = tone(9_999)
    edges = [0, *sorted(2 * cut for cut in cuts), len(pcm)]
    assert run(fmt, [pcm[a:b] for a, b in itertools.pairwise(edges)]) == run(fmt, [pcm])


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.frame_ms}")
@pytest.mark.parametrize("num_samples", [1, 2_560, 9_999])
def test_packets_cover_the_sound_contiguously(fmt: AudioFormat, num_samples: int) -> None:
    packets = run(fmt, [tone(num_samples)])
    assert [packet.pts_samples for packet in packets] == [i * fmt.frame_samples for i in range(len(packets))]
    assert {packet.num_samples for packet in packets} == {fmt.frame_samples}
    total_s = len(packets) * fmt.frame_samples / fmt.sample_rate
    assert num_samples / 16_000 - 1e-4 <= total_s < num_samples / 16_000 + 2 * fmt.frame_ms / 1000 + 0.007


@pytest.mark.parametrize("fmt", STREAMS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.bitrate}")
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, 9_999), max_size=8))
def test_any_chunking_gives_the_same_file(fmt: AudioFormat, cuts: list[int]) -> None:
    pcm = tone(9_999)
    edges = [0, *sorted(2 * cut for cut in cuts), len(pcm)]
    pieces = run(fmt, [pcm[a:b] for a, b in itertools.pairwise(edges)])
    assert [(p.pts_samples, p.num_samples) for p in pieces] == [(p.pts_samples, p.num_samples) for p in run(fmt, [pcm])]
    assert np.array_equal(decoded(pieces), decoded(run(fmt, [pcm])))


@pytest.mark.parametrize("fmt", STREAMS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.bitrate}")
@pytest.mark.parametrize("num_samples", [1, 2_560, 9_999])
def test_pieces_of_a_file_count_the_samples_that_are_heard(fmt: AudioFormat, num_samples: int) -> None:
    pieces = run(fmt, [tone(num_samples)])
    *counted, rest = pieces
    assert [p.pts_samples for p in pieces] == [i * fmt.frame_samples for i in range(len(pieces))]
    assert {p.num_samples for p in counted} == {fmt.frame_samples}
    assert rest.num_samples == 0
    num_heard = len(counted) * fmt.frame_samples
    assert num_heard <= len(decoded(pieces)) <= num_heard + MOST_PADDING[fmt.codec]


@pytest.mark.parametrize("fmt", STREAMS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.bitrate}")
def test_a_file_sounds_like_the_samples(fmt: AudioFormat) -> None:
    seconds = np.arange(16_000) / 16_000
    sweep = np.rint(9_000 * np.sin(2 * np.pi * (100 * seconds + 400 * seconds**2))).astype("<i2").tobytes()
    plain = AudioFormat("pcm_s16le", fmt.sample_rate, frame_ms=40)
    expected = np.frombuffer(b"".join(p.payload for p in run(plain, [sweep])), "<i2") / 32_768
    heard = decoded(run(fmt, [sweep]))
    span = heard[: fmt.sample_rate // 2 + MOST_PADDING[fmt.codec]]
    delay = int(np.argmax(np.correlate(span, expected[: fmt.sample_rate // 2], "valid")))
    inner = slice(2_000, fmt.sample_rate - 4_000)
    assert np.sqrt(np.mean((heard[delay:][inner] - expected[inner]) ** 2)) < 0.02


@pytest.mark.parametrize("fmt", STREAMS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.bitrate}")
def test_a_file_begins_with_the_first_patch(fmt: AudioFormat) -> None:
    pieces = AudioPipeline(16_000, fmt).push(tone(2_560))
    assert pieces.num_bytes > 0


@pytest.mark.parametrize("fmt", STREAMS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.bitrate}")
def test_without_sound_there_is_no_file(fmt: AudioFormat) -> None:
    assert AudioPipeline(16_000, fmt).finish() == []


def test_a_ramp_passes_through_untouched_where_nothing_is_to_be_done() -> None:
    ramp = np.arange(-12_000, 12_000).astype("<i2")
    packets = run(AudioFormat(codec="pcm_s16le", sample_rate=16_000), [ramp.tobytes()])
    out = np.frombuffer(b"".join(p.payload for p in packets), "<i2")
    assert np.array_equal(out[: len(ramp)], ramp)


def test_floats_are_the_samples() -> None:
    samples = np.array([0, 1, -1, 16_384, -32_768, 32_767] * 100, dtype="<i2")
    packets = run(AudioFormat(codec="pcm_f32le", sample_rate=16_000), [samples.tobytes()])
    out = np.frombuffer(b"".join(p.payload for p in packets), "<f4")
    assert np.array_equal(out[: len(samples)], (samples / 32_768).astype("<f4"))


def test_no_seam_between_segments() -> None:
    """A slow sine cut into patches of 160 ms: no jump in the output is larger than the sine's own steepest."""
    pcm = tone(16_000, hz=100)
    chunks = [pcm[i : i + 5_120] for i in range(0, len(pcm), 5_120)]
    packets = run(AudioFormat(codec="pcm_s16le", sample_rate=48_000), chunks)
    out = np.frombuffer(b"".join(p.payload for p in packets), "<i2").astype(float)[480:47_500]  # the ends are kinks
    assert np.abs(np.diff(out)).max() <= 9_000 * 2 * np.pi * 100 / 48_000 + 2
    assert np.abs(np.diff(out, 2)).max() <= 9_000 * (2 * np.pi * 100 / 48_000) ** 2 + 4


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.frame_ms}")
def test_the_first_patch_gives_all_but_its_last_packet_at_once(fmt: AudioFormat) -> None:
    packets = AudioPipeline(16_000, fmt).push(tone(2_560))  # 160 ms
    assert len(packets) >= (160 - 8) // fmt.frame_ms


def test_a_context_without_sound_has_no_packets() -> None:
    assert all(run(fmt, []) == [] for fmt in FORMATS)


def test_warming_up_twice_does_no_harm() -> None:
    warm_up()
    warm_up()


def test_the_import_loads_no_codec_library() -> None:
    """The gateway's start-up pays for what it imports; PyAV and NumPy cost a quarter of a second."""
    code = (
        "import sys, realtime_tts.audio.pipeline, realtime_tts.audio.decode;"
        "print(sorted({'av', 'numpy', 'torch', 'soxr'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f"{f.codec}-{f.sample_rate}-{f.frame_ms}")
def test_no_format_runs_python_for_each_sample(fmt: AudioFormat) -> None:
    """Plain formats are encoded on the event loop: a call or a generator's turn for each sample would hold it."""
    pipeline = AudioPipeline(fmt.sample_rate, fmt)
    pipeline.push(tone(fmt.sample_rate))
    num_events = 0

    def count(*_: object) -> None:
        nonlocal num_events
        num_events += 1

    pcm = tone(fmt.sample_rate)
    sys.setprofile(count)
    try:
        pipeline.push(pcm)
    finally:
        sys.setprofile(None)
    assert num_events < fmt.sample_rate / 8


_COST = """
import ctypes, gc, json, os
from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.pipeline import AudioPipeline, warm_up

def kib():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024

def threads():
    return len(os.listdir("/proc/self/task"))

warm_up()
before = kib(), threads()
pipelines = [AudioPipeline(16_000, AudioFormat()) for _ in range(64)]
for pipeline in pipelines:
    pipeline.push(bytes(2 * 2560))
print(json.dumps({"kib": (kib() - before[0]) / 64, "threads": threads() - before[1], "cpus": os.cpu_count(),
                  "affinity": len(os.sched_getaffinity(0)), "allowed": len(os.sched_getaffinity(os.getppid()))}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory and threads are read from /proc")
def test_a_contexts_codecs_start_no_thread_and_hold_little() -> None:
    run = subprocess.run([sys.executable, "-c", _COST], capture_output=True, text=True, check=True)
    cost = json.loads(run.stdout)
    assert cost["threads"] == 0
    assert cost["affinity"] == cost["allowed"], "a processor is taken away for a moment only"
    assert cost["kib"] < 230, "it was 306, and is 170"
