"""Requests that are expensive to parse: bounded headers, and a bounded share of the processor."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import h11
import httpx
import pytest
from gateway_harness import GatewayHarness
from raw_http import RawConnection
from uvicorn.protocols.http import h11_impl

from realtime_tts.server.admission.turns import Turns
from realtime_tts.server.stream.request_parser import (
    CHUNK_US,
    FREE_US_PER_S,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    BoundedConnection,
    ParseBudget,
)
from realtime_tts.server.stream.socket_protocol import READ_BYTES

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def headers(number: int) -> bytes:
    return b"".join(b"a%d: b\r\n" % index for index in range(number))


def chunks(body: bytes) -> bytes:
    return b"".join(b"1\r\n%c\r\n" % byte for byte in body)


def events(connection: BoundedConnection, data: bytes) -> list[Any]:
    if data:
        connection.receive_data(data)
    return list(itertools.takewhile(lambda event: event is not h11.NEED_DATA, iter(connection.next_event, None)))


# ---- headers -----------------------------------------------------------------------------------------------------


def test_a_request_has_so_many_headers() -> None:
    (request, _) = events(BoundedConnection(), GET + headers(MAX_HEADERS - 1) + b"\r\n")
    assert len(request.headers) == MAX_HEADERS


@pytest.mark.parametrize("end", [b"\r\n", b""], ids=["whole", "arriving"])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
def test_one_header_more_is_refused_before_it_is_parsed(line_end: bytes, end: bytes) -> None:
    connection = BoundedConnection()
    with pytest.raises(h11.RemoteProtocolError):
        events(connection, (GET + headers(MAX_HEADERS) + end).replace(b"\r\n", line_end))
    assert connection.error_status == 431
    assert connection.take_cost_us() == 0


def test_long_headers_are_refused_while_they_arrive() -> None:
    connection = BoundedConnection()
    with pytest.raises(h11.RemoteProtocolError):
        events(connection, GET + b"a: " + b"b" * MAX_HEAD_BYTES)
    assert connection.error_status == 431


def test_the_lines_of_a_body_are_no_headers() -> None:
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n"
    assert len(events(BoundedConnection(), head + b"\n" * 5000)[1].data) == 5000


def test_trailers_are_headers_too() -> None:
    connection = BoundedConnection()
    events(connection, CHUNKED)
    with pytest.raises(h11.RemoteProtocolError):
        events(connection, b"0\r\n" + headers(MAX_HEADERS + 1))
    assert connection.error_status == 431


@pytest.mark.parametrize("number", [MAX_HEADERS, 6000])
async def test_a_client_is_told_of_too_many_headers(gateway: GatewayHarness, number: int) -> None:
    async with RawConnection(gateway.url) as connection:
        connection.send(GET + headers(number) + b"\r\n")
        answer = await connection.read_all()
    assert answer.startswith(b"HTTP/1.1 431 ")
    if number > MAX_HEADERS and answer.endswith(b"\r\n\r\n"):
        return  # headers that the server did not read reset the connection, which may cut off the body
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "request_header_fields_too_large"


# ---- cost --------------------------------------------------------------------------------------------------------


def test_small_chunks_are_parsed_a_few_at_a_stretch() -> None:
    connection = BoundedConnection()
    events(connection, CHUNKED)
    connection.take_cost_us()
    parsed = events(connection, chunks(b"x" * 500))
    assert len(parsed) <= 100
    assert connection.is_cut
    while connection.is_cut:
        assert 0 < connection.take_cost_us() <= 1500 + CHUNK_US
        parsed += events(connection, b"")
    assert b"".join(event.data for event in parsed) == b"x" * 500


@pytest.mark.parametrize("length", [b"content-length: 1048576", b"transfer-encoding: chunked"])
def test_a_large_body_costs_as_good_as_nothing(length: bytes) -> None:
    connection = BoundedConnection()
    events(connection, b"POST / HTTP/1.1\r\nhost: localhost\r\n" + length + b"\r\n\r\n")
    connection.take_cost_us()
    for _ in range(16):
        piece = b"x" * 65536
        events(connection, b"10000\r\n%b\r\n" % piece if b"chunked" in length else piece)
    assert connection.take_cost_us() < 1000


def parsed_us(num_connections: int, read_us: float, seconds: float) -> float:
    """What connections parse that always have more to parse, each `read_us` at a time."""
    budgets = [ParseBudget(0.0) for _ in range(num_connections)]
    free_at, total_us, now = [0.0] * num_connections, 0.0, 0.0
    while now < seconds:
        for index, budget in enumerate(budgets):
            if free_at[index] <= now:
                num_paused = sum(at > now for at in free_at)
                free_at[index] = now + budget.pause_s(read_us, num_paused, now)
                total_us += read_us
        now += 0.001
    return total_us


@pytest.mark.parametrize("num_connections", [1, 8, 100])
def test_all_connections_together_have_a_share_of_a_processor(num_connections: int) -> None:
    """A tenth, and what each may cost in any case."""
    allowed_us = 0.1 * 10e6 + num_connections * (10 * FREE_US_PER_S + 4000)
    assert 0.5 * allowed_us < parsed_us(num_connections, 1000, 10) <= 1.3 * allowed_us


def test_a_connection_that_costs_little_never_pauses() -> None:
    budget = ParseBudget(0.0)
    assert not any(budget.pause_s(500, 50, 0.1 * step) for step in range(100))


async def test_a_body_of_one_byte_chunks_is_read_all_the_same(gateway: GatewayHarness) -> None:
    body = json.dumps({"input": "Hello there.", "response_format": "pcm", "instructions": " " * 500}).encode()
    async with RawConnection(gateway.url) as connection:
        connection.send(CHUNKED + chunks(body) + b"0\r\n\r\n")
        assert (await connection.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_requests_in_one_piece_are_all_answered(gateway: GatewayHarness) -> None:
    async with RawConnection(gateway.url) as connection:
        connection.send((GET + b"\r\n") * 60)
        for _ in range(60):
            await connection.read_until(b"}")


async def test_a_connection_that_costs_much_pauses(gateway: GatewayHarness) -> None:
    def num_halted() -> int:
        return len(gateway.server.config.http_protocol_class.halted)  # type: ignore[union-attr]

    async with RawConnection(gateway.url) as connection:
        connection.send(CHUNKED + chunks(b" " * 20_000))
        while not gateway.call(num_halted):
            await asyncio.sleep(0)
        connections = gateway.call(lambda: list(gateway.server.server_state.connections))
        assert {each.transport.max_size for each in connections} == {READ_BYTES}, "bytes of one read"
    while gateway.call(num_halted):
        await asyncio.sleep(0)


async def test_a_connection_that_pauses_reads_no_more(gateway: GatewayHarness) -> None:
    """Although the application asks for the body meanwhile."""

    def unparsed_bytes() -> list[int]:
        halted = gateway.server.config.http_protocol_class.halted  # type: ignore[union-attr]
        return [len(each.conn.trailing_data[0]) for each in halted]

    async with RawConnection(gateway.url) as connection:
        connection.send(CHUNKED + chunks(b" " * 20_000))
        seen: list[int] = []
        while len(seen) < 50:
            seen += gateway.call(unparsed_bytes)
            await asyncio.sleep(0.01)
    assert max(seen) <= 3 * READ_BYTES


async def test_a_body_that_the_application_does_not_read_stays_bounded(
    make_gateway: Callable[..., GatewayHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its connection pauses for its cost, too, and goes on after that."""
    monkeypatch.setattr(h11_impl, "HIGH_WATER_LIMIT", 1024)
    monkeypatch.setattr(Turns, "wait", lambda *_: asyncio.Event().wait())  # the application does not begin
    gateway = make_gateway()

    def body_bytes() -> list[int]:
        return [len(each.cycle.body) for each in gateway.server.server_state.connections if each.cycle is not None]

    async with RawConnection(gateway.url) as connection:
        connection.send(CHUNKED + chunks(b" " * 40_000))
        seen: list[int] = []
        while len(seen) < 200:
            seen += gateway.call(body_bytes)
            await asyncio.sleep(0.01)
    assert 1024 < max(seen) <= 1024 + READ_BYTES


def test_a_long_voice_form_is_quick(gateway: GatewayHarness) -> None:
    """Reads of a body in large pieces make no connection pause."""
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as http:
        answer = http.post("/v1/voices", files={"reference": b"x" * 2_000_000}, data={"consent": "true"})
    assert answer.status_code == 400
