"""A preview is made once for all that wait for it, under the limits of any speech, and ends with its last client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from gateway_harness import GatewayHarness
from starlette.requests import ClientDisconnect
from stream_client import open_stream

from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.voices.shared_job import SharedJobs
from realtime_tts.speech.sample import sentence_of

MakeGateway = Callable[..., GatewayHarness]
PREVIEW = "/v1/voices/slt/preview"


# ---- work that is shared ---------------------------------------------------------------------------------------------


class Client:
    """A request whose client may go."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request"})

    async def receive(self) -> dict[str, str]:
        return await self._messages.get()

    def go(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})


class Work:
    def __init__(self) -> None:
        self.num_begun = self.num_cancelled = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.num_begun += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return self.num_begun


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_work_is_done_once_for_all_that_ask_meanwhile() -> None:
    shared, work = SharedJobs[int](), Work()
    asking = [asyncio.create_task(shared.result("a", work, Client().receive)) for _ in range(3)]
    await settled()
    work.may_end.set()
    assert await asyncio.gather(*asking) == [1, 1, 1]
    assert await shared.result("a", work, Client().receive) == 2


async def test_work_ends_with_its_last_client() -> None:
    shared, work, clients = SharedJobs[int](), Work(), [Client(), Client()]
    asking = [asyncio.create_task(shared.result("a", work, client.receive)) for client in clients]
    await settled()
    clients[0].go()
    await settled()
    assert work.num_cancelled == 0
    clients[1].go()
    assert [type(error) for error in await asyncio.gather(*asking, return_exceptions=True)] == [ClientDisconnect] * 2
    await settled()
    assert (work.num_begun, work.num_cancelled) == (1, 1)
    work.may_end.set()
    assert await shared.result("a", work, Client().receive) == 2, "one that asks later is not given what was cancelled"


async def test_what_the_work_raises_is_raised_for_all() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError

    shared = SharedJobs[int]()
    asking = [asyncio.create_task(shared.result("a", fail, Client().receive)) for _ in range(2)]
    assert [type(error) for error in await asyncio.gather(*asking, return_exceptions=True)] == [ValueError] * 2


# ---- the gateway -----------------------------------------------------------------------------------------------------


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


async def test_many_that_ask_for_a_preview_are_one_request_at_the_engine_which_ends_with_them(
    slow: GatewayHarness, http: Callable[..., httpx.AsyncClient]
) -> None:
    client, baseline = http(slow), slow.usage()
    asking = [asyncio.create_task(client.get(PREVIEW)) for _ in range(20)]
    while slow.call(lambda: [job.num_clients for job in slow.gateway.making_previews._jobs.values()]) != [20]:
        await asyncio.sleep(0.01)
    await until_speaking(slow)
    assert slow.call(lambda: slow.gateway.admission.num_speeches) == 1
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert slow.settle(baseline) == baseline


async def test_a_preview_takes_a_place_of_its_token_and_its_key(
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
    client = http(make_gateway(max_chars_per_minute=len(sentence_of("en"))))
    assert [(await client.get(PREVIEW)).status_code for _ in range(2)] == [200, 200]
    refused = await client.get("/v1/voices/rms/preview")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")


async def test_a_server_that_shuts_down_ends_a_preview(
    slow: GatewayHarness, http: Callable[..., httpx.AsyncClient]
) -> None:
    asking = asyncio.create_task(http(slow).get(PREVIEW))
    await until_speaking(slow)
    slow.run(slow.gateway.drain(0.01))
    answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (503, "draining")
