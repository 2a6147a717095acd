"""Errors at the addresses of other services: too long texts, addresses and methods that are unknown, unknown fields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

MAX_CHARS = 300
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
CARTESIA = {"model_id": "fake-voice", "voice": {"mode": "id", "id": "slt"}, "output_format": RAW}
DOORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "openai": ("/v1/audio/speech", "input", {"voice": "slt", "model": "fake-voice"}),
    "cartesia": ("/tts/bytes", "transcript", CARTESIA),
    "elevenlabs": ("/v1/text-to-speech/slt", "text", {}),
    "deepgram": ("/v1/speak?model=slt", "text", {}),
}


@pytest.fixture(scope="module")
def small_gateway() -> Iterator[GatewayHarness]:
    """One that takes short texts only."""
    with GatewayHarness(max_text_chars=MAX_CHARS, worker={"patch_delay_s": 0.002}) as harness:
        yield harness


@pytest.fixture
def http(small_gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=small_gateway.url, trust_env=False, timeout=30) as client:
        yield client


def told(door: str, answer: httpx.Response) -> dict[str, Any]:
    """What a body says, where each service's clients look."""
    body: dict[str, Any] = answer.json()
    if door in ("openai", "elevenlabs"):
        return dict(body["error" if door == "openai" else "detail"])
    return body


@pytest.mark.parametrize("num_chars", [MAX_CHARS + 1, 100_000])  # the latter is refused by the length of its body
@pytest.mark.parametrize(
    ("door", "status", "expected"),
    [
        ("openai", 400, {"code": "string_above_max_length", "param": "input", "type": "invalid_request_error"}),
        ("cartesia", 400, {"error_code": "text_too_long", "title": "Bad Request"}),
        ("elevenlabs", 400, {"status": "max_character_limit_exceeded"}),
        ("deepgram", 413, {"err_code": "text_too_long"}),
    ],
)
def test_a_text_that_is_too_long_is_refused_as_the_service_does_it(
    http: httpx.Client, door: str, status: int, expected: dict[str, str], num_chars: int
) -> None:
    path, name, body = DOORS[door]
    answer = http.post(path, json={**body, name: "a" * num_chars})
    assert answer.status_code == status
    found = told(door, answer)
    assert {key: found[key] for key in expected} == expected
    assert str(MAX_CHARS) in found.get("message", found.get("err_msg", ""))


async def test_a_text_that_is_too_long_for_cartesias_socket_is_a_bad_request(small_gateway: GatewayHarness) -> None:
    async with connect(small_gateway.url.replace("http", "ws", 1) + "/tts/websocket", proxy=None) as socket:
        await socket.send(json.dumps({**CARTESIA, "context_id": "a", "transcript": "a " * MAX_CHARS}))
        error = json.loads(await asyncio.wait_for(socket.recv(), 10))
    assert (error["type"], error["status_code"], error["error_code"]) == ("error", 400, "text_too_long")


# ---- unknown fields --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_unknown_fields_are_noticed(http: httpx.Client, door: str) -> None:
    path, name, body = DOORS[door]
    answer = http.post(path, json={**body, name: "Hello.", "emphasis": 1, "stlye": {"a": "b"}, "empty": None})
    assert answer.status_code == 200
    assert answer.headers["realtime-tts-notice"] == "unknown fields are ignored: 'emphasis', 'stlye'"
    assert "realtime-tts-notice" not in http.post(path, json={**body, name: "Hello."}).headers


def test_unknown_fields_of_objects_are_noticed_by_their_dotted_names(http: httpx.Client) -> None:
    cartesia = {**CARTESIA, "transcript": "Hi.", "generation_config": {"sped": 2}, "voice": {"id": "slt", "tone": 1}}
    notice = http.post("/tts/bytes", json=cartesia).headers["realtime-tts-notice"]
    assert notice == "unknown fields are ignored: 'voice.tone', 'generation_config.sped'"
    elevenlabs = {"text": "Hi.", "voice_settings": {"stability": 0.5, "speeed": 2}}
    notice = http.post("/v1/text-to-speech/slt", json=elevenlabs).headers["realtime-tts-notice"]
    assert notice == "stability is ignored; unknown fields are ignored: 'voice_settings.speeed'"


@pytest.mark.parametrize(
    ("door", "fields"),
    [
        ("openai", {"response_format": "mp3", "stream_format": "audio", "speed": 1, "language": "en"}),
        ("openai", {"lexicon": {"nginx": "engine x"}, "volume": 1, "text_type": "text", "sentence_pause_ms": 0}),
        ("cartesia", {"language": "en", "speed": "normal", "generation_config": {"speed": 1, "volume": 1}}),
        ("cartesia", {"add_timestamps": True, "context_id": "a", "pronunciation_dict_id": None, "save": False}),
        ("cartesia", {"output_format": {"container": "mp3", "sample_rate": 44_100, "bit_rate": 128_000}}),
        ("elevenlabs", {"model_id": "fake-voice", "seed": 7, "language_code": "en", "voice_settings": {"speed": 1}}),
        ("elevenlabs", {"previous_text": "a", "next_text": "b", "apply_text_normalization": "auto"}),
    ],
)
def test_known_fields_are_not_noticed(http: httpx.Client, door: str, fields: dict[str, Any]) -> None:
    path, name, body = DOORS[door]
    answer = http.post(path, json={**body, **fields, name: "Hello."})
    assert answer.status_code == 200
    assert "realtime-tts-notice" not in answer.headers


def test_strange_names_of_fields_do_no_harm_in_a_header(http: httpx.Client) -> None:
    fields: dict[str, Any] = {"\r\nset-cookie: a": 1, "\u2603" * 500: 1, **{f"field {index}": 1 for index in range(20)}}
    answer = http.post("/v1/audio/speech", json={"input": "Hi.", "voice": "slt", **fields})
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    assert answer.headers["realtime-tts-notice"].endswith("'field 5' and others")
    assert len(answer.headers["realtime-tts-notice"]) < 800


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/audio/transcriptions", "/nothing", "/v1/voices/a/b/c"])
def test_an_unknown_address_is_not_found_by_any_method(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, path, json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/audio/speech", "POST"),
        ("GET", "/tts/bytes", "POST"),
        ("GET", "/v1/text-to-speech/slt", "POST"),
        ("DELETE", "/v1/audio/speech", "POST"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/healthz", "GET"),
        ("POST", "/", "GET"),
        ("POST", "/index.html", "GET"),
    ],
)
def test_another_method_of_an_address_is_not_allowed(http: httpx.Client, method: str, path: str, allowed: str) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert allowed in answer.headers.get("allow", "GET")


def test_the_page_is_where_it_was(http: httpx.Client) -> None:
    page = http.get("/")
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert page.headers["content-security-policy"]
    assert http.head("/index.html").status_code == 200
    assert http.get("/no-such-file.js").status_code == 404
    assert http.get("/v1/voices/").status_code != 307, "clients do not follow other addresses than they have asked for"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/realtime/client_secrets"),
        ("POST", "/v1/realtime/sessions"),
        ("POST", "/v1/realtime/calls"),
        ("POST", "/v1/realtime"),
        ("GET", "/v1/realtime"),
    ],
)
def test_a_realtime_request_is_told_what_is_missing(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, path)
    assert answer.status_code == 404
    assert (answer.json()["error"]["code"], answer.json()["error"]["type"]) == ("not_found", "invalid_request_error")
    assert "no Realtime API" in answer.json()["error"]["message"]
    assert "/v1/audio/speech" in answer.json()["error"]["message"]


async def test_a_realtime_socket_is_told_what_is_missing(small_gateway: GatewayHarness) -> None:
    address = small_gateway.url.replace("http", "ws", 1) + "/v1/realtime?model=gpt-realtime"
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, proxy=None, subprotocols=["realtime"])
    assert refused.value.response.status_code == 404
    assert "no Realtime API" in json.loads(refused.value.response.body)["error"]["message"]
