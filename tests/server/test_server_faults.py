"""Peers that vanish, dawdle or flood; workers that die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from processes import worker_pids
from stream_client import SUBPROTOCOL, open_stream
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from realtime_tts.server.stream.socket_protocol import StreamProtocol

MakeGateway = Callable[..., GatewayHarness]
MakeClient = Callable[..., "RawClient"]
ON_AND_ON = " and on" * 30
NEVER = '{"type":"text","context_id":"c","text":"command never. "}'
NUM_NEVER = 600  # patches of it
FLUSH = '{"type":"flush","context_id":"c"}'
LOUD = '{"type":"session.start","audio":{"codec":"pcm_s16le","sample_rate":48000}}'


class RawClient:
    """A WebSocket client on a blocking socket, which can vanish and dawdle as no proper client does."""

    def __init__(self, url: str, receive_buffer: int | None = None) -> None:
        uri = parse_uri(url)
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect((uri.host, uri.port))
        self.protocol = ClientProtocol(uri, subprotocols=[SUBPROTOCOL], max_size=None)  # type: ignore[list-item]
        self.protocol.send_request(self.protocol.connect())
        self.flush()
        while self.protocol.state.name == "CONNECTING":
            self.protocol.receive_data(self.socket.recv(65536))
            self.protocol.events_received()

    def send(self, *messages: str) -> None:
        for message in messages:
            self.protocol.send_text(message.encode())
        self.flush()

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.socket.sendall(data)

    def read_some(self, num_bytes: int) -> None:
        while num_bytes > 0:
            num_bytes -= len(self.socket.recv(num_bytes))

    def reset(self) -> None:
        """RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_to_end(self) -> int | None:
        """The close code."""
        while data := self.socket.recv(65536):
            self.protocol.receive_data(data)
            self.protocol.events_received()
        received = self.protocol.close_rcvd
        return received.code if received else None


@pytest.fixture
def raw_client() -> Iterator[Callable[..., RawClient]]:
    clients: list[RawClient] = []

    def connect(*args: Any, **options: Any) -> RawClient:
        clients.append(RawClient(*args, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.socket.close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> float:
    """Seconds until the condition holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < timeout_s, "waited in vain"
        time.sleep(0.01)
    return time.monotonic() - begun


def num_steps(gateway: GatewayHarness) -> int:
    return gateway.call(lambda: sum(stats.num_steps for stats in gateway.gateway.engine.stats))


def settled_steps(gateway: GatewayHarness) -> int:
    """Steps of the engine once it has made none for a second."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 1.0:
        if (steps := num_steps(gateway)) != before:
            before, since = steps, time.monotonic()
        time.sleep(0.05)
    return before


@pytest.mark.parametrize("way", ["fin", "rst"])
def test_a_client_that_vanishes_frees_the_engine(make_gateway: MakeGateway, raw_client: MakeClient, way: str) -> None:
    gateway = make_gateway(resume_window_s=0)
    client = raw_client(gateway.ws_url)
    client.send(NEVER, FLUSH)
    wait_until(lambda: gateway.usage().requests == 1)
    client.read_some(1000)
    client.socket.close() if way == "fin" else client.reset()
    wait_until(lambda: gateway.usage().requests == 0)
    wait_until(lambda: gateway.usage().sessions == 0)
    assert gateway.metric("contexts_total", outcome="abandoned") == 1


@pytest.mark.parametrize("way", ["fin", "rst"])
def test_generation_stops_while_a_lost_client_is_awaited(
    make_gateway: MakeGateway, raw_client: MakeClient, way: str
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.05}, resume_window_s=60.0)
    client = raw_client(gateway.ws_url)
    client.send(NEVER, FLUSH)
    client.read_some(1000)
    client.socket.close() if way == "fin" else client.reset()
    wait_until(lambda: gateway.usage().connections == 0)
    assert settled_steps(gateway) < NUM_NEVER
    assert gateway.usage().sessions == 1
    gateway.call(lambda: [session.close(1001, "over") for session in list(gateway.gateway.sessions.values())])
    wait_until(lambda: gateway.usage().sessions == 0)
    assert gateway.usage().requests == 0


def test_a_half_open_connection_is_found(make_gateway: MakeGateway, raw_client: MakeClient) -> None:
    gateway = make_gateway(ping_interval_s=0.3, ping_timeout_s=0.3, close_timeout_s=0.2, resume_window_s=0)
    client = raw_client(gateway.ws_url)
    client.send(LOUD, NEVER, FLUSH)  # and never a pong, as if the cable was pulled with data on its way
    wait_until(lambda: gateway.usage().requests == 1)
    wait_until(lambda: gateway.usage().connections == 0)
    assert gateway.usage().requests == 0


def test_a_connection_that_asks_for_nothing_is_dropped(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(handshake_timeout_s=0.2)
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as silent:
        assert silent.recv(1000) == b""


@pytest.mark.parametrize("first", [[], ['{"type":"ping"}']])
def test_an_idle_session_is_closed(make_gateway: MakeGateway, raw_client: MakeClient, first: list[str]) -> None:
    gateway = make_gateway(idle_timeout_s=0.3, close_timeout_s=0.3)
    client = raw_client(gateway.ws_url)
    client.send(*first)
    client.socket.settimeout(30)
    assert client.read_to_end() == 1000  # and the end comes although this client never answers the close


def test_an_answered_handshake_is_not_handed_to_another_process(
    make_gateway: MakeGateway, raw_client: MakeClient
) -> None:
    gateway = make_gateway()
    client = raw_client(gateway.ws_url)

    def offer() -> bool:
        [protocol] = gateway.server.server_state.connections
        assert isinstance(protocol, StreamProtocol)
        return protocol.hand_over(lambda descriptor, received: pytest.fail("offered"))

    assert not gateway.call(offer)
    client.send('{"type":"session.start"}')
    wait_until(lambda: gateway.usage().sessions == 1)


def test_a_slow_reader_pauses_its_speech_and_is_closed(make_gateway: MakeGateway, raw_client: MakeClient) -> None:
    gateway = make_gateway(slow_consumer_timeout_s=2.0, close_timeout_s=5.0)
    readers = [raw_client(gateway.ws_url, receive_buffer=4096) for _ in range(8)]
    for client in readers:
        client.send(LOUD)
        for index in range(4):
            client.send(NEVER.replace('"c"', f'"c{index}"'), FLUSH.replace('"c"', f'"c{index}"'))
    sessions = list(gateway.gateway.sessions.values())
    wait_until(lambda: len(gateway.gateway.sessions) == 8)
    sessions = list(gateway.gateway.sessions.values())
    queued: list[float] = []

    def measure() -> bool:
        contexts = [context for live in sessions for context in live.session.contexts.open.values()]
        queued.extend(context.sender.queued_ms for context in contexts)
        return gateway.metric("slow_consumers_total") == 8

    wait_until(lambda: gateway.call(measure), 15)
    assert max(queued) <= 5000
    assert readers[0].read_to_end() == 1008
    for client in readers:
        client.socket.close()
    wait_until(lambda: gateway.usage().requests == 0)


def test_a_reader_that_catches_up_loses_nothing(make_gateway: MakeGateway, raw_client: MakeClient) -> None:
    gateway = make_gateway()
    client = raw_client(gateway.ws_url, receive_buffer=4096)
    client.send(LOUD, NEVER, FLUSH)
    wait_until(lambda: gateway.usage().requests == 1)
    time.sleep(1.5)
    received = 0
    while received < 600_000:  # six seconds
        received += len(client.socket.recv(65536))


async def test_a_flood_of_messages_does_not_stall_others(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as flood, open_stream(gateway.ws_url) as other:
        await flood.send("text", context_id="c", text=" ")
        for _ in range(20_000):
            await flood.socket.send('{"type":"text","context_id":"c","text":""}')
        await other.speak("d", "Hello.")
        await other.until_terminal("d")
        await flood.send("cancel")
        await flood.until(lambda m: m.get("state") == "all", 20)


async def test_a_killed_worker_fails_its_contexts_and_comes_back(make_gateway: MakeGateway, tmp_path: Path) -> None:
    (gate := tmp_path / "gate").touch()
    gateway = make_gateway(worker={"patch_delay_s": 0.05, "ready_gate": gate})
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="command never. ")
        await client.until("audio")
        (pid,) = worker_pids(gateway.gateway.engine)
        gate.unlink()  # the worker is not back before the test has seen that it was gone
        os.kill(pid, signal.SIGKILL)
        failed = await client.until_terminal("c")
        assert (failed["type"], failed["code"], failed["retryable"]) == ("context.failed", "engine_lost", True)
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
            assert (await http.get("/healthz")).status_code == 200
            response = await http.get("/readyz")
            assert (response.status_code, response.json()["code"]) == (503, "engine_lost")
            gate.touch()
            while (await http.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.02)
        await client.speak("d", "Speaking again.")
        assert (await client.until_terminal("d"))["type"] == "context.done"


@pytest.mark.logs_errors
async def test_a_hanging_worker_is_ended(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(hang_s=1.0)
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c", "command hang" + ON_AND_ON)
        assert (await client.until_terminal("c"))["code"] == "engine_lost"


async def test_other_workers_do_not_notice(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(num_workers=2)
    wait_until(lambda: gateway.gateway.engine.num_ready == 2)
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="a", text="command never. ")
        await client.send("flush", context_id="a")
        await client.until("audio")
        await client.speak("b", "command crash" + ON_AND_ON)
        assert (await client.until_terminal("b"))["code"] == "engine_lost"
        assert client.contexts["a"].terminal is None
        await client.until(lambda m: m["type"] == "audio" and m["context_id"] == "a")
        await client.send("cancel", context_id="a")
        assert (await client.until_terminal("a"))["type"] == "context.cancelled"


async def test_how_the_devices_are_is_told(make_gateway: MakeGateway, tmp_path: Path) -> None:
    """And admission knows of it: what may wait depends on what can be spoken."""
    (gate := tmp_path / "gate").touch()
    gateway = make_gateway(num_workers=2, worker={"real_time_streams": 3, "ready_gate": gate})
    engine = gateway.gateway.engine
    wait_until(lambda: engine.num_streams == 6)
    gate.unlink()  # the lost worker is not back before the test has seen that it was gone

    async def told() -> tuple[dict[str, object], str]:
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
            return (await http.get("/readyz")).json(), (await http.get("/metrics")).text

    async with open_stream(gateway.ws_url) as client:
        await client.speak("b", "command crash" + ON_AND_ON)
        failed = await client.until_terminal("b")
        assert (failed["code"], failed["retryable"]) == ("engine_lost", True)
    wait_until(lambda: engine.num_streams == 3 and any(device.losses for device in engine.keeper.devices))
    ready, metrics = await told()
    lost = next(device for device in ready["devices"] if device["losses"])  # type: ignore[attr-defined]
    assert (lost["device"], lost["losses"]) == ("cpu", 1)
    labels = f'device="cpu",state="serving",worker="{lost["worker"]}"'
    assert f'realtime_tts_engine_device_losses_total{{device="cpu",worker="{lost["worker"]}"}} 1.0' in metrics
    assert (lost["state"], ready["workers"]) == ("restarting", 1)
    gate.touch()
    wait_until(lambda: engine.num_streams == 6)
    ready, metrics = await told()
    assert [device["state"] for device in ready["devices"]] == ["serving"] * 2  # type: ignore[attr-defined]
    assert f"realtime_tts_engine_device_state{{{labels}}} 1.0" in metrics
    assert metrics.count("realtime_tts_engine_device_streams{") == 2
    assert metrics.count("realtime_tts_engine_step_cost_seconds{") == 6


async def test_a_failed_request_fails_its_context_alone(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.speak("bad", "command fail. ")
        await client.speak("good", "Hello there.")
        failed = await client.until_terminal("bad")
        assert (failed["code"], failed["retryable"]) == ("numerical_error", False)
        assert (await client.until_terminal("good"))["type"] == "context.done"
