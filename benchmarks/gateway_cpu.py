"""Gateway processor time for each second of speech, with many listeners and a worker without a model.

    python -m benchmarks.gateway_cpu --streams 20 --seconds 30 --codec opus pcm_s16le

The gateway runs in a separate process with default settings except one: it refuses no speech when it is late, since the
machine is busy. Its worker repeats 20 s of the bundled voice at 48 kHz, faster than playback; `--streams` listeners in
another process receive a long text each over WebSockets, with normal pacing. Counted
from when all are three seconds ahead: processor time of the whole gateway process, all its threads, by seconds of audio
that have arrived (Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import signal
import sys
import tempfile
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np
import soxr
from websockets.asyncio.client import connect

from benchmarks.soak.process import ServerUnderTest
from realtime_tts.api.tts import TTS
from realtime_tts.bench.texts import LONG_TEXT
from realtime_tts.bench.usage import take_sample, usage_between

RATE_HZ, PATCH_SAMPLES, FRAME_S = 48_000, 7_680, 0.02
CHARS_PER_S = 15.0
RAMP_S, SETTLE_S = 4.0, 5.0  # listeners come one after the other; then they are as far ahead as they may be
WORKER = {
    "--sample-rate": RATE_HZ,
    "--patch-samples": PATCH_SAMPLES,
    "--chars-per-patch": CHARS_PER_S * PATCH_SAMPLES / RATE_HZ,
    "--text-lag-ms": 80.0,
    "--patch-delay-s": 0.02,
    "--max-streams": 4096,
}
SENTENCE = "and so the story goes on for a while, until there is nothing left of it to be told. "


def record_material(path: Path) -> None:
    """The bundled voice at 48 kHz, s16le."""
    with TTS() as tts:
        samples = soxr.resample(np.concatenate(list(tts.generate(LONG_TEXT))), tts.sample_rate, RATE_HZ)
    (np.clip(samples, -1, 1) * 32_767).astype("<i2").tofile(path)


def listen(url: str, codec: str, num_streams: int, seconds: float, num_packets: Synchronized[int]) -> None:
    """Run listeners in a separate process until it is terminated."""

    async def one(index: int) -> None:
        await asyncio.sleep(RAMP_S * index / num_streams)
        async with connect(url, proxy=None, max_size=None, compression=None) as socket:
            audio = {"codec": codec, "sample_rate": RATE_HZ}
            text = SENTENCE * math.ceil(CHARS_PER_S * seconds / len(SENTENCE))
            await socket.send(json.dumps({"type": "text", "context_id": "c", "text": text, "audio": audio}))
            await socket.send(json.dumps({"type": "end", "context_id": "c"}))
            async for frame in socket:
                if isinstance(frame, bytes):
                    num_packets.value += 1  # one process writes, and no two of its tasks at once
                elif '"context.done"' in frame or '"context.failed"' in frame or '"error"' in frame:
                    raise RuntimeError(f"the listener got {frame}")

    async def all_listeners() -> None:
        await asyncio.gather(*(one(index) for index in range(num_streams)))

    asyncio.run(all_listeners())


async def measure(server: ServerUnderTest, codec: str, given: argparse.Namespace) -> dict[str, float]:
    """Return, for one codec, the milliseconds of processor time for each second of speech, and the share of the time in
    which the event loop was busy."""
    await server.start()
    context = multiprocessing.get_context("spawn")
    num_packets = context.Value("q", 0, lock=False)
    duration_s = 2 * (RAMP_S + SETTLE_S + given.seconds)
    arguments = (server.stream_url, codec, given.streams, duration_s, num_packets)
    listeners = context.Process(target=listen, args=arguments, daemon=True)
    try:
        listeners.start()
        await asyncio.sleep(RAMP_S + SETTLE_S + 1.0)  # the process has to start, too
        before, num_before = take_sample([server.pid], server.stream_url), num_packets.value
        await asyncio.sleep(given.seconds)
        after, num_after = take_sample([server.pid], server.stream_url), num_packets.value
        if not listeners.is_alive():
            raise RuntimeError("the listeners have ended")
    finally:
        if listeners.is_alive():
            listeners.kill()
        await server.end(signal.SIGTERM)
    usage, audio_per_s = usage_between(before, after), FRAME_S * (num_after - num_before) / given.seconds
    return {"ms_per_s": 1000 * (usage.gateway_cores or 0.0) / audio_per_s, "loop": usage.event_loop or 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--codec", nargs="+", default=["opus", "pcm_s16le"])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the gateway")
    given = parser.parse_args()
    settings = {"max_late_ms": 0} | dict(pair.split("=", 1) for pair in given.set)
    results = {}
    with tempfile.TemporaryDirectory(prefix="cpu-") as directory:
        material = Path(directory) / "material.s16"
        record_material(material)
        for codec in given.codec:
            place = Path(directory) / codec
            place.mkdir()
            worker = {name: str(value) for name, value in {**WORKER, "--recording": material}.items()}
            server = ServerUnderTest(place, fake=True, settings=settings, worker=worker)
            try:
                results[codec] = asyncio.run(measure(server, codec, given))
            finally:
                server.destroy()
            figures = ", ".join(f"{name} {value:.2f}" for name, value in results[codec].items())
            print(f"{codec}: {figures}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
