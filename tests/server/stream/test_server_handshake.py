"""Which clients are admitted, and what the others are told before the upgrade."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, NegotiationError

from realtime_tts.errors import CheckpointError, ConfigError
from realtime_tts.server.admission.auth import create_key

MakeGateway = Callable[..., GatewayHarness]


async def refusal(url: str, **options: Any) -> tuple[int, dict[str, Any], Any]:
    """Status, body and headers of a handshake that must fail."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url, proxy=None, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}"), response.headers


async def test_without_keys_loopback_needs_none(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("ping", id="1")
        assert (await client.until("pong"))["id"] == "1"


async def test_a_key_is_asked_for_before_the_upgrade(make_gateway: MakeGateway) -> None:
    (key, key_hash), (other, other_hash) = create_key(), create_key()
    gateway = make_gateway(api_key_hashes=(key_hash, other_hash))
    status, body, headers = await refusal(gateway.ws_url)
    assert (status, body["code"]) == (401, "unauthorized")
    assert headers["www-authenticate"] == "Bearer"
    wrong = {"Authorization": f"Bearer {create_key()[0]}"}
    assert (await refusal(gateway.ws_url, additional_headers=wrong))[0] == 401
    for accepted in (key, other):
        async with open_stream(gateway.ws_url, additional_headers={"Authorization": f"Bearer {accepted}"}):
            pass
    async with open_stream(f"{gateway.ws_url}?api_key={key}"):
        pass
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        assert (await http.get("/v1/voices")).status_code == 401
        assert (await http.get("/v1/voices", headers={"Authorization": f"Bearer {key}"})).status_code == 200
        assert (await http.get("/healthz")).status_code == 200


async def test_a_browsers_socket_brings_its_key_as_a_subprotocol(make_gateway: MakeGateway) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    offered = ["realtime-tts.v1", f"realtime-tts.key.{key}"]
    async with open_stream(gateway.ws_url, subprotocols=offered) as client:
        assert client.socket.subprotocol == "realtime-tts.v1", "the key is not repeated"
    assert (await refusal(gateway.ws_url, subprotocols=[*offered[:1], f"realtime-tts.key.{create_key()[0]}"]))[0] == 401


async def test_another_key_cannot_resume_a_session(make_gateway: MakeGateway) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(api_key_hashes=tuple(key_hash for _, key_hash in keys))
    mine, theirs = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
    async with open_stream(gateway.ws_url, additional_headers=mine) as client:
        await client.send("session.start")
        session_id = (await client.until("session.started"))["session_id"]
        async with open_stream(gateway.ws_url, additional_headers=theirs) as thief:
            await thief.send("session.resume", session_id=session_id, contexts={})
            assert (await thief.until("error"))["code"] == "session_not_found"


async def test_pages_of_other_sites_are_refused(gateway: GatewayHarness) -> None:
    assert (await refusal(gateway.ws_url, origin="https://evil.example"))[:1] == (403,)
    async with open_stream(gateway.ws_url, origin=gateway.url):
        pass


async def test_a_name_pointed_at_loopback_is_refused(gateway: GatewayHarness) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        response = await http.get(f"{gateway.url}/v1/voices", headers={"host": "evil.example"})
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")


async def test_an_allowed_origin_is_let_in(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(allowed_origins=("https://app.example",))
    async with open_stream(gateway.ws_url, origin="https://app.example"):
        pass


async def test_another_subprotocol_is_refused(gateway: GatewayHarness) -> None:
    status, body, _ = await refusal(gateway.ws_url, subprotocols=["chat"])
    assert (status, body["code"]) == (400, "invalid_request")


async def test_no_subprotocol_is_fine(gateway: GatewayHarness) -> None:
    with contextlib.suppress(NegotiationError):
        async with open_stream(gateway.ws_url, subprotocols=None) as client:
            assert client.socket.subprotocol is None


@pytest.mark.parametrize("path", ["/", "/nowhere", "/healthz", "/v1/stream/more"])
async def test_a_socket_to_another_address_is_not_found(gateway: GatewayHarness, path: str) -> None:
    status, body, _ = await refusal(gateway.url.replace("http", "ws", 1) + path)
    assert (status, body["code"]) == (404, "not_found")


async def test_overload_is_refused_at_the_handshake(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_sessions=2)
    async with open_stream(gateway.ws_url), open_stream(gateway.ws_url):
        status, body, headers = await refusal(gateway.ws_url)
        assert (status, body["code"], body["retryable"]) == (503, "overloaded", True)
        assert int(headers["retry-after"]) >= 1
        assert gateway.metric("handshakes_refused_total", code="overloaded") == 1
    baseline = gateway.usage()
    assert gateway.settle(baseline).connections == 0
    async with open_stream(gateway.ws_url):
        pass


async def test_a_full_engine_refuses_new_sessions(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"max_streams": 2}, max_queued=2)
    async with open_stream(gateway.ws_url) as client:
        for index in range(4):
            await client.send("text", context_id=f"c{index}", text="command stall. ")
            await client.send("flush", context_id=f"c{index}")
        await client.send("ping")
        await client.until("pong")
        status, body, _ = await refusal(gateway.ws_url)
        assert (status, body["code"]) == (503, "overloaded")
        await client.send("cancel")
        await client.until(lambda m: m.get("state") == "all")
        async with open_stream(gateway.ws_url):
            pass


async def test_a_key_has_so_many_sessions_and_no_more(make_gateway: MakeGateway) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(api_key_hashes=tuple(key_hash for _, key_hash in keys), max_sessions_per_tenant=1)
    first, second = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
    async with open_stream(gateway.ws_url, additional_headers=first):
        status, body, headers = await refusal(gateway.ws_url, additional_headers=first)
        assert (status, body["code"], body["retryable"]) == (429, "too_many_sessions", True)
        assert "retry-after" in headers
        async with open_stream(gateway.ws_url, additional_headers=second):
            pass


async def test_what_one_key_has_waiting_keeps_no_other_key_out(make_gateway: MakeGateway) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(
        worker={"max_streams": 2}, max_queued=2, api_key_hashes=tuple(key_hash for _, key_hash in keys)
    )
    greedy, honest = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
    async with open_stream(gateway.ws_url, additional_headers=greedy) as client:
        for index in range(4):
            await client.speak(f"c{index}", "command stall. ")
        await client.send("ping")
        await client.until("pong")
        assert (await refusal(gateway.ws_url, additional_headers=greedy))[1]["code"] == "overloaded"
        async with open_stream(gateway.ws_url, additional_headers=honest) as other:
            await other.speak("a", "Hello.")
            assert (await other.until_terminal("a"))["type"] == "context.done"


async def test_a_key_gets_no_more_than_its_share_of_the_last_places(make_gateway: MakeGateway) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(max_sessions=4, api_key_hashes=tuple(key_hash for _, key_hash in keys))
    greedy, honest = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(open_stream(gateway.ws_url, additional_headers=greedy))
        status, body, headers = await refusal(gateway.ws_url, additional_headers=greedy)
        assert (status, body["code"], body["retryable"]) == (429, "too_many_sessions", True)
        assert "retry-after" in headers
        await stack.enter_async_context(open_stream(gateway.ws_url, additional_headers=honest))


async def test_every_answer_has_a_request_id(gateway: GatewayHarness) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        assert (await http.get("/healthz", headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
        for path in ("/healthz", "/v1/voices", "/nowhere"):
            assert uuid.UUID((await http.get(path)).headers["x-request-id"])
        odd = await http.get("/healthz", headers={"x-request-id": "a b"})
        assert odd.headers["x-request-id"] != "a b"
    async with open_stream(gateway.ws_url) as client:
        assert client.socket.response is not None
        assert client.socket.response.headers["x-request-id"]
    assert (await refusal(gateway.ws_url, origin="https://evil.example"))[2]["x-request-id"]


def test_beyond_loopback_a_key_is_needed() -> None:
    with pytest.raises(ConfigError, match="needs an API key"), GatewayHarness(host="0.0.0.0"):
        pass


def test_a_model_that_cannot_be_loaded_ends_the_server() -> None:
    with pytest.raises(CheckpointError), GatewayHarness(worker={"fail_start": True}):
        pass


def test_a_taken_port_is_a_config_error(shared_gateway: GatewayHarness) -> None:
    port = int(shared_gateway.url.rpartition(":")[2])
    with (
        pytest.raises(ConfigError, match=f"127.0.0.1:{port}.* stop it, or choose another --port"),
        GatewayHarness(port=port),
    ):
        pass
