"""SIGTERM lets speech end; a second one does not. The server as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_processes import ServerProcess
from stream_client import open_stream
from websockets.exceptions import InvalidStatus

SPEECH = "It takes a few seconds until all of this has been said and sent, since audio is paced. "


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    servers: list[ServerProcess] = []

    def start(**settings: Any) -> ServerProcess:
        servers.append(ServerProcess(tmp_path / "log.txt", **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def exit_status(server: ServerProcess) -> int:
    return await asyncio.wait_for(asyncio.to_thread(server.process.wait), 10)


async def test_sigterm_refuses_newcomers_and_lets_speech_end(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    async with (
        httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=30) as http,
        open_stream(server.ws_url) as client,
    ):
        async with open_stream(server.ws_url) as idle:
            await idle.send("session.start")
            await idle.until("session.started")
            await client.speak("c", SPEECH * 2)
            await client.until("audio")
            server.process.send_signal(signal.SIGTERM)
            assert (await idle.until_closed())[0] == 1001
        assert (await http.get("/healthz")).status_code == 200
        response = await http.get("/readyz")
        assert (response.status_code, response.json()["code"]) == (503, "draining")
        with pytest.raises(InvalidStatus) as refused:
            async with open_stream(server.ws_url):
                pass
        assert refused.value.response.status_code == 503
        await client.send("text", context_id="new", text="Hello.")
        assert (await client.until("error"))["code"] == "draining"
        assert (await client.until_terminal("c", 60))["type"] == "context.done"
        assert (await client.until_closed())[0] == 1001
    assert await exit_status(server) == 0
    assert not any(is_alive(pid) for pid in server.workers)


async def test_speech_that_outlasts_the_drain_is_cut_off(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(drain_timeout_s=0.5)
    async with open_stream(server.ws_url) as client:
        await client.send("text", context_id="c", text="command never. ")
        await client.until("audio")
        server.process.send_signal(signal.SIGTERM)
        assert (await client.until_closed())[0] == 1001
    assert await exit_status(server) == 0
    assert client.contexts["c"].terminal is not None


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(start_server: Callable[..., ServerProcess], second: int) -> None:
    server = start_server()
    # With a full queue the library would not read the end of the connection, and wait for it for ten seconds.
    async with (
        open_stream(server.ws_url, max_queue=None) as client,
        httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=30) as http,
    ):
        await client.send("text", context_id="c", text="command never. ")
        await client.until("audio")
        server.process.send_signal(signal.SIGTERM)
        while (await http.get("/readyz")).status_code == 200:  # two signals that wait for the process may become one
            await asyncio.sleep(0.01)
        server.process.send_signal(second)
        assert (await client.until_closed())[0] == 1001
        assert await exit_status(server) == 0
    assert client.contexts["c"].terminal is not None
    assert not any(is_alive(pid) for pid in server.workers)


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_logs_hold_no_text_audio_or_keys(
    start_server: Callable[..., ServerProcess], tmp_path: Path, log_format: str
) -> None:
    from realtime_tts.server.admission.auth import create_key

    key, key_hash = create_key()
    server = start_server(api_key_hashes=[key_hash], log_level="debug", log_format=log_format)
    async with open_stream(f"{server.ws_url}?api_key={key}") as client:
        await client.speak("canary-context", "The canary sang quetzalcoatl. command fail. ")
        await client.until_terminal("canary-context")
        await client.send("text", context_id="d", text="Another xylophonist said command never. ")
        await client.until("audio")
        await client.send("cancel", context_id="d")
        await client.until_terminal("d")
        await client.socket.send('{"type":"text","text":"broken zygomorphic')
        await client.until("error")
        await client.send("text", context_id="e", text=5, secret="fandango")
        await client.until("error")
    server.process.send_signal(signal.SIGTERM)
    await exit_status(server)
    log = (tmp_path / "log.txt").read_text()
    for canary in ("quetzalcoatl", "xylophonist", "zygomorphic", "fandango", "canary", key):
        assert canary not in log
    assert "session_opened" in log
    assert "context_failed" in log
    if log_format == "json":
        assert all(json.loads(line)["event"] for line in log.splitlines())
