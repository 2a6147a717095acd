"""`--unload-after-s`: an unused model is unloaded, the server stays ready, and speech loads the model again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gateway_harness import GatewayHarness
from server_processes import ServerProcess
from spoken_recordings import said, wav
from stream_client import open_stream

from realtime_tts.server import upkeep
from realtime_tts.server.admission import availability

BODY = {"model": "tts-1", "voice": "slt", "response_format": "pcm", "input": "Hello there."}
PATIENT_S = 60.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine even a small model takes longer to load than clients wait."""
    monkeypatch.setattr(availability, "_MAX_LOAD_WAIT_S", PATIENT_S)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """File without which no worker gets ready."""
    gate = tmp_path / "gate"
    gate.touch()
    return gate


@pytest.fixture
def gateway(gate: Path) -> Iterator[GatewayHarness]:
    """Unloads by the times that `unload` makes up only."""
    with GatewayHarness(worker={"ready_gate": gate}, unload_after_s=1e9) as harness:
        yield harness


@pytest.fixture
def http(gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=PATIENT_S) as client:
        yield client


def unload(gateway: GatewayHarness) -> None:
    async def run() -> None:
        keeper = gateway.gateway.engine.keeper
        keeper.note_use(False, -1e10)
        keeper.note_use(False, 0.0)
        assert keeper.is_unloaded
        while gateway.gateway.engine.num_ready:
            await asyncio.sleep(0.01)

    gateway.run(run())


def state(http: httpx.Client) -> str:
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    return str(answer.json()["devices"][0]["state"])


def test_an_unloaded_server_is_ready_and_speech_over_http_loads_the_model(
    gateway: GatewayHarness, http: httpx.Client
) -> None:
    before = http.post("/v1/audio/speech", json=BODY)
    for _ in range(2):
        unload(gateway)
        assert state(http) == "unloaded"
        assert http.get("/healthz").status_code == http.get("/v1/models").status_code == 200
        assert "realtime_tts_engine_workers_ready 0.0" in http.get("/metrics").text
        answer = http.post("/v1/audio/speech", json=BODY)
        assert (answer.status_code, len(answer.content)) == (200, len(before.content))
        assert state(http) == "serving"


async def test_sessions_wait_for_the_model(gateway: GatewayHarness, gate: Path, http: httpx.Client) -> None:
    unload(gateway)
    await asyncio.to_thread(gate.unlink)
    opening = [asyncio.ensure_future(_says_hello(gateway)) for _ in range(3)]
    while await asyncio.to_thread(state, http) != "starting":
        await asyncio.sleep(0.01)
    assert not any(each.done() for each in opening)
    await asyncio.to_thread(gate.touch)
    assert await asyncio.gather(*opening) == ["context.done"] * 3


async def _says_hello(gateway: GatewayHarness) -> str:
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c", "Hello there.")
        return str((await client.until_terminal("c", PATIENT_S))["type"])


def test_a_model_that_takes_too_long_is_a_refusal_that_can_be_retried(
    gateway: GatewayHarness, gate: Path, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "_MAX_LOAD_WAIT_S", 0.05)
    unload(gateway)
    gate.unlink()
    refused = http.post("/v1/audio/speech", json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_lost")
    assert refused.headers["retry-after"]
    monkeypatch.setattr(availability, "_MAX_LOAD_WAIT_S", PATIENT_S)
    gate.touch()
    assert http.post("/v1/audio/speech", json=BODY).status_code == 200


def test_a_recording_loads_the_model_too(gateway: GatewayHarness, http: httpx.Client) -> None:
    unload(gateway)
    files = {"reference": ("me.wav", wav(said("heart")))}
    data = {"name": "me", "consent": "true", "consent_by": "me", "consent_scope": "tests"}
    assert http.post("/v1/voices", files=files, data=data).status_code == 201


async def test_an_open_session_keeps_the_model_and_its_end_lets_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_FOLLOW_EVERY_S", 0.01)
    with GatewayHarness(unload_after_s=1e-6) as gateway:
        engine = gateway.gateway.engine
        async with open_stream(gateway.ws_url) as client:  # which also loads the model, if that was faster
            await client.send("session.start")
            await client.until("session.started", PATIENT_S)
            noted: list[bool] = []
            note_use = engine.keeper.note_use

            def note(is_used: bool, now: float) -> None:
                noted.append(is_used)
                note_use(is_used, now)

            monkeypatch.setattr(engine.keeper, "note_use", note)
            while len(noted) < 5:
                await asyncio.sleep(0.01)
            assert noted[:5] == [True] * 5
            assert not engine.is_unloaded
        while not engine.is_unloaded:
            await asyncio.sleep(0.01)


async def _status(http: httpx.AsyncClient) -> int:
    """Speak, and try again while the model is being loaded, as clients do."""
    while (answer := await http.post("/v1/audio/speech", json=BODY)).status_code == 503:
        assert answer.json()["error"]["code"] == "engine_lost"
        await asyncio.sleep(0.1)
    return answer.status_code


async def test_gateways_of_a_host_unload_and_load_one_model(tmp_path: Path) -> None:
    server = ServerProcess(
        tmp_path / "log.txt",
        worker={"num_workers": 2},
        gateways=2,
        max_late_ms=0,
        voices_dir="none",
        unload_after_s=0.1,
    )
    try:
        async with httpx.AsyncClient(
            base_url=server.url, trust_env=False, timeout=PATIENT_S, headers={"connection": "close"}
        ) as http:
            for _ in range(2):
                while any(each["state"] != "unloaded" for each in (await http.get("/readyz")).json()["devices"]):
                    await asyncio.sleep(0.05)
                assert await asyncio.gather(*(_status(http) for _ in range(4))) == [200] * 4
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, PATIENT_S) == 0
    finally:
        server.close()
