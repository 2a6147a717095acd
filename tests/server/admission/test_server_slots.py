"""A session holds a place for as long as it lives, whether its client is connected or not."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from processes import worker_pids
from stream_client import StreamClient, open_stream
from websockets.exceptions import InvalidStatus

from realtime_tts.server.admission.auth import create_key

MakeGateway = Callable[..., GatewayHarness]


async def refused_with(url: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as refused:
        async with open_stream(url, **options):
            pass
    return refused.value.response.status_code


async def start(client: StreamClient) -> str:
    await client.send("session.start")
    return str((await client.until("session.started"))["session_id"])


async def lose(client: StreamClient, gateway: GatewayHarness) -> None:
    """As if the cable was pulled: the session waits for its client."""
    connections = gateway.usage().connections
    client.socket.transport.abort()
    while gateway.usage().connections >= connections:
        await asyncio.sleep(0.01)


async def test_a_lost_session_keeps_its_place_for_its_client(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_sessions=2)
    async with open_stream(gateway.ws_url) as first, open_stream(gateway.ws_url) as second:
        lost_id = await start(first)
        await start(second)
        await first.speak("c", "Hello there.")
        await lose(first, gateway)
        assert gateway.usage().sessions == 2
        async with open_stream(f"{gateway.ws_url}?resume={lost_id}") as again:
            assert await refused_with(gateway.ws_url) == 503
            assert (
                await refused_with(f"{gateway.ws_url}?resume={lost_id}") == 503
            )  # one lost session lets one socket in
            await again.send("session.resume", session_id=lost_id, contexts={"c": -1})
            await again.until("session.resumed")
            assert (await again.until_terminal("c"))["type"] == "context.done"
            assert gateway.usage().sessions == 2
            assert await refused_with(gateway.ws_url) == 503


async def test_a_lost_session_is_given_up_for_a_new_one(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_sessions=2)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_stream(gateway.ws_url)) for _ in range(2)]
        lost_ids = [await start(client) for client in clients]
        await lose(clients[1], gateway)
        await lose(clients[0], gateway)
        async with open_stream(gateway.ws_url) as new:
            new_id = await start(new)
            assert set(gateway.call(lambda: list(gateway.gateway.sessions))) == {lost_ids[0], new_id}
            async with open_stream(gateway.ws_url) as late:
                await late.send("session.resume", session_id=lost_ids[1], contexts={})
                assert (await late.until("error"))["code"] == "session_not_found"


async def test_a_tokens_sessions_are_counted_lost_or_not(make_gateway: MakeGateway) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    asked = {"max_sessions": 1}
    post = functools.partial(asyncio.to_thread, httpx.post)
    issued = await post(f"{gateway.url}/v1/tokens", json=asked, headers={"authorization": f"Bearer {key}"})
    headers = {"authorization": f"Bearer {issued.json()['token']}"}
    session_id = ""
    for _ in range(12):
        async with open_stream(gateway.ws_url, additional_headers=headers) as client:
            session_id = await start(client)
            assert list(gateway.call(lambda: list(gateway.gateway.sessions))) == [session_id]
            await lose(client, gateway)
    address = f"{gateway.ws_url}?resume={session_id}"
    async with open_stream(address, additional_headers=headers) as again:
        assert await refused_with(gateway.ws_url, additional_headers=headers) == 429
        spoken = await post(f"{gateway.url}/v1/audio/speech", json={"input": "Hi."}, headers=headers)
        assert spoken.status_code == 429
        await again.send("session.resume", session_id=session_id, contexts={})
        await again.until("session.resumed")
        assert await refused_with(gateway.ws_url, additional_headers=headers) == 429


async def test_a_session_can_be_resumed_while_its_worker_is_restarted(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    (gate := tmp_path / "gate").touch()
    gateway = make_gateway(worker={"ready_gate": str(gate)})
    async with open_stream(gateway.ws_url) as client:
        session_id = await start(client)
        await client.speak("c", "command never. ")
        await client.until("audio")
        await lose(client, gateway)
    gate.unlink()
    (pid,) = worker_pids(gateway.gateway.engine)
    os.kill(pid, signal.SIGKILL)
    while gateway.call(lambda: gateway.gateway.engine.num_ready):
        await asyncio.sleep(0.01)
    assert await refused_with(gateway.ws_url) == 503
    async with open_stream(f"{gateway.ws_url}?resume={session_id}") as again:
        again.contexts = client.contexts
        await again.send(
            "session.resume", session_id=session_id, contexts={"c": client.contexts["c"].next_sequence - 1}
        )
        await again.until("session.resumed")
        assert (await again.until("context.failed"))["code"] == "engine_lost"
        gate.touch()


async def test_connecting_and_vanishing_does_not_pile_up_sessions(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_sessions=5)
    async with open_stream(gateway.ws_url) as honest:
        await start(honest)
        for _ in range(40):
            with contextlib.suppress(InvalidStatus):
                async with open_stream(gateway.ws_url) as client:
                    await start(client)
                    await lose(client, gateway)
            assert gateway.usage().sessions <= 5
        await honest.speak("c", "Hello there.")
        assert (await honest.until_terminal("c"))["type"] == "context.done"


async def test_a_lost_session_leaves_its_place_to_its_own_key_alone(make_gateway: MakeGateway) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(api_key_hashes=tuple(key_hash for _, key_hash in keys), max_sessions=1)
    first, second = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
    async with open_stream(gateway.ws_url, additional_headers=first) as client:
        await start(client)
        await lose(client, gateway)
        assert await refused_with(gateway.ws_url, additional_headers=second) == 503
        async with open_stream(gateway.ws_url, additional_headers=first) as again:
            await start(again)
            assert gateway.usage().sessions == 1


async def test_lost_sessions_count_for_their_key(make_gateway: MakeGateway) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), max_sessions_per_tenant=1)
    headers = {"Authorization": f"Bearer {key}"}
    async with open_stream(gateway.ws_url, additional_headers=headers) as client:
        await start(client)
        await lose(client, gateway)
        async with open_stream(gateway.ws_url, additional_headers=headers) as again:
            assert await refused_with(gateway.ws_url, additional_headers=headers) == 429
            await start(again)
            assert gateway.usage().sessions == 1


async def test_a_socket_admitted_for_a_lost_session_opens_no_other(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_sessions=1)
    async with open_stream(gateway.ws_url) as client:
        lost_id = await start(client)
        await lose(client, gateway)
        async with open_stream(f"{gateway.ws_url}?resume={lost_id}") as new:
            await new.send("session.start")
            assert await new.until_closed() == (1013, "too_many_sessions")
        assert gateway.usage().sessions == 1


async def test_a_full_engine_gets_no_new_session_for_a_lost_one(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"max_streams": 2}, max_queued=1)
    async with open_stream(gateway.ws_url) as busy, open_stream(gateway.ws_url) as client:
        lost_id = await start(client)
        for index in range(3):
            await busy.send("text", context_id=f"c{index}", text="command stall. ")
            await busy.send("flush", context_id=f"c{index}")
        await busy.send("ping")
        await busy.until("pong")
        assert await refused_with(gateway.ws_url) == 503
        await lose(client, gateway)
        assert await refused_with(gateway.ws_url) == 503
        async with open_stream(f"{gateway.ws_url}?resume={lost_id}") as again:
            await again.send("session.resume", session_id=lost_id, contexts={})
            await again.until("session.resumed")
        await busy.send("cancel")
        await busy.until(lambda m: m.get("state") == "all")
