"""A preview is made once for all that wait for it, under the limits of any speech, and ends with its last client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import numpy as np
import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream

from realtime_tts.server.admission.auth import create_key
from realtime_tts.speech.defaults import sample_sentence
from realtime_tts.speech.recordings import VoiceRecordings
from realtime_tts.speech.voices import VoiceLabels

MakeGateway = Callable[..., GatewayHarness]
PREVIEW = "/v1/voices/slt/preview"


@pytest.fixture
async def http() -> AsyncIterator[Callable[[GatewayHarness, str], httpx.AsyncClient]]:
    opened: list[httpx.AsyncClient] = []

    def client(gateway: GatewayHarness, key: str = "") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None)
        opened.append(
            httpx.AsyncClient(base_url=gateway.url, headers=headers, trust_env=False, timeout=60, limits=limits)
        )
        return opened[-1]

    yield client
    for each in opened:
        await each.aclose()


@pytest.fixture
def slow(make_gateway: MakeGateway) -> Iterator[GatewayHarness]:
    """A gateway whose worker makes nothing for as long as a test lasts."""
    return make_gateway(worker={"patch_delay_s": 600.0}, hang_s=3600.0)


async def until_speaking(gateway: GatewayHarness) -> None:
    while not gateway.usage().requests:
        await asyncio.sleep(0.01)


async def test_many_clients_of_a_preview_are_one_request_at_the_engine_that_ends_with_them(
    slow: GatewayHarness, http: Callable[..., httpx.AsyncClient]
) -> None:
    client, baseline = http(slow), slow.usage()
    asking = [asyncio.create_task(client.get(PREVIEW)) for _ in range(20)]
    await until_speaking(slow)
    await asyncio.sleep(0.2)  # for all to arrive
    assert slow.metric("http_speeches") == 1
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert slow.settle(baseline) == baseline


async def test_a_preview_is_made_for_clients_that_wait_when_the_first_one_leaves(
    slow: GatewayHarness, http: Callable[..., httpx.AsyncClient]
) -> None:
    def contexts() -> set[str]:
        workers = slow.gateway.engine.workers
        return slow.call(lambda: {name.partition("/")[0] for worker in workers for name in worker.requests})

    first = asyncio.create_task(http(slow).get(PREVIEW))
    await until_speaking(slow)
    made_first = contexts()
    waiting = asyncio.create_task(http(slow).get(PREVIEW))
    await asyncio.sleep(0.1)
    assert contexts() == made_first
    first.cancel()
    while not contexts() or contexts() == made_first:
        await asyncio.sleep(0.01)
    assert slow.metric("http_speeches") == 1
    waiting.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)


async def test_the_next_client_of_a_preview_gets_the_stream_of_the_one_that_leaves(
    make_gateway: MakeGateway, http: Callable[..., httpx.AsyncClient]
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 600.0, "max_streams": 1}, hang_s=3600.0)
    first = asyncio.create_task(http(gateway).get(PREVIEW))
    await until_speaking(gateway)
    waiting = asyncio.create_task(http(gateway).get(PREVIEW))
    await asyncio.sleep(0.1)
    first.cancel()
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    assert [task.result().text for task in done] == []
    waiting.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)


async def test_a_preview_takes_a_slot_of_its_token_and_its_tenant(
    make_gateway: MakeGateway, http: Callable[..., httpx.AsyncClient]
) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(worker={"patch_delay_s": 600.0}, hang_s=3600.0, api_key_hashes=(key_hash,))
    issued = await http(gateway, key).post("/v1/tokens", json={"max_sessions": 1})
    client = http(gateway, issued.json()["token"])
    asking = asyncio.create_task(client.get(PREVIEW))
    await until_speaking(gateway)
    refused = await client.get("/v1/voices/rms/preview")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_sessions")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_preview_needs_a_free_stream(make_gateway: MakeGateway, http: Callable[..., httpx.AsyncClient]) -> None:
    gateway = make_gateway(worker={"max_streams": 1})
    async with open_stream(gateway.ws_url) as stream:
        await stream.speak("a", "command stall. ")
        await stream.send("ping")
        await stream.until("pong")
        refused = await http(gateway).get(PREVIEW)
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")


async def test_a_preview_is_charged_once_and_not_when_it_is_known(
    make_gateway: MakeGateway, http: Callable[..., httpx.AsyncClient]
) -> None:
    client = http(make_gateway(max_chars_per_minute=len(sample_sentence("en"))))
    assert [(await client.get(PREVIEW)).status_code for _ in range(2)] == [200, 200]
    refused = await client.get("/v1/voices/rms/preview")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")


@pytest.mark.parametrize("outcome", ["done", "failed", "cancelled"])
async def test_a_preview_is_counted_as_speech_over_http(
    make_gateway: MakeGateway, http: Callable[..., httpx.AsyncClient], outcome: str
) -> None:
    gateway = make_gateway(worker={} if outcome == "done" else {"patch_delay_s": 600.0}, hang_s=3600.0)
    asking = asyncio.create_task(http(gateway).get(PREVIEW))
    if outcome != "done":
        await until_speaking(gateway)
        asking.cancel() if outcome == "cancelled" else gateway.run(gateway.gateway.drain(0.01))
    await asyncio.gather(asking, return_exceptions=True)
    while not gateway.metric("contexts_total", outcome=outcome):
        await asyncio.sleep(0.01)


async def test_a_server_that_shuts_down_ends_a_preview(
    slow: GatewayHarness, http: Callable[..., httpx.AsyncClient]
) -> None:
    asking = asyncio.create_task(http(slow).get(PREVIEW))
    await until_speaking(slow)
    slow.run(slow.gateway.drain(0.01))
    answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (503, "draining")


async def test_a_voice_renamed_while_its_preview_is_waited_for_speaks_itself(
    slow: GatewayHarness, http: Callable[..., httpx.AsyncClient]
) -> None:
    """Not the default voice, as for an unknown name: that preview would be kept as this voice's."""
    client, registry = http(slow), slow.gateway.voices
    tone = np.sin(np.arange(32_000) * 0.1).astype(np.float32)
    record = slow.run(registry.add(VoiceLabels("mine"), VoiceRecordings(reference=(tone, 16_000))))

    def speaking() -> set[str]:
        return slow.call(lambda: {voice for owner in slow.gateway.admission.slots.owners for voice in owner.voices})

    first = asyncio.create_task(client.get("/v1/voices/mine/preview"))
    while not speaking():
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(client.get("/v1/voices/mine/preview"))
    while slow.call(lambda: not slow.gateway.preview_locks[record.voice_id]._waiters):
        await asyncio.sleep(0.01)
    slow.run(registry.relabel(record.voice_id, name="other"))
    [before] = slow.call(lambda: list(slow.gateway.admission.slots.owners))
    first.cancel()
    while slow.call(lambda: before in slow.gateway.admission.slots.owners) or not speaking():
        await asyncio.sleep(0.01)
    assert speaking() == {record.voice_id}
    waiting.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
