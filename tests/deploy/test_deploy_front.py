"""The shipped front before two hosts: which host a client reaches, what a host's drain and death are for clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest
import realtime_tts_client as speech
from front_harness import ADDRESSES, HOST_HEADER, Fleet, haproxy_program
from proxy_harness import NAME, Certificate, running_proxy
from stream_client import StreamClient, open_stream
from websockets.exceptions import InvalidStatus

from realtime_tts.workers.socket_directory import clear_leftovers

pytestmark = pytest.mark.slow

MAX_SESSIONS = 12  # of a host
PATIENT_S = 60.0  # for what a busy machine may delay
TEXT = "one two three four five six seven eight nine ten. eleven twelve thirteen fourteen fifteen sixteen. "


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    running = Fleet(tmp_path_factory.mktemp("fleet"), MAX_SESSIONS)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Fleet]:
    """One whose hosts may be ended."""
    running = Fleet(tmp_path, MAX_SESSIONS)
    try:
        yield running
    finally:
        running.close()


@contextlib.asynccontextmanager
async def stream(fleet: Fleet, sticky: str = "", port: int | None = None) -> Any:
    """A client through the front, and the address of its host."""
    query = f"?sticky={sticky}" if sticky else ""
    url = f"ws://127.0.0.1:{port or fleet.port}/v1/stream{query}"
    async with open_stream(url, additional_headers={"Authorization": f"Bearer {fleet.key}"}) as client:
        assert client.socket.response is not None
        yield client, client.socket.response.headers[HOST_HEADER]


async def start_session(client: StreamClient) -> str:
    await client.send("session.start")
    session_id: str = (await client.until("session.started", PATIENT_S))["session_id"]
    return session_id


async def resume(client: StreamClient, session_id: str) -> str:
    """The type of the answer."""
    await client.send("session.resume", session_id=session_id, contexts={})
    answers = ("session.resumed", "error")
    return str((await client.until(lambda message: message["type"] in answers, PATIENT_S))["type"])


async def comes_back(fleet: Fleet, number: int) -> str:
    """A client that lost its connection is admitted with its own session: the type of the answer."""
    async with stream(fleet, f"caller-{number}") as (client, _):
        session_id = await start_session(client)
        client.socket.transport.abort()
    async with stream(fleet, f"caller-{number}&resume={session_id}") as (client, _):
        return await resume(client, session_id)


def num_sessions(fleet: Fleet, address: str) -> int:
    answer = httpx.get(f"{fleet.hosts[address].url}/readyz", trust_env=False, timeout=PATIENT_S)
    return int(answer.json()["sessions"])


async def until_free(fleet: Fleet) -> None:
    """No session is left at any host."""
    for address in ADDRESSES:
        end_s = time.monotonic() + PATIENT_S
        while num_sessions(fleet, address):
            assert time.monotonic() < end_s
            await asyncio.sleep(0.05)


async def test_the_host_with_the_fewest_streams_gets_the_next(fleet: Fleet) -> None:
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(stream(fleet)) for _ in range(6)]
        hosts = [host for _, host in opened]
        assert sorted(hosts) == sorted(3 * ADDRESSES)
        for client, host in opened:
            if host == hosts[0]:
                await client.socket.close()
        assert {(await stack.enter_async_context(stream(fleet)))[1] for _ in range(3)} == {hosts[0]}


async def test_a_client_that_lost_its_connection_comes_back_to_its_host(fleet: Fleet) -> None:
    """By chance alone all would in one of 256 runs."""
    assert {await comes_back(fleet, number) for number in range(8)} == {"session.resumed"}


async def test_fronts_agree_where_a_client_belongs(fleet: Fleet) -> None:
    """However each of them has heard of the hosts: here one after the other, in different orders."""
    if haproxy_program()[1] < (3, 0):
        pytest.skip("needs HAProxy 3.0")
    ports = []
    for first in ADDRESSES:
        fleet.names.addresses = [first]
        ports.append(fleet.another_front())
    fleet.names.addresses = list(ADDRESSES)
    for port in (*ports, fleet.port):
        fleet.until_found(port)
    for number in range(8):
        sticky = f"caller-{number}"
        async with stream(fleet, sticky, ports[0]) as (_, one), stream(fleet, sticky, ports[1]) as (_, other):
            assert one == other


async def test_a_full_host_is_passed_over_and_full_hosts_say_so_themselves(fleet: Fleet) -> None:
    await until_free(fleet)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(2 * MAX_SESSIONS):  # wherever half of them would rather go
            client, _ = await stack.enter_async_context(stream(fleet, "one" if number % 2 else ""))
            await start_session(client)
        with pytest.raises(InvalidStatus) as caught:
            await stack.enter_async_context(stream(fleet))
    response = caught.value.response
    assert (response.status_code, response.headers["content-type"]) == (503, "application/json")
    assert b'"overloaded"' in (response.body or b"")
    await until_free(fleet)


def test_operator_requests_are_not_let_through(fleet: Fleet) -> None:
    headers = {"Authorization": f"Bearer {fleet.key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{fleet.port}", trust_env=False, timeout=PATIENT_S) as http:
        assert http.get("/front").status_code == 200
        assert http.get("/metrics", headers=headers).status_code == 404
        assert http.get("/v1/voices", headers=headers).status_code == 200
        answer = http.delete("/v1/voices/one", headers=headers)
    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (403, "forbidden", False)


async def test_behind_nginx_it_is_the_same(fleet: Fleet, certificate: Certificate, tmp_path: Path) -> None:
    """The shipped nginx brings TLS, the front leads: a query that makes a client stick goes through both."""
    with running_proxy("nginx", tmp_path, certificate, fleet.port) as proxy:
        found = set()
        for _ in range(4):
            address = {"host": "127.0.0.1", "port": proxy.https_port, "ssl": certificate.context()}
            headers = {"Authorization": f"Bearer {fleet.key}"}
            url = f"wss://{NAME}/v1/stream?sticky=behind"
            async with open_stream(url, additional_headers=headers, **address) as client:
                assert client.socket.response is not None
                found.add(client.socket.response.headers[HOST_HEADER])
                await client.speak("a", "Hello through both.")
                assert (await client.until_terminal("a", PATIENT_S))["type"] == "context.done"
    assert len(found) == 1


async def test_a_host_that_drains_speaks_to_the_end_and_gets_no_new_stream(mortal: Fleet) -> None:
    async with stream(mortal) as (speaking, host):
        await speaking.speak("a", 4 * TEXT)
        await speaking.until("audio", PATIENT_S)
        mortal.hosts[host].process.send_signal(signal.SIGTERM)
        [other] = set(ADDRESSES) - {host}
        for _ in range(6):  # from the first moment on
            async with stream(mortal) as (client, found):
                await start_session(client)
                assert found == other
        assert mortal.hosts[host].process.poll() is None
        assert (await speaking.until_terminal("a", PATIENT_S))["type"] == "context.done"
        assert (await speaking.until_closed(PATIENT_S)) == (1001, "draining")
    assert mortal.hosts[host].process.wait(PATIENT_S) == 0


async def test_a_host_that_dies_loses_no_word(mortal: Fleet) -> None:
    """Its clients have the rest spoken by the other one; other clients are not affected."""
    audio = speech.AudioFormat("pcm_s16le", sample_rate=16000)
    text = 4 * TEXT

    async def listen(session: speech.Session, has_begun: asyncio.Event) -> list[str]:
        words = []
        async for packet in session.speak(text, params={"seed": 1}):
            words += [word.text for word in packet.words]
            has_begun.set()
        return words

    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                speech.connect(f"http://127.0.0.1:{mortal.port}", audio=audio, api_key=mortal.key, playback="consumed")
            )
            for _ in range(6)
        ]
        ids, begun = [session.id for session in sessions], [asyncio.Event() for _ in sessions]
        tasks = [asyncio.create_task(listen(*pair)) for pair in zip(sessions, begun, strict=True)]
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in begun)), PATIENT_S)
        victim = max(ADDRESSES, key=lambda address: num_sessions(mortal, address))
        num_there = num_sessions(mortal, victim)
        os.kill(mortal.hosts[victim].process.pid, signal.SIGKILL)
        heard = await asyncio.wait_for(asyncio.gather(*tasks), PATIENT_S)
        clear_leftovers()  # as the next start there does
        moved = [session.id != before for session, before in zip(sessions, ids, strict=True)]
    assert sum(moved) == num_there
    for words, has_moved in zip(heard, moved, strict=True):
        assert [word for word, _ in groupby(words)] == text.split()
        assert len(words) - len(text.split()) <= has_moved
