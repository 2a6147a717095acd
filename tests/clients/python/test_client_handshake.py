"""Addresses, credentials and refusals before there is a session."""

from __future__ import annotations

import asyncio
import http

import pytest
import realtime_tts_client as client
from realtime_tts_client import connect
from realtime_tts_client.errors import error_from_code
from realtime_tts_client.handshake import Endpoint, stream_url
from realtime_tts_client.link import FIRST_DELAY_S, MAX_DELAY_S, reconnect_delay_s
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("ws://localhost:8000", "ws://localhost:8000/v1/stream"),
        ("http://localhost:8000/", "ws://localhost:8000/v1/stream"),
        ("https://speech.example/tts/v1/stream?x=1#y", "wss://speech.example/tts/v1/stream?x=1"),
        ("wss://[::1]:9", "wss://[::1]:9/v1/stream"),
        ("localhost:8000", "ws://localhost:8000/v1/stream"),
        ("127.0.0.1:8000/v1/stream?x=a://b", "ws://127.0.0.1:8000/v1/stream?x=a://b"),
        ("speech.example", "ws://speech.example/v1/stream"),
        ("HTTPS://speech.example", "wss://speech.example/v1/stream"),
    ],
)
def test_a_servers_address_leads_to_its_stream(given: str, used: str) -> None:
    assert stream_url(given) == used


async def test_all_connections_of_a_session_have_the_same_word_and_others_another() -> None:
    """A front before several hosts goes by it. One that is in the address is left there."""
    asked: list[str] = []

    def refuse(connection: ServerConnection, request: Request) -> Response:
        asked.append(request.path)
        return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "")

    async with serve(lambda connection: connection.wait_closed(), "127.0.0.1", 0, process_request=refuse) as server:
        address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for endpoint in (one := Endpoint(f"{address}/?x=1"), one, Endpoint(address), Endpoint(f"{address}/?sticky=a")):
            with pytest.raises(client.RealtimeTTSError):
                await endpoint.open()
        with pytest.raises(client.RealtimeTTSError):
            await one.open(resume="s0_a/b")
    assert asked[4] == asked[0] + "&resume=s0_a/b"
    assert asked[0].startswith("/?x=1&sticky=")
    assert asked[0] == asked[1]
    assert len({path.partition("sticky=")[2] for path in asked[:4]}) == 3
    assert asked[3] == "/?sticky=a"


@pytest.mark.parametrize("url", ["ftp://host", "ws://", "", ":8000", "host:99999", "host:port", "host:0", "ws://[::1"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the address is"):
        connect(url)


@pytest.mark.parametrize(
    ("status", "body", "expected", "retryable", "retry_after_s"),
    [
        (401, b'{"code":"unauthorized","message":"no key","retryable":false}', client.Unauthorized, False, None),
        (503, b'{"code":"draining","message":"later","retryable":true}', client.Draining, True, 2.0),
        (429, b'{"code":"too_many_sessions","message":"x","retryable":true}', client.TooManySessions, True, 2.0),
        (503, b"<html>bad gateway</html>", client.Overloaded, True, 2.0),
        (403, b"[]", client.Forbidden, False, None),
        (502, b"", client.ConnectionFailed, True, None),
        (404, b'{"detail":"Not Found"}', client.InvalidRequest, False, None),
        (503, b"[" * 100_000, client.Overloaded, True, None),
    ],
)
async def test_a_refused_handshake_is_a_typed_error(status, body, expected, retryable, retry_after_s) -> None:
    def refuse(connection, request):
        assert request.headers["Authorization"] == "Bearer k1"
        assert request.headers["Sec-WebSocket-Protocol"] == "realtime-tts.v1"
        response = connection.respond(http.HTTPStatus(status), body.decode())
        if retry_after_s:
            response.headers["Retry-After"] = "2"
        return response

    async with serve(lambda _: None, "127.0.0.1", 0, process_request=refuse) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(expected) as caught:
            async with connect(f"ws://127.0.0.1:{port}", api_key="k1"):
                pass
    assert (caught.value.retryable, caught.value.retry_after_s) == (retryable, retry_after_s)


async def test_a_time_to_wait_that_is_no_number_is_none() -> None:
    """A header may hold what Python takes for digits."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Busy\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        with pytest.raises(client.Overloaded) as caught:
            await Endpoint(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}").open()
    assert caught.value.retry_after_s is None


async def test_no_error_has_a_key() -> None:
    """Errors are logged. A key may also be in the address."""
    with pytest.raises(client.ConnectionFailed) as caught:
        await Endpoint("ws://127.0.0.1:9/v1/stream?api_key=the-key", "the-key").open()
    assert "127.0.0.1:9" in caught.value.message
    assert "the-key" not in f"{caught.value!r}"
    for key in ("the-key\r\nX-Other: 1", "the-key\N{GRINNING FACE}", "the key"):
        with pytest.raises(ValueError, match="api_key") as refused:
            connect("ws://127.0.0.1:9", api_key=key)
        assert key not in str(refused.value)


async def test_a_key_may_end_a_line() -> None:
    """The key has the line end of a file."""
    asked: list[str] = []

    def refuse(connection: ServerConnection, request: Request) -> Response:
        asked.append(request.headers["Authorization"])
        return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "")

    async with serve(lambda _: None, "127.0.0.1", 0, process_request=refuse) as server:  # type: ignore[arg-type,return-value]
        with pytest.raises(client.Overloaded):
            async with connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", api_key="k1\n"):
                pass
    assert asked == ["Bearer k1"]


def test_a_code_of_a_later_version_keeps_its_name() -> None:
    error = error_from_code("moon_phase", "wait", retryable=True)
    assert type(error) is client.ServerError
    assert (error.code, error.retryable) == ("moon_phase", True)


def test_every_code_of_the_server_has_its_class_here() -> None:
    from realtime_tts.errors import ERROR_CLASSES

    classes = ERROR_CLASSES
    ours_only_at_home = {"config_error", "checkpoint_error", "engine_start_error", "engine_closed"}
    ours_only_at_home |= {"wire_error", "internal_error"}
    never_over_this_protocol = {"audio_decode_error", "voice_exists", "too_many_voices", "model_not_found"}
    never_over_this_protocol |= {"adapter_exists", "adapter_error", "too_many_adapters", "consent_not_found"}
    never_over_this_protocol.add("dictionary_not_found")
    never_over_this_protocol |= {code for code in classes if code.startswith("recording_")}
    for code in set(classes) - ours_only_at_home - never_over_this_protocol:
        error = error_from_code(code, "x")
        assert type(error) is not client.ServerError, code
        assert (error.http_status, error.retryable) == (classes[code].http_status, classes[code].retryable), code


def test_delays_grow_are_spread_and_bounded() -> None:
    assert reconnect_delay_s(0) == 0.0
    for attempt in range(1, 30):
        delays = {reconnect_delay_s(attempt) for _ in range(50)}
        middle = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (attempt - 1))
        assert all(0.5 * middle <= delay <= 1.5 * middle for delay in delays)
        assert len(delays) > 1
