"""A new dialect is a module with its routes and one entry in the registry, as the toy in `toy_dialect.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import toy_dialect
from gateway_harness import GatewayHarness
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from realtime_tts.server import app
from realtime_tts.server.admission.auth import create_key


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(app, "DIALECTS", [*app.DIALECTS, toy_dialect.router])
    app.api_routes.cache_clear()
    yield
    app.api_routes.cache_clear()


def address_of(harness: GatewayHarness) -> str:
    return harness.ws_url.replace("/v1/stream", "/toy")


async def read_until(socket: ClientConnection, last: str) -> list[str | bytes]:
    frames: list[str | bytes] = []
    while not frames or not (isinstance(frames[-1], str) and frames[-1].startswith(last)):
        frames.append(await asyncio.wait_for(socket.recv(), 20))
    return frames


async def test_a_toy_dialect_speaks(make_gateway: Callable[..., GatewayHarness]) -> None:
    url = address_of(make_gateway())
    async with connect(url, proxy=None) as socket:
        await socket.send("Hello\nthere.\n.")  # three messages
        frames = await read_until(socket, "done")
        await socket.send("Again.\n.")  # the next turn
        again = await read_until(socket, "done")
    assert [frame for frame in frames if isinstance(frame, str)] == ["hello", "word Hello", "word there.", "done"]
    assert {len(frame) for frame in frames if isinstance(frame, bytes)} == {640}
    assert "word Again." in again


async def test_a_toy_dialect_is_interrupted_and_refused(make_gateway: Callable[..., GatewayHarness]) -> None:
    url = address_of(make_gateway())
    async with connect(url, proxy=None) as socket:
        await socket.send("command never.")
        while not isinstance(await socket.recv(), bytes):
            pass
        await socket.send("!")
        await read_until(socket, "heard")
        await socket.send(b"\x00")
        assert await read_until(socket, "error") == ["error invalid_message"]
        await socket.send("command fail.\n.")
        assert (await read_until(socket, "error"))[-1] == "error numerical_error"


async def test_a_client_is_welcomed_before_it_says_anything(make_gateway: Callable[..., GatewayHarness]) -> None:
    harness = make_gateway()
    async with connect(address_of(harness), proxy=None) as socket:
        assert await asyncio.wait_for(socket.recv(), 20) == "hello"
        assert harness.usage().sessions == 0


async def test_a_dialect_says_where_its_clients_put_their_key(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    key, key_hash = create_key()
    url = address_of(make_gateway(api_key_hashes=(key_hash,)))
    async with connect(url, additional_headers={"x-toy-key": key}, proxy=None) as socket:
        assert await asyncio.wait_for(socket.recv(), 20) == "hello"
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, additional_headers={"x-other-key": key}, proxy=None)
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize(("strict", "last"), [(False, "done"), (True, "error voice_not_found")])
async def test_voices_of_another_service_are_spoken_unless_ids_are_strict(
    make_gateway: Callable[..., GatewayHarness], strict: bool, last: str
) -> None:
    url = address_of(make_gateway(strict_ids=strict))
    async with connect(url + "?voice=alloy", proxy=None) as socket:
        await socket.send("Hello.\n.")
        assert (await read_until(socket, last))[-1] == last


async def test_a_dialect_that_cannot_be_made_refuses_the_handshake_in_its_own_words(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    url = address_of(make_gateway())
    with pytest.raises(InvalidStatus) as refused:
        await connect(url + "?voice=", proxy=None)
    assert refused.value.response.status_code == 400
    assert refused.value.response.body == b'{"no":"an empty voice"}'
    async with connect(url, proxy=None) as socket:
        assert socket.response is not None
        assert socket.response.headers["x-toy"] == "yes"


async def test_a_toy_client_leaves_when_it_has_heard_all(make_gateway: Callable[..., GatewayHarness]) -> None:
    url = address_of(make_gateway())
    async with connect(url, proxy=None) as socket:
        await socket.send("Hello.\n.\nbye")
        assert (await read_until(socket, "done"))[-1] == "done"
        with pytest.raises(ConnectionClosedOK):
            await asyncio.wait_for(socket.recv(), 20)


async def test_a_session_that_no_client_can_resume_is_not_kept_after_its_connection(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    harness = make_gateway()
    url = address_of(harness)
    baseline = harness.usage()
    async with connect(url, proxy=None) as socket:
        await socket.send("command never.")
        while not isinstance(await socket.recv(), bytes):
            pass
        assert harness.usage().sessions == 1
        socket.transport.abort()
    assert harness.settle(baseline) == baseline
