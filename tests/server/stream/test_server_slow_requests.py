"""Requests that never end and answers that no client reads hold no connection for long, and connections are counted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from client_harness import until
from gateway_harness import GatewayHarness
from raw_http import RawConnection, port_of
from stream_client import open_stream

from realtime_tts.server.admission.connection_limiter import Acceptor, ConnectionLimiter, max_connections
from realtime_tts.server.logs import Throttle

MakeGateway = Callable[..., GatewayHarness]
LIMIT_S = 1.0  # in which a good handshake gets through on a busy machine too
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture
def hasty(make_gateway: MakeGateway) -> GatewayHarness:
    return make_gateway(handshake_timeout_s=LIMIT_S, close_timeout_s=0.1)


async def test_headers_that_arrive_too_slowly_are_given_up(hasty: GatewayHarness) -> None:
    async with RawConnection(hasty.url) as connection:
        answer = await connection.drip(GET + b"x-padding: ...")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code": "request_timeout"' in answer
    assert b'"retryable": true' in answer


async def test_headers_that_arrive_too_slowly_after_a_good_request_are_given_up_too(hasty: GatewayHarness) -> None:
    async with RawConnection(hasty.url) as connection:
        connection.send(GET + b"\r\n")
        await connection.read_until(b"}")
        answer = await connection.drip(GET + b"x-padding: ...")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_arrives_too_slowly_is_given_up(hasty: GatewayHarness) -> None:
    async with RawConnection(hasty.url) as connection:
        connection.send(GET + b"content-length: 100000\r\n\r\n")
        answer = await connection.drip(b"x")
    assert answer.startswith(b"HTTP/1.1 200 "), "the answer did not need the body"
    assert answer.count(b"HTTP/1.1") == 1


async def test_a_connection_that_says_nothing_is_dropped(hasty: GatewayHarness) -> None:
    async with RawConnection(hasty.url) as connection:
        assert await connection.read_all() == b""


async def test_an_answer_that_is_not_read_is_dropped(hasty: GatewayHarness) -> None:
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", port_of(hasty.url)))
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                peer.send(b"GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20)
        for num_wanted in (1, 0):  # it is taken first, and then dropped
            for _ in range(1500):
                if hasty.call(lambda: len(hasty.server.server_state.connections)) == num_wanted:
                    break
                await asyncio.sleep(0.02)
            assert hasty.call(lambda: len(hasty.server.server_state.connections)) == num_wanted


async def test_a_bad_request_is_a_typed_400_and_ends_the_connection(hasty: GatewayHarness) -> None:
    for request in (b"\x00\r\n\r\n", GET + b"content-length: x\r\n\r\n", GET + GET + b"\r\n"):
        async with RawConnection(hasty.url) as connection:
            connection.send(request)
            answer = await connection.read_all()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"code": "bad_request"' in answer


async def test_a_socket_outlives_the_limit_of_its_handshake(hasty: GatewayHarness) -> None:
    async with open_stream(hasty.ws_url) as client:
        await asyncio.sleep(2 * LIMIT_S)
        await client.send("ping")
        await client.until("pong")


async def test_connections_beyond_the_limit_are_answered_with_503_at_once(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_connections=3)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_stream(gateway.ws_url))
        idle = [await stack.enter_async_context(RawConnection(gateway.url)) for _ in range(2)]
        for connection in idle:
            connection.send(GET + b"\r\n")
            await connection.read_until(b"}")
        async with RawConnection(gateway.url) as one_more:
            one_more.send(GET + b"\r\n")
            answer = await one_more.read_all()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        assert b'"retryable":true' in answer
        await client.speak("a", "Those who are in are served.")
        assert (await client.until_terminal("a"))["type"] == "context.done"
    while gateway.call(lambda: len(gateway.server.server_state.connections)):
        await asyncio.sleep(0.01)
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        assert (await http.get("/healthz")).status_code == 200


def test_there_are_never_more_connections_than_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (1000, 4096))
    assert [max_connections(wanted) for wanted in (0, 10, 5000)] == [936, 10, 936]


class PoorListener(socket.socket):
    """Has no descriptor to give, so many times."""

    failures = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_descriptors_the_server_waits_and_logs_it_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.server.admission.connection_limiter._RETRY_S", 0.01)
    greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            greeted.set_result(None)
            transport.close()  # type: ignore[attr-defined]

    with PoorListener() as listener, caplog.at_level(logging.WARNING):
        listener.bind(("127.0.0.1", 0))
        acceptor = Acceptor(listener)
        acceptor.start(ConnectionLimiter(Greeter, (), 10).admit)
        with socket.create_connection(listener.getsockname()):
            await asyncio.wait_for(greeted, 20)
        assert listener.failures == 0
        acceptor.close()
    assert [record.getMessage() for record in caplog.records] == ["accept_failed"]


@pytest.mark.parametrize(("max_connections", "logged"), [(1, {"count": 1, "limit": 1}), (0, {"count": 1})])
async def test_a_refused_connection_is_logged_with_the_limit_if_there_is_one(
    caplog: pytest.LogCaptureFixture, max_connections: int, logged: dict[str, int]
) -> None:
    limiter = ConnectionLimiter(asyncio.Protocol, ["taken"], max_connections)
    ours, theirs = socket.socketpair()
    with theirs, caplog.at_level(logging.WARNING):
        limiter.refuse(ours)
    await until(lambda: ours.fileno() < 0)
    assert [vars(record)["fields"] for record in caplog.records] == [logged]


@pytest.fixture
def poor_server(tmp_path: Path) -> Iterator[str]:
    """The URL of a server in a process that may open 110 files; its log is looked at."""
    script = Path(__file__).resolve().parents[2] / "support" / "serve_fake.py"
    limited = ["sh", "-c", 'ulimit -n 110 && exec "$0" "$@"', sys.executable, str(script), "{}"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    with process.stdout:
        yield json.loads(process.stdout.readline())["url"]
    process.terminate()
    process.wait(20)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len([line for line in lines if "connection_refused" in line]) == 1
    assert not any("Traceback" in line or " error " in line for line in lines)


async def test_more_connections_than_descriptors_disturb_no_client(poor_server: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_stream(poor_server.replace("http", "ws", 1) + "/v1/stream"))
        await client.send("text", context_id="a", text="command never. ")
        await client.until("audio")
        for _ in range(150):
            connection = await stack.enter_async_context(RawConnection(poor_server))
            connection.send(GET)
        await client.speak("b", "The worker is still served.")
        assert (await client.until_terminal("b"))["type"] == "context.done"
        await client.send("cancel")
        await client.until(lambda message: message.get("state") == "all")


def test_messages_that_any_client_can_cause_are_logged_once_an_interval() -> None:
    throttle = Throttle()
    assert [throttle.take("a", at) for at in (0, 1, 9.9, 10, 11, 21)] == [1, 0, 0, 3, 0, 2]
    assert throttle.take("b", 11) == 1


def test_malformed_requests_do_not_fill_the_log(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "support" / "serve_fake.py"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, str(script), "{}"], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    with process.stdout:
        url = json.loads(process.stdout.readline())["url"]
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", port_of(url))) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    process.terminate()
    process.wait(20)
    lines = (tmp_path / "log").read_text().splitlines()
    assert 1 <= len([line for line in lines if "Invalid HTTP" in line]) <= 5  # one in ten seconds
