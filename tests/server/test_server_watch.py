"""A part that fails is not missed in silence: the server says so, lets speech end and exits."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest
from fake_worker import fake_worker_command
from gateway_harness import GatewayHarness
from processes import supervisors, worker_pids
from stream_client import open_stream

from realtime_tts.config import ServerConfig, Settings, VoicesConfig
from realtime_tts.errors import InternalError
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.stream.websocket import Connection
from realtime_tts.server.upkeep import follow_voices
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec

CANARY = "what a user sent"


def fail(*args: object) -> None:
    raise KeyError(CANARY)


async def until(condition: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(poll(), 60)


@pytest.mark.logs_errors
async def test_a_supervision_that_fails_makes_the_server_unhealthy_until_it_has_drained_and_exits(
    make_gateway: Callable[..., GatewayHarness], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = make_gateway(num_workers=2)
    gateway = harness.gateway
    await until(lambda: gateway.engine.num_ready == 2)
    async with (
        httpx.AsyncClient(base_url=harness.url, trust_env=False, timeout=30) as http,
        open_stream(harness.ws_url) as client,
    ):
        assert (await http.get("/healthz")).json()["status"] == "ok"
        await client.send("text", context_id="c", text="command never. ")
        await client.send("flush", context_id="c")
        await client.until("audio")
        idle_names = [worker.name for worker in gateway.engine.workers if not worker.requests]
        (idle,) = [supervisor for supervisor in supervisors(gateway.engine) if supervisor.spec.name in idle_names]
        monkeypatch.setattr(idle, "_pool", SimpleNamespace(count=idle._pool.count, lost=fail))
        assert idle.pid is not None
        os.kill(idle.pid, signal.SIGKILL)
        await until(lambda: gateway.has_failed)
        response = await http.get("/healthz")
        assert (response.status_code, response.json()["code"]) == (503, "service_unavailable")
        assert (await http.get("/readyz")).status_code == 503
        await client.until("audio")
        await client.send("cancel", context_id="c")
        assert (await client.until_closed())[0] == 1001
    await until(lambda: harness.error is not None)
    assert isinstance(harness.error, InternalError)
    assert sum("supervise worker" in record.getMessage() for record in caplog.records) == 1
    assert CANARY not in caplog.text
    assert worker_pids(gateway.engine) == []


@pytest.mark.logs_errors
async def test_a_socket_whose_writer_fails_is_closed(
    make_gateway: Callable[..., GatewayHarness], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start")
        await client.until("session.started")
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_write_batch", fail)
            await client.send("ping", id="1")
            code, _ = await asyncio.wait_for(client.until_closed(), 60)
    assert code == 1011
    assert sum("socket_crashed" in record.getMessage() for record in caplog.records) == 1
    assert CANARY not in caplog.text
    async with open_stream(gateway.ws_url) as client:
        await client.speak("d", "Hello.")
        assert (await client.until_terminal("d"))["type"] == "context.done"


@pytest.mark.logs_errors
async def test_voices_that_cannot_be_read_are_told_of_once_and_so_is_their_return(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = Settings(server=ServerConfig(voices=VoicesConfig(voices_dir="none")))
    gateway = Gateway(settings, EngineClient([WorkerSpec(command=fake_worker_command())]))
    answers = iter([None, InternalError(CANARY), InternalError(CANARY), None, None, InternalError(CANARY)])

    async def refresh() -> None:
        if (error := next(answers, asyncio.CancelledError())) is not None:
            raise error

    monkeypatch.setattr("realtime_tts.server.upkeep._FOLLOW_EVERY_S", 0)
    monkeypatch.setattr(gateway.voices, "refresh", refresh)
    with pytest.raises(asyncio.CancelledError):
        await follow_voices(gateway)
    told = [record.getMessage() for record in caplog.records if "voices_" in record.getMessage()]
    assert told == ["voices_unreadable", "voices_readable", "voices_unreadable"]
    assert CANARY not in caplog.text
