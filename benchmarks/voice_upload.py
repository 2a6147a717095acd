"""Effect of an upload on running streams: a voice is made from a recording of one minute, while many streams run.

    python -m benchmarks.voice_upload --streams 32 --rounds 6

The gateway runs in a process of its own with a worker that has no model; listeners in another process take a long text
each, with normal pacing. Windows with an upload and without take turns, so that what else runs on the machine meets
both. A packet is late by how much more it lags behind its place in the speech than the window's median of its stream;
how long the gateway's event loop is held up, pings on one more socket tell, one every 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.gateway_cpu import CHARS_PER_S, RATE_HZ, SENTENCE, WORKER, record_material
from benchmarks.soak.process import ServerUnderTest
from realtime_tts.audio.containers import wav_header
from realtime_tts.bench.native_stream import HEADER

CODEC_RATE_HZ = 16_000
RAMP_S, SETTLE_S = 3.0, 6.0
LATE_S, PING_EVERY_S = 0.04, 0.01


def listen(url: str, num_streams: int, seconds: float, told: Connection) -> None:
    """Tells, when asked with a window (from, to: `time.monotonic`), how late its packets were, seconds."""
    arrivals: list[list[tuple[float, float]]] = [[] for _ in range(num_streams)]

    async def one(index: int) -> None:
        await asyncio.sleep(RAMP_S * index / num_streams)
        async with connect(url, proxy=None, max_size=None, compression=None) as socket:
            audio = {"codec": "pcm_s16le", "sample_rate": CODEC_RATE_HZ}
            text = SENTENCE * math.ceil(CHARS_PER_S * seconds / len(SENTENCE))
            await socket.send(json.dumps({"type": "text", "context_id": "c", "text": text, "audio": audio}))
            await socket.send(json.dumps({"type": "end", "context_id": "c"}))
            async for frame in socket:
                if isinstance(frame, bytes):
                    pts_s = HEADER.unpack_from(frame)[5] / CODEC_RATE_HZ
                    arrivals[index].append((time.monotonic(), time.monotonic() - pts_s))

    async def answer() -> None:
        while True:
            first_s, last_s = await asyncio.to_thread(told.recv)
            late: list[float] = []
            for stream in arrivals:
                lags = [lag_s for at_s, lag_s in stream if first_s <= at_s < last_s]
                late += [lag_s - statistics.median(lags) for lag_s in lags]
                stream.clear()
            told.send(late)

    async def everybody() -> None:
        await asyncio.gather(answer(), *(one(index) for index in range(num_streams)))

    asyncio.run(everybody())


async def ping(socket: ClientConnection, until_s: float) -> list[float]:
    """Send pings; return the seconds until their answers."""
    taken: list[float] = []
    while (begun := time.monotonic()) < until_s:
        await socket.send('{"type":"ping","id":"p"}')
        await socket.recv()
        taken.append(time.monotonic() - begun)
        await asyncio.sleep(max(0.0, PING_EVERY_S - taken[-1]))
    return taken


async def upload(server: ServerUnderTest, recording: bytes) -> float:
    """Upload a recording; return the seconds until the voice existed."""
    begun = time.monotonic()
    async with httpx.AsyncClient(timeout=120) as http:
        form, files = {"ttl_s": "10", "consent": "true"}, {"reference": ("r.wav", recording)}
        answer = await http.post(f"{server.url}/v1/voices", data=form, files=files)
        answer.raise_for_status()
    return time.monotonic() - begun


async def measure(server: ServerUnderTest, recording: bytes, given: argparse.Namespace) -> None:
    await server.start()
    here, there = multiprocessing.Pipe()
    duration_s = RAMP_S + SETTLE_S + 2 * given.rounds * (given.window + 3.0) + 30.0
    context = multiprocessing.get_context("spawn")
    listeners = context.Process(target=listen, args=(server.stream_url, given.streams, duration_s, there), daemon=True)
    late: dict[bool, list[float]] = {True: [], False: []}
    pings: dict[bool, list[float]] = {True: [], False: []}
    uploads: list[float] = []
    try:
        listeners.start()
        await asyncio.sleep(RAMP_S + SETTLE_S + 1.0)
        async with connect(server.stream_url, proxy=None, compression=None) as socket:
            await socket.send('{"type":"session.start"}')
            await socket.recv()
            for index in range(2 * given.rounds):
                with_upload = index % 2 == 1
                first_s = time.monotonic()
                # Bytes that differ at the end: the same recording would not be decoded again.
                sending = asyncio.create_task(upload(server, recording + bytes(2 * index))) if with_upload else None
                pings[with_upload] += await ping(socket, first_s + given.window)
                if sending is not None:
                    uploads.append(await sending)
                here.send((first_s, first_s + given.window))
                late[with_upload] += await asyncio.to_thread(here.recv)
                await asyncio.sleep(1.0)
    finally:
        listeners.kill()
        await server.terminate()
    print(f"uploads took {min(uploads):.1f} to {max(uploads):.1f} s, median {statistics.median(uploads):.1f}")
    for with_upload, name in ((False, "without"), (True, "with")):
        lags, held = np.array(late[with_upload]), 1000 * np.array(pings[with_upload])
        print(
            f"{name}: {len(lags)} packets, {np.count_nonzero(lags > LATE_S)} late by > 40 ms, "
            f"p99.9 {1000 * np.quantile(lags, 0.999):.1f} ms, max {1000 * lags.max():.1f} ms; "
            f"{len(held)} pings, p50 {np.median(held):.1f}, p99 {np.quantile(held, 0.99):.1f}, max {held.max():.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--window", type=float, default=6.0, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="up-") as directory:
        material = Path(directory) / "material.s16"
        record_material(material)
        minute = (material.read_bytes() * 10)[: 2 * RATE_HZ * 59]
        recording = wav_header(RATE_HZ, num_samples=len(minute) // 2) + minute
        worker = {key: str(value) for key, value in {**WORKER, "--recording": material}.items()}
        settings = {"max_late_ms": 0, "voices_dir": str(Path(directory) / "voices")}
        server = ServerUnderTest(Path(directory), fake=True, settings=settings, worker=worker)
        try:
            asyncio.run(measure(server, recording, given))
        finally:
            server.destroy()


if __name__ == "__main__":
    main()
