"""Over a real socket, from a random voice: the same samples however the text was split, faults, and recovery."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Iterable

import numpy as np
import pytest
from stream_client import StreamClient, open_stream
from tiny_voice import RATE_HZ

from realtime_tts.bench.server_process import RunningServer, wait_until_ready

TEXT = "Hello there, this is one text! Does it matter how it was sent? No."
PCM = {"codec": "pcm_s16le", "sample_rate": RATE_HZ, "frame_ms": 20}


async def speak_pieces(
    client: StreamClient, context_id: str, pieces: Iterable[str], seed: int = 7, mode: str = "clause"
) -> bytes:
    """All PCM of one context whose text arrives in these pieces. Claims to have heard all, so that nothing waits."""
    for piece in pieces:
        await client.send("text", context_id=context_id, text=piece, audio=PCM, params={"seed": seed, "mode": mode})
    await client.send("end", context_id=context_id)
    while True:
        message = await client.receive(30)
        if message["type"] == "audio":
            heard_ms = 1000 * message["pts"] / RATE_HZ + 20
            await client.send("playback", context_id=context_id, played_ms=heard_ms)
        elif message["type"] == "context.done":
            return client.contexts[context_id].audio
        assert message["type"] != "context.failed", message


def assert_same(ours: bytes, theirs: bytes) -> None:
    """The same samples. Which streams share a batch depends on the moment, and other batch sizes sum in another order:
    the last place may differ, and so a rounding step of the quantiser."""
    a, b = (np.frombuffer(pcm, "<i2").astype(float) for pcm in (ours, theirs))
    assert len(a) == len(b)
    assert np.linalg.norm(a - b) <= 0.02 * np.linalg.norm(b)


def random_split(text: str, seed: int) -> list[str]:
    cuts = sorted(random.Random(seed).sample(range(1, len(text)), 9))
    return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]


async def test_any_split_of_the_text_gives_the_same_samples(tiny_server: RunningServer) -> None:
    async with open_stream(tiny_server.stream_url) as client:
        whole = await speak_pieces(client, "whole", [TEXT], mode="live")  # it is not streamed, so both modes are one
        assert len(whole) > RATE_HZ * 2 * 2
        assert np.abs(np.frombuffer(whole, "<i2")).max() > 1000
        assert_same(await speak_pieces(client, "letters", TEXT), whole)
        assert_same(await speak_pieces(client, "random", random_split(TEXT, seed=0)), whole)
        other = await speak_pieces(client, "other-seed", [TEXT], seed=8)
        with pytest.raises(AssertionError):
            assert_same(other, whole)


async def test_contexts_side_by_side_sound_as_they_do_alone(tiny_server: RunningServer) -> None:
    texts = {"a": "The first of three is about the weather.", "b": "The second one is on trains.", "c": "And a third."}
    alone: dict[str, bytes] = {}
    async with open_stream(tiny_server.stream_url) as client:
        for name, text in texts.items():
            alone[name] = await speak_pieces(client, name, [text])

    async with contextlib.AsyncExitStack() as stack:
        # All are let in before one speaks: a machine that finds itself too slow for three refuses the third.
        clients = [await stack.enter_async_context(open_stream(tiny_server.stream_url)) for _ in texts]

        async def one(index: int, name: str) -> bytes:
            await asyncio.sleep(0.1 * index)
            return await speak_pieces(clients[index], name, [texts[name]])

        together = await asyncio.gather(*(one(index, name) for index, name in enumerate(texts)))
    for name, pcm in zip(texts, together, strict=True):
        assert_same(pcm, alone[name])


async def test_a_killed_worker_costs_a_typed_failure_and_comes_back_by_itself(tiny_server: RunningServer) -> None:
    async with open_stream(tiny_server.stream_url) as client:
        await client.send("text", context_id="cut", text=TEXT * 8)
        for _ in range(5):
            await client.until("audio", 30)
        [worker] = tiny_server.worker_pids
        os.kill(worker, signal.SIGKILL)
        failure = await client.until("context.failed", 10)
        assert failure["code"] == "engine_lost"
        assert failure["retryable"] is True
        assert (TEXT * 8).startswith(failure["spoken_text"])
        assert failure["audio_ms"] >= 100, "what had arrived counts as spoken"
        await asyncio.to_thread(wait_until_ready, tiny_server.port)
        await client.speak("next", "I am back.")
        done = await client.until("context.done", 30)
        assert done["audio_ms"] > 300
    assert tiny_server.worker_pids != [worker]


async def test_everything_is_free_again_after_barge_in(tiny_server: RunningServer) -> None:
    async with open_stream(tiny_server.stream_url) as client:
        await client.send("text", context_id="c", text=TEXT * 5)
        while not client.contexts or len(client.contexts["c"].packets) < 30:
            await client.receive(30)
        await client.send("cancel", context_id="c")
        cancelled = await client.until("context.cancelled", 30)
        assert (TEXT * 5).startswith(cancelled["spoken_text"])
        assert cancelled["spoken_chars"] == len(cancelled["spoken_text"])
        await client.send("ping", id="after")
        assert (await client.receive(30))["type"] == "pong", "nothing of the context follows"
    end = time.monotonic() + 30
    while time.monotonic() < end:
        metrics = await asyncio.to_thread(tiny_server.get, "/metrics")
        if free_of_work(metrics):
            break
        await asyncio.sleep(0.1)
    assert free_of_work(metrics)


def free_of_work(metrics: str) -> bool:
    """No request runs or waits in any worker, and every block that is not kept as a prefix is free."""
    values = {line.split()[0].split("{")[0]: float(line.split()[1]) for line in metrics.splitlines() if line[:1] != "#"}
    idle = all(values[f"realtime_tts_engine_{name}"] == 0 for name in ("running", "waiting", "parked"))
    return idle and values["realtime_tts_engine_free_blocks"] == values["realtime_tts_engine_num_blocks"]
