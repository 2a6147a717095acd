"""Speech that begins from memory, of a random voice: it can be held, resumed and lost like any other."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import realtime_tts_client as client
from random_holds import assert_heard, hear_with_holds
from stream_client import StreamClient, open_stream
from tiny_voice import RATE_HZ

from realtime_tts.bench.server_process import RunningServer, running_server, wait_until_ready
from realtime_tts.engine.openings import MAX_OPENING_S

FORMAT: dict[str, Any] = {"codec": "pcm_s16le", "sample_rate": RATE_HZ, "frame_ms": 20}
NUM_BYTES = int(2 * RATE_HZ * (MAX_OPENING_S - 0.5))  # of an opening
PARAMS: dict[str, Any] = {"openings": "on", "seed": 5}


def num_hits(server: RunningServer) -> float:
    found = re.search(r"^realtime_tts_engine_opening_hits_total (\S+)", server.get("/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def assert_same(ours: bytes, theirs: bytes) -> None:
    """Check that the opening has the same samples, and what the device makes after it the same but for rounding."""
    assert ours[:NUM_BYTES] == theirs[:NUM_BYTES]
    a, b = (np.frombuffer(pcm, "<i2").astype(float) for pcm in (ours, theirs))
    assert np.linalg.norm(a - b) <= 0.02 * np.linalg.norm(b)


async def hear(stream: StreamClient, context_id: str) -> bool:
    """Receive a context to its end, and report all of it as played, so that nothing waits. Return `opening_used`."""
    while True:
        message = await stream.receive(60)
        if message["type"] == "audio":
            await stream.send("playback", context_id=context_id, played_ms=1000 * message["pts"] / RATE_HZ + 20)
        elif message["type"] == "context.done":
            return bool(message["opening_used"])


async def speak(stream: StreamClient, context_id: str, text: str) -> bool:
    await stream.speak(context_id, text, audio=FORMAT, params=PARAMS)
    return await hear(stream, context_id)


async def remembered(server: RunningServer, text: str) -> bytes:
    """Speak a text so often that it begins from memory. Return its audio."""
    async with open_stream(server.stream_url) as stream:
        before = await asyncio.to_thread(num_hits, server)
        assert [await speak(stream, name, text) for name in ("first", "second", "third")] == [False, False, True]
        audio = stream.contexts["third"].audio
        while await asyncio.to_thread(num_hits, server) == before:  # the worker reports it with its next heartbeat
            await asyncio.sleep(0.05)
        assert_same(audio, stream.contexts["second"].audio)
        return audio


@pytest.fixture(scope="module")
def server(tiny_voice: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose voice has no text head: a random one reads skips, and such speech is not kept."""
    directory = shutil.copytree(tiny_voice, tmp_path_factory.mktemp("voice") / "tiny-voice")
    policy = json.loads((directory / "serving.json").read_text())
    (directory / "serving.json").write_text(json.dumps(policy | {"text_head": None}))
    with running_server("--max-queued", "16", "--model", str(directory)) as running:
        yield running


async def test_the_words_heard_in_all_are_the_text_of_an_opening(server: RunningServer) -> None:
    text = "Sure, let me see about the order. It is on its way to you, and comes by noon. Is there more?"
    audio = await remembered(server, text)
    async with client.connect(server.url, audio=client.AudioFormat(**FORMAT)) as session:
        context = session.speak(text, playback="manual", params=PARAMS)
        heard = await hear_with_holds(session, context, random.Random(1))
        assert len(heard) > 3
        assert_heard(context.words, heard)
        assert [word.text for word in context.words] == text.split()
        assert heard[-1][1] == len(audio) / 2 / RATE_HZ * 1000


async def test_a_session_that_is_resumed_in_an_opening_hears_the_same(server: RunningServer) -> None:
    text = "Let me look at the map of the town. The shortest way leads along the river, and then over the bridge."
    audio = await remembered(server, text)
    async with open_stream(server.stream_url) as stream:
        await stream.send("session.start")
        session_id = (await stream.until("session.started"))["session_id"]
        await stream.speak("c", text, audio=FORMAT, params=PARAMS)
        for _ in range(20):
            await stream.until("audio", 60)
        stream.socket.transport.abort()
    log = stream.contexts["c"]
    async with open_stream(server.stream_url) as again:
        again.contexts["c"] = log
        await again.send("session.resume", session_id=session_id, contexts={"c": log.next_sequence - 1})
        await again.until("session.resumed", 60)
        await hear(again, "c")
    assert_same(log.audio, audio)


async def test_a_worker_that_dies_in_an_opening_costs_a_typed_failure(server: RunningServer) -> None:
    text = "One moment, I will ask my colleague. It may take a while, so please stay with me, and have a cup of tea."
    await remembered(server, text)
    async with open_stream(server.stream_url) as stream:
        before = await asyncio.to_thread(num_hits, server)
        await stream.speak("cut", text, audio=FORMAT, params=PARAMS)
        for _ in range(20):
            await stream.until("audio", 60)
            await stream.send("playback", context_id="cut", played_ms=0)  # so the worker waits in the opening
        while await asyncio.to_thread(num_hits, server) == before:
            await asyncio.sleep(0.05)
        [worker] = server.worker_pids
        os.kill(worker, signal.SIGKILL)
        failure = await stream.until("context.failed", 60)
        assert (failure["code"], failure["retryable"]) == ("engine_lost", True)
        assert text.startswith(failure["spoken_text"])
        await asyncio.to_thread(wait_until_ready, server.port)
        await speak(stream, "again", "I am back.")
        assert stream.contexts["again"].audio
