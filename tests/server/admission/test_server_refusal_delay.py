"""Refusing costs little: before the body is read, at a bounded rate, and on a connection that ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest
from gateway_harness import GatewayHarness
from raw_http import RawConnection
from stream_client import open_stream
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from realtime_tts.server.admission import refusal_delay as refusals_module
from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.admission.capacity import WINDOW_S, RecentRequests
from realtime_tts.server.admission.refusal_delay import BURST, MAX_DELAY_S, PER_S, RefusalDelay

MakeGateway = Callable[..., GatewayHarness]
SPEECH_DOORS = (
    "/v1/audio/speech",
    "/tts/bytes",
    "/tts/sse",
    "/v1/speak",
    "/v2/speak",
    "/v1/vapi",
    "/v1/jambonz",
    "/v1/text-to-speech/slt",
    "/v1/text-to-speech/slt/with-timestamps",
)


# ---- the accounts ----------------------------------------------------------------------------------------------------


def test_requests_count_for_one_window_to_two() -> None:
    asked = RecentRequests()
    for now in (0.0, WINDOW_S - 1, WINDOW_S + 1):
        asked.note("a", now)
    asked.note("b", WINDOW_S + 1)
    assert asked.counts(WINDOW_S + 1) == {"a": 3, "b": 1}
    assert asked.counts(2 * WINDOW_S) == {"a": 1, "b": 1}
    assert asked.counts(4 * WINDOW_S) == {}


def test_some_refusals_are_answered_at_once_and_the_rest_at_a_rate() -> None:
    refusals = RefusalDelay()
    assert [refusals.delay_s("a", "1.2.3.4", 5.0) for _ in range(BURST)] == [0.0] * BURST
    assert refusals.delay_s("a", "1.2.3.4", 5.0) == pytest.approx(1 / PER_S)
    assert refusals.delay_s("a", "1.2.3.4", 5.0) == pytest.approx(2 / PER_S)
    assert refusals.delay_s("b", "1.2.3.4", 5.0) == 0, "another key behind the same address"
    assert refusals.delay_s("a", "5.6.7.8", 5.0) == 0
    assert refusals.delay_s("a", "1.2.3.4", 5.0 + 3 / PER_S) == pytest.approx(0.0)


def test_a_hold_has_an_end_and_is_over_soon_after_the_last_refusal() -> None:
    refusals = RefusalDelay()
    longest_s = max(refusals.delay_s("a", "", 0.0) for _ in range(100_000))
    assert longest_s == MAX_DELAY_S
    assert refusals.delay_s("a", "", MAX_DELAY_S + BURST / PER_S) == 0


def test_clients_that_wait_for_their_answers_are_refused_at_the_bounded_rate() -> None:
    refusals, seconds = RefusalDelay(), 60.0
    due_s = [0.0] * 128  # when each of so many connections asks next
    num_refused = 0
    while (now := min(due_s)) < seconds:
        due_s[due_s.index(now)] = now + refusals.delay_s("a", "", now) + 0.001
        num_refused += 1
    assert num_refused <= BURST + seconds * PER_S + len(due_s)


def test_accounts_that_delay_nothing_are_dropped() -> None:
    refusals = RefusalDelay()
    for number in range(20_000):
        refusals.delay_s("", str(number), float(number))
    assert len(refusals._buckets) < 2000


# ---- the gateway -----------------------------------------------------------------------------------------------------


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def head(path: str, key: str = "", num_bytes: int = 10_000) -> bytes:
    credentials = f"authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{credentials}content-type: application/json\r\n"
        f"content-length: {num_bytes}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("path", SPEECH_DOORS)
async def test_a_request_that_cannot_be_admitted_is_refused_before_its_body_is_read(
    make_gateway: MakeGateway, path: str
) -> None:
    gateway = make_gateway(worker={"max_streams": 1})
    async with open_stream(gateway.ws_url) as client:
        await client.speak("a", "command stall. ")
        await client.send("ping")
        await client.until("pong")
        async with RawConnection(gateway.url) as connection:
            connection.send(head(path))
            answer = await connection.read_until(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in answer
    assert gateway.metric("handshakes_refused_total", code="overloaded") == 1


async def test_after_the_first_refusals_the_answer_waits_and_the_connection_is_closed(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), max_sessions=1)
    monkeypatch.setattr(refusals_module, "BURST", 1)
    monkeypatch.setattr(refusals_module, "PER_S", 1e-3)  # however late the second request comes
    monkeypatch.setattr(refusals_module, "MAX_DELAY_S", 0.05)
    async with open_stream(gateway.ws_url, additional_headers=bearer(key)) as client:
        await client.send("session.start")
        await client.until("session.started")
        async with RawConnection(gateway.url) as connection:
            connection.send(head("/v1/audio/speech", key, num_bytes=2) + b"{}")
            first = await connection.read_until(b'"}}')
            connection.send(head("/v1/audio/speech", key, num_bytes=2) + b"{}")
            second = await connection.read_all()
        assert b"connection: close" not in first
        assert second.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in second
        with pytest.raises(InvalidStatus) as caught:
            async with connect(gateway.ws_url, proxy=None, additional_headers=bearer(key)):
                pass
        assert caught.value.response.headers["connection"] == "close"
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http:
            voices = await http.get("/v1/voices", headers=bearer(key))
            assert voices.status_code == 200, "only refusals are held"


async def test_keys_that_are_guessed_are_held_too_and_a_right_one_is_not(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    monkeypatch.setattr(refusals_module, "BURST", 0)
    monkeypatch.setattr(refusals_module, "PER_S", 20.0)
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http:
        wrong = await http.get("/v1/voices", headers={"authorization": "Bearer wrong"})
        assert (wrong.status_code, wrong.headers["connection"]) == (401, "close")
        right = await http.get("/v1/voices", headers=bearer(key))
        assert (right.status_code, right.headers.get("connection")) == (200, None)


async def test_an_answer_is_not_held_for_a_client_that_has_gone(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = make_gateway(worker={"max_streams": 1}, max_sessions=1)
    baseline = gateway.usage()
    monkeypatch.setattr(refusals_module, "BURST", 0)
    monkeypatch.setattr(refusals_module, "PER_S", 1 / 600)
    monkeypatch.setattr(refusals_module, "MAX_DELAY_S", 600.0)
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start")
        await client.until("session.started")
        for _ in range(2):
            async with RawConnection(gateway.url) as connection:
                connection.send(head("/v1/audio/speech", num_bytes=2) + b"{}")
                while gateway.metric("handshakes_refused_total", code="overloaded") == 0:
                    await client.send("ping")
                    await client.until("pong")
    assert gateway.settle(baseline) == baseline


async def test_a_tenant_without_streams_is_admitted_although_another_made_the_gateway_late(
    make_gateway: MakeGateway,
) -> None:
    (greedy, greedy_hash), (honest, honest_hash) = create_key(), create_key()
    gateway = make_gateway(api_key_hashes=(greedy_hash, honest_hash), max_late_ms=1e-6)  # which any probe is beyond
    async with open_stream(gateway.ws_url, additional_headers=bearer(greedy)) as client:
        await client.speak("a", "command stall. ")
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=60) as http:
            body = {"input": "Hello.", "response_format": "pcm"}
            while not gateway.metric("late"):
                await http.get("/healthz")
            for _ in range(20):
                answer = await http.post("/v1/audio/speech", json=body, headers=bearer(greedy))
                assert answer.status_code == 503
                assert json.loads(answer.content)["error"]["code"] == "overloaded"
            answer = await http.post("/v1/audio/speech", json=body, headers=bearer(honest))
            assert answer.status_code == 200
            assert answer.content
        await client.send("cancel")
