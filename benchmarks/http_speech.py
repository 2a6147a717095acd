"""Time from text to first audio over plain HTTP, compared with the native protocol, and the cost of each container.

    python -m benchmarks.http_speech --rounds 40

Ways take turns on one server and one connection each, so that what else runs on the machine meets all of them; what
counts is the difference within a round. A speech is broken off with its first audio. Costs are processor time of one
thread for 160 ms of speech-like sound at 16 kHz.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

import httpx
import numpy as np
from tqdm import tqdm
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.first_audio import differences, measured
from realtime_tts.audio.speech_stream import SpeechStream
from realtime_tts.audio.stream_format import StreamFormat

TEXT = "Hello there, how can I help you today? I have all the time in the world."
FORMATS = ("pcm", "wav", "mp3", "opus", "flac", "aac")
REFERENCE = "native, PCM"
PAUSE_S = 0.1  # for the engine to become idle
RATE_HZ, PATCH_BYTES, NUM_PATCHES = 16_000, 2 * 2560, 60
CONTAINERS = {
    "PCM 16 kHz, as the model makes it": StreamFormat("raw", "pcm_s16le", 16_000),
    "PCM 24 kHz": StreamFormat("raw", "pcm_s16le", 24_000),
    "PCM f32 24 kHz": StreamFormat("raw", "pcm_f32le", 24_000),
    "WAV 24 kHz": StreamFormat("wav", "pcm_s16le", 24_000),
    "mu-law 8 kHz": StreamFormat("raw", "mulaw", 8_000),
    "A-law 8 kHz": StreamFormat("raw", "alaw", 8_000),
    "MP3 22.05 kHz, 32 kbit/s": StreamFormat("mp3", "mp3", 22_050, 32_000),
    "MP3 24 kHz, 96 kbit/s": StreamFormat("mp3", "mp3", 24_000, 96_000),
    "MP3 44.1 kHz, 128 kbit/s": StreamFormat("mp3", "mp3", 44_100, 128_000),
    "Ogg Opus 48 kHz, 32 kbit/s": StreamFormat("ogg", "opus", 48_000, 32_000),
    "FLAC 24 kHz": StreamFormat("flac", "flac", 24_000),
    "AAC 24 kHz, 64 kbit/s": StreamFormat("adts", "aac", 24_000, 64_000),
}


async def native(socket: ClientConnection, name: str) -> float:
    """Return the seconds from the text to the first packet."""
    audio = {"codec": "pcm_s16le", "sample_rate": 24_000}
    begun = time.perf_counter()
    text = {"type": "text", "context_id": name, "text": TEXT, "audio": audio, "params": {"mode": "clause"}}
    await socket.send(json.dumps(text))
    await socket.send(json.dumps({"type": "end", "context_id": name}))
    while not isinstance(await socket.recv(), bytes):
        pass
    heard = time.perf_counter()
    await socket.send(json.dumps({"type": "cancel", "context_id": name}))
    while '"context.cancelled"' not in str(await socket.recv()):
        pass
    return heard - begun


async def over_http(client: httpx.AsyncClient, name: str) -> float:
    """Return the seconds from the request to the first bytes of the response body."""
    begun = time.perf_counter()
    async with client.stream("POST", "/v1/audio/speech", json={"input": TEXT, "response_format": name}) as response:
        response.raise_for_status()
        reading = response.aiter_raw()
        await anext(reading)
        return time.perf_counter() - begun


async def measure(url: str, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each round, by interface."""
    ways = [REFERENCE, *FORMATS]
    times: dict[str, list[float]] = {way: [] for way in ways}
    address = url.replace("http", "ws", 1) + "/v1/stream"
    async with connect(address, proxy=None) as socket, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for index in tqdm(range(rounds + 2)):
            for way in ways if index % 2 else reversed(ways):
                speaking = native(socket, f"turn-{index}") if way == REFERENCE else over_http(client, way)
                elapsed_s = await speaking
                await asyncio.sleep(PAUSE_S)
                if index >= 2:  # the first rounds are warm-up
                    times[way].append(1000 * elapsed_s)
    return times


def speech_like() -> bytes:
    """Return speech-like samples: harmonics of a gliding pitch, in syllables, with some noise."""
    seconds = np.arange(NUM_PATCHES * PATCH_BYTES // 2) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.7 * seconds)) / RATE_HZ
    voiced = sum(np.sin(k * phase) / k for k in range(1, 25)) * np.clip(np.sin(2 * np.pi * 3.5 * seconds), 0, 1)
    samples = 4_000 * voiced + 200 * np.random.default_rng(0).standard_normal(len(seconds))
    return np.clip(np.rint(samples), -32_768, 32_767).astype("<i2").tobytes()


def cost(fmt: StreamFormat, pcm: bytes) -> tuple[float, float]:
    """Return the milliseconds of processor time for the set-up, and for a patch on average."""
    begun = time.thread_time()
    stream = SpeechStream(RATE_HZ, fmt)
    ready = time.thread_time()
    for start in range(0, len(pcm), PATCH_BYTES):
        stream.push(pcm[start : start + PATCH_BYTES])
    stream.finish()
    return 1000 * (ready - begun), 1000 * (time.thread_time() - ready) / NUM_PATCHES


def main() -> None:
    print(differences(measured(__doc__, measure), REFERENCE))
    print(f"\n{'container':36}{'set-up, ms':>12}{'160 ms of speech, ms':>24}")
    pcm = speech_like()
    for name, fmt in CONTAINERS.items():
        setups, patches = zip(*(cost(fmt, pcm) for _ in range(7)), strict=True)
        print(f"{name:36}{statistics.median(setups):12.2f}{statistics.median(patches):24.2f}")


if __name__ == "__main__":
    main()
