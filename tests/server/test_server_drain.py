"""A server that shuts down: which clients are told, which may come back, and that nothing new begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from gateway_harness import GatewayHarness
from stream_client import StreamClient, open_stream
from websockets.exceptions import InvalidStatus

from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.admission.availability import GatewayState
from realtime_tts.session.connection import SessionState

MakeGateway = Callable[..., GatewayHarness]


async def speaking(client: StreamClient) -> str:
    """A client with a context that goes on for long; returns the id of its session."""
    await client.send("text", context_id="a", text="command never. ")
    session_id = (await client.until("session.started"))["session_id"]
    await client.until("audio")
    return str(session_id)


async def refused(gateway: GatewayHarness, **options: object) -> tuple[int, str, str]:
    """Status, code and Retry-After of a handshake that must fail."""
    with pytest.raises(InvalidStatus) as caught:
        async with open_stream(gateway.ws_url, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}")["code"], response.headers["retry-after"]


async def test_a_socket_without_a_session_is_told_at_once(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as busy, open_stream(gateway.ws_url) as silent:
        await speaking(busy)
        gateway.call(gateway.server.stop)
        assert await silent.until_closed() == (1001, "draining")
        assert (await refused(gateway))[:2] == (503, "draining")
        await busy.send("cancel", context_id="a")
        assert await busy.until_closed() == (1001, "draining")


@pytest.mark.parametrize("first", ["text", "ping", "session.start", "session.resume", "nonsense"])
async def test_a_first_frame_that_comes_after_the_drain_opens_nothing(make_gateway: MakeGateway, first: str) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as client:
        gateway.call(
            lambda: setattr(gateway.gateway.availability, "state", GatewayState.DRAINING)
        )  # and it was not told yet
        await client.send(first, context_id="a", text="Hello there. ", session_id="s", contexts={})
        assert await client.until_closed() == (1001, "draining")
        assert not client.messages
    assert gateway.metric("sessions_opened_total") == 0


async def test_a_session_with_speech_can_be_resumed_during_the_drain(make_gateway: MakeGateway) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(api_key_hashes=tuple(key_hash for _, key_hash in keys))
    mine, theirs = ({"additional_headers": {"Authorization": f"Bearer {key}"}} for key, _ in keys)
    async with open_stream(gateway.ws_url, **mine) as client:
        session_id = await speaking(client)
        gateway.call(gateway.server.stop)
        with pytest.raises(InvalidStatus):
            async with open_stream(gateway.ws_url, **mine):
                pass
        client.socket.transport.abort()
    while gateway.call(lambda: gateway.gateway.sessions[session_id].session.state) is SessionState.CONNECTED:
        await asyncio.sleep(0.01)
    assert (await refused(gateway, **theirs))[:2] == (503, "draining")
    address = f"{gateway.ws_url}?resume={session_id}"
    assert (await refused(gateway, **mine))[:2] == (503, "draining")
    with pytest.raises(InvalidStatus):
        async with open_stream(address, **theirs):
            pass
    async with open_stream(address, **mine) as stranger:
        await stranger.send("text", context_id="b", text="Hello.")
        assert await stranger.until_closed() == (1001, "draining")
    async with open_stream(address, **mine) as back:
        back.contexts = client.contexts
        await back.send("session.resume", session_id=session_id, contexts={"a": client.contexts["a"].next_sequence - 1})
        assert (await back.until("session.resumed"))["contexts"][0]["state"] == "open"
        await back.send("text", context_id="b", text="Hello.")
        assert (await back.until("error"))["code"] == "draining"
        await back.send("cancel", context_id="a")
        assert (await back.until_terminal("a"))["type"] == "context.cancelled"
        assert await back.until_closed() == (1001, "draining")
