"""Text that is spoken while it is being written, through the gateway, over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from processes import worker_pids
from stream_client import StreamClient, open_stream

MakeGateway = Callable[..., GatewayHarness]
BEGIN = ("Let me see ", "if there is a quiet ", "room with a vi")
REST = ("ew of the garden ", "for you. And then so.")
TEXT = "".join(BEGIN + REST)
LIVE = {"mode": "live"}


async def write(client: StreamClient, *pieces: str, context_id: str = "c", **fields: Any) -> None:
    for piece in pieces:
        await client.send("text", context_id=context_id, text=piece, params=LIVE, **fields)


async def begin(client: StreamClient) -> None:
    """Half a sentence, of which something is heard."""
    await write(client, *BEGIN)
    await client.until("audio", 10)


async def hear(client: StreamClient, context_id: str = "c") -> dict[str, Any]:
    """To the end; claims to have heard all, so that nothing waits."""
    while True:
        message = await client.receive(10)
        if message["type"] == "audio":
            await client.send("playback", context_id=context_id, played_ms=message["pts"] / 48 + 20)
        elif message["type"].startswith("context.") and message["type"] != "context.started":
            return message


def words_of(client: StreamClient, context_id: str = "c") -> str:
    return " ".join(word["text"] for word in client.contexts[context_id].words)


async def test_a_sentence_is_heard_before_it_is_written_and_to_its_end(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await begin(client)
        await write(client, *REST)
        await client.send("end", context_id="c")
        done = await hear(client)
    assert (done["type"], done["characters"]) == ("context.done", len(TEXT))
    assert words_of(client) == TEXT
    # Two segments, four characters a patch of 160 ms: none is lost where the text grew, and none is said twice.
    audio_ms = sum(160 * -(-len(part) // 4) for part in (TEXT[:-13], TEXT[-12:]))
    extra_ms = done["audio_ms"] - audio_ms  # the codec's own delay; a patch, if this machine stood still meanwhile
    assert 0 <= extra_ms <= 20 or 160 <= extra_ms <= 180


async def test_by_clauses_nothing_is_heard_of_half_a_sentence(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        for piece in BEGIN:
            await client.send("text", context_id="c", text=piece, params={"mode": "clause"})
        with pytest.raises(TimeoutError):
            await client.until("audio", 0.3)
        await client.send("end", context_id="c")
        await hear(client)
    assert words_of(client) == "".join(BEGIN)


@pytest.mark.parametrize(
    ("worker", "server", "mode"),
    [
        ({}, {}, "clause"),
        ({"text_lag_ms": 100}, {}, "live"),
        ({"text_lag_ms": 100}, {"mode": "clause"}, "clause"),
        ({}, {"mode": "live"}, "live"),
    ],
    ids=["estimated", "measured", "measured, set by the server", "estimated, set by the server"],
)
async def test_a_client_that_sets_no_mode_gets_and_is_told_the_default(
    make_gateway: MakeGateway, worker: dict[str, object], server: dict[str, object], mode: str
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.002, **worker}, **server)
    models = json.loads(await asyncio.to_thread(fetch, gateway, "/v1/models"))
    assert models["data"][0]["params"]["mode"] == {"choices": ["live", "clause"], "default": mode}
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start")
        assert (await client.receive())["params"]["mode"] == mode
        for piece in BEGIN:
            await client.send("text", context_id="c", text=piece)
        if mode == "live":
            await client.until("audio", 10)
        await client.send("end", context_id="c")
        await hear(client)
        await client.send("text", context_id="x", text="Yes.", params={"mode": "auto"})
        refusal = await client.receive()
        assert (refusal["code"], refusal["field"]) == ("invalid_request", "params.mode")


async def test_barge_in_while_a_segment_is_open(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await begin(client)
        await client.send("cancel", context_id="c")
        cancelled = await client.until("context.cancelled")
        assert TEXT.startswith(cancelled["spoken_text"])
        await client.send("text", context_id="c", text="too late")
        assert (await client.receive())["code"] == "context_closed"
        await write(client, TEXT, context_id="next")
        await client.send("end", context_id="next")
        assert (await hear(client, "next"))["type"] == "context.done"


@pytest.mark.parametrize("how", ["killed", "failed"])
async def test_what_befalls_the_engine_while_a_segment_is_open_is_told(make_gateway: MakeGateway, how: str) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.002})
    async with open_stream(gateway.ws_url) as client:
        await begin(client)
        if how == "killed":
            os.kill(worker_pids(gateway.gateway.engine)[0], signal.SIGKILL)
        else:
            await write(client, "ew, command fail now and then so")
        failed = await client.until("context.failed", 10)
        assert failed["code"] == ("engine_lost" if how == "killed" else "numerical_error")
        assert failed["audio_ms"] >= 100
        await client.send("text", context_id="c", text=" and more")
        assert (await client.receive())["code"] == "context_closed"
        while gateway.gateway.engine.num_ready == 0:
            await asyncio.sleep(0.02)
        await write(client, TEXT, context_id="next")
        await client.send("end", context_id="next")
        assert (await hear(client, "next"))["type"] == "context.done"


async def test_an_open_segment_goes_on_after_a_resume(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start")
        session_id = (await client.receive())["session_id"]
        await begin(client)
        client.socket.transport.abort()
    log = client.contexts["c"]
    async with open_stream(gateway.ws_url) as again:
        again.contexts = client.contexts
        await again.send("session.resume", session_id=session_id, contexts={"c": log.next_sequence - 1})
        [found] = (await again.until("session.resumed"))["contexts"]
        assert (found["state"], found["ended"]) == ("open", False)
        await write(again, TEXT[found["received_chars"] :])
        await again.send("end", context_id="c")
        done = await hear(again)
    assert (done["type"], done["characters"]) == ("context.done", len(TEXT))
    assert words_of(again) == TEXT


async def test_text_that_stalls_is_spoken_as_it_stands_and_what_follows_is_apart(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.002, "text_lag_ms": 100}, stall_flush_s=0.2)
    async with open_stream(gateway.ws_url) as client:
        await begin(client)
        while not words_of(client).endswith("vi"):  # the half word comes when the segment has been closed
            await client.receive(10)
        await write(client, *REST)
        await client.send("end", context_id="c")
        await hear(client)
    assert words_of(client) == "".join(BEGIN) + " " + "".join(REST)  # "vi" and "ew" are words of two segments


async def test_how_text_was_extended_and_waited_for_is_counted(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.002}, stall_flush_s=60)
    async with open_stream(gateway.ws_url) as client:
        await begin(client)
        while gateway.gateway.engine.stats[0].awaiting_text == 0:
            await asyncio.sleep(0.02)
        assert "realtime_tts_engine_awaiting_text 1.0" in await asyncio.to_thread(fetch, gateway, "/metrics")
        await write(client, *REST)
        await client.send("end", context_id="c")
        await hear(client)
        num_extensions = await counted(gateway, "engine_extensions_total", 0)
        assert await counted(gateway, "engine_text_waits_total", 0) >= 1
        os.kill(worker_pids(gateway.gateway.engine)[0], signal.SIGKILL)
        while gateway.gateway.engine.keeper.num_restarts == 0 or gateway.gateway.engine.num_ready == 0:
            await asyncio.sleep(0.02)
        await begin_again(client)
        assert await counted(gateway, "engine_extensions_total", num_extensions) > num_extensions


async def begin_again(client: StreamClient) -> None:
    await write(client, *BEGIN, context_id="d")
    await client.until("audio", 10)
    await write(client, *REST, context_id="d")
    await client.send("end", context_id="d")
    await hear(client, "d")


async def counted(gateway: GatewayHarness, name: str, before: float) -> float:
    """A counter, once it has passed a figure: workers tell at intervals."""
    for _ in range(100):
        lines = (await asyncio.to_thread(fetch, gateway, "/metrics")).splitlines()
        [line] = [line for line in lines if line.startswith(f"realtime_tts_{name} ")]
        if float(line.split()[1]) > before:
            break
        await asyncio.sleep(0.05)
    return float(line.split()[1])


def fetch(gateway: GatewayHarness, path: str) -> str:
    return httpx.get(gateway.url + path, trust_env=False, timeout=30).text
