"""Requests whose text is still being written, against a worker that waits for it as the engine does."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from client_harness import MakeClient, collect, speak, until
from processes import worker_pids

from realtime_tts.contract import frames
from realtime_tts.workers.client import EngineClient, RequestStream

BEGIN, MORE, WHOLE = "one two three", "one two three four five", "one two three four five six."  # 13, 23, 28 characters


def speak_open(client: EngineClient, text: str = BEGIN) -> RequestStream:
    return speak(client, text, final=False, paced=False)


async def awaits_text(client: EngineClient) -> None:
    await until(lambda: bool(client.stats) and client.stats[0].awaiting_text == 1)


async def test_an_open_text_is_spoken_as_far_as_it_goes_and_to_its_end_when_it_is_final(
    make_client: MakeClient,
) -> None:
    client = await make_client()
    stream = speak_open(client)
    await awaits_text(client)
    assert stream.buffered_bytes == 2 * 2560  # a first patch, and fourteen characters are not in front of a second
    client.extend("r", MORE, False)
    await until(lambda: stream.buffered_bytes == 3 * 2 * 2560)
    await awaits_text(client)
    assert client.stats[0].running == 0  # a stream that waits for text stands still and is no hang
    client.extend("r", WHOLE, True)
    pcm, done = await collect(stream)
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches, len(pcm)) == ("stop", 7, 7 * 5120)
    assert (done.extensions, done.text_waits) == (2, 2)
    await until(lambda: client.stats[0].extensions == 2)


async def test_a_request_that_is_over_or_unknown_is_not_extended(make_client: MakeClient) -> None:
    client = await make_client()
    stream = speak(client, "four")
    await collect(stream)
    client.extend("r", WHOLE, True)
    client.extend("nobody", WHOLE, True)
    _, done = await collect(speak(client, "four", request_id="next"))
    assert isinstance(done, frames.Done)


@pytest.mark.parametrize(
    "text", ["two " + WHOLE, BEGIN + " x" * 40], ids=["does not begin with what was known", "too long"]
)
async def test_a_text_that_cannot_be_extended_so_fails_typed(make_client: MakeClient, text: str) -> None:
    client = await make_client()
    stream = speak_open(client)
    client.extend("r", text, False)
    client.extend("r", WHOLE, True)  # too late
    _, failed = await collect(stream)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "invalid_request"
    await until(lambda: client.stats[0].awaiting_text == 0)


async def test_cancelling_an_open_request_ends_it_at_once(make_client: MakeClient) -> None:
    client = await make_client()
    stream = speak_open(client)
    await awaits_text(client)
    client.close_context("c")
    client.extend("r", WHOLE, True)
    assert [type(message) for message in [message async for message in stream]] == [frames.Done]
    await until(lambda: client.stats[0].awaiting_text == 0)
    assert client.num_requests == 0


async def test_a_worker_that_is_lost_fails_its_open_requests(make_client: MakeClient) -> None:
    client = await make_client()
    stream = speak_open(client)
    await awaits_text(client)
    os.kill(worker_pids(client)[0], signal.SIGKILL)
    _, failed = await asyncio.wait_for(collect(stream), 20)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "engine_lost"
    client.extend("r", WHOLE, True)  # no worker has it any more
    await until(lambda: client.num_ready == 1)
    assert client.num_requests == 0
