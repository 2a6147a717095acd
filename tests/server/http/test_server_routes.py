"""Health, catalogue, metrics, documents."""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from pydantic import BaseModel
from stream_client import open_stream
from websockets.exceptions import InvalidStatus

from realtime_tts import __version__
from realtime_tts.errors import Forbidden, InternalError, InvalidRequest, RealtimeTTSError, TooManySessions
from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.admission.availability import GatewayState
from realtime_tts.server.http import schemas
from realtime_tts.server.http.problems import problem_response


@pytest.fixture
def http(gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        yield client


def test_health_and_readiness(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    ready = http.get("/readyz")
    assert (ready.status_code, ready.json()["workers"]) == (200, 1)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_health_addresses_answer_head(http: httpx.Client, path: str) -> None:
    response = http.head(path)
    assert (response.status_code, response.content) == (200, b"")
    length = int(http.get(path).headers["content-length"])
    assert abs(length - int(response.headers["content-length"])) <= 4, "but for the digits of how late it is by now"


def test_plain_http_is_told_to_upgrade_where_the_stream_is(http: httpx.Client) -> None:
    response = http.get("/v1/stream")
    assert (response.status_code, response.json()["code"]) == (426, "upgrade_required")
    assert response.headers["upgrade"] == "websocket"
    assert response.headers["connection"].lower() == "upgrade"
    assert http.get("/healthz").status_code == 200, "the connection is still of use"


def test_models_and_voices(http: httpx.Client) -> None:
    model = http.get("/v1/models").json()["data"][0]
    assert (model["id"], model["sample_rate"], model["default_voice"]) == ("fake-voice", 16_000, "slt")
    assert model["fp8"] == "off"
    voices = http.get("/v1/voices").json()["voices"]
    assert [(voice["id"], voice["default"]) for voice in voices] == [("slt", True), ("rms", False)]


def test_the_model_tells_what_may_be_asked_for(http: httpx.Client) -> None:
    model = http.get("/v1/models").json()["data"][0]
    assert model["params"] == {
        "steps": {"min": 2, "max": 64, "default": model["default_steps"]},
        "cfg": {"min": 0, "max": 10, "default": model["default_cfg"]},
        "instructions": {"max_chars": 500},
        "adapter": {"choices": []},
        "mode": {"choices": ["live", "clause"], "default": "clause"},
        "seed": {"min": 0, "max": 2**53 - 1},
        "speed": {"min": 0.25, "max": 4, "default": 1},
        "volume": {"min": 0, "max": 2, "default": 1},
        "sentence_pause_ms": {"min": 0, "max": 3000, "default": 0},
        "language": {"default": "en"},
        "text_type": {"choices": ["auto", "text", "ssml"], "default": "auto"},
        "openings": {"choices": ["on", "off"], "default": "off"},
        "lexicon": {},
    }
    assert model["text"] == {"max_chars": 20_000, "letters": "abcdefghijklmnopqrstuvwxyzßæðøþđħıłŋœŧƒə"}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/../../etc/passwd", 404, "not_found"),
        ("GET", "/%2e%2e/%2e%2e/pyproject.toml", 404, "not_found"),
        ("GET", "/%00", 404, "not_found"),
        ("POST", "/%00", 404, "not_found"),
        ("POST", "/" + "a" * 300, 404, "not_found"),
        ("POST", "/index.html", 405, "method_not_allowed"),
        ("PUT", "/v1/voices", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_http_errors_are_typed(http: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    response = http.request(method, path)
    assert response.status_code == status
    assert response.json()["code"] == code
    assert response.json()["retryable"] is False
    assert response.json()["message"]


@pytest.mark.parametrize(("path", "shown"), [("/v9", "/v9"), ("/" + "a" * 300, "/" + "a" * 99)])
def test_an_address_without_a_route_is_named(http: httpx.Client, path: str, shown: str) -> None:
    assert http.get(path).json()["message"] == f"there is nothing at '{shown}'"


async def test_a_handshake_at_an_address_without_a_route_names_it(gateway: GatewayHarness) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await open_stream(f"{gateway.ws_url}s").__aenter__()
    assert json.loads(refused.value.response.body or b"")["message"] == "there is nothing at '/v1/streams'"


def schema_of(interface: dict[str, Any], path: str, status: int) -> str:
    """Name of the schema of an answer."""
    content = interface["paths"][path]["get"]["responses"][str(status)]["content"]["application/json"]
    return str(content["schema"]["$ref"]).removeprefix("#/components/schemas/")


def is_of_a_dialect(operation: dict[str, Any]) -> bool:
    return operation["tags"][0].lower() in {"openai", "cartesia", "elevenlabs", "deepgram", "vapi", "jambonz"}


def test_the_interface_describes_itself(http: httpx.Client) -> None:
    interface = http.get("/openapi.json").json()
    paths = interface["paths"]
    own = {path: methods for path, methods in paths.items() if not any(map(is_of_a_dialect, methods.values()))}
    operations = {path: " ".join(sorted(methods)) for path, methods in own.items()}
    assert operations == {
        "/healthz": "get",
        "/readyz": "get",
        "/v1/models": "get",
        "/v1/voices": "get post",
        "/v1/voices/{voice_id}": "delete get patch",
        "/v1/voices/{voice_id}/preview": "get",
        "/v1/adapters": "get post",
        "/v1/adapters/{name}": "delete",
        "/v1/stream": "get",
        "/v1/tokens": "post",
        "/metrics": "get",
    }
    schemes = interface["components"]["securitySchemes"]
    assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "bearer")
    assert (schemes["query"]["type"], schemes["query"]["in"], schemes["query"]["name"]) == (
        "apiKey",
        "query",
        "api_key",
    )
    for path, operations in paths.items():
        either = None if path in ("/healthz", "/readyz") else [{"bearer": []}, {"query": []}]
        assert all(operation.get("security") == either for operation in operations.values())


def test_every_body_of_a_request_is_described(http: httpx.Client) -> None:
    bodies = {
        (path, method): operation.get("requestBody", {}).get("content", {})
        for path, methods in http.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
        if method in ("post", "patch", "put")
    }
    assert bodies.pop(("/v1/single-use-token/{token_type}", "post")) == {}  # the only one without a body
    for place, content in bodies.items():
        assert [part["schema"]["type"] for part in content.values()] == ["object"], place
        assert all(part["schema"]["properties"] for part in content.values()), place
    spoken = bodies["/v1/text-to-speech/{voice}/stream", "post"]["application/json"]["schema"]
    assert spoken["required"] == ["text"]
    assert {"text", "voice_settings", "seed", "pronunciation_dictionary_locators"} <= set(spoken["properties"])


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/healthz", schemas.Health),
        ("/readyz", schemas.Readiness),
        ("/v1/models", schemas.ModelList),
        ("/v1/voices", schemas.VoiceList),
        ("/v1/stream", schemas.Problem),
    ],
)
def test_an_answer_is_what_its_schema_says(http: httpx.Client, path: str, schema: type[BaseModel]) -> None:
    answer, interface = http.get(path), http.get("/openapi.json").json()
    assert schema_of(interface, path, answer.status_code) == schema.__name__
    assert schema.model_validate(answer.json(), strict=True).model_dump(exclude_unset=True) == answer.json()
    for status in interface["paths"][path]["get"]["responses"]:
        if int(status) >= 400:
            assert schema_of(interface, path, int(status)) == "Problem"


def test_a_schema_drops_no_field_of_the_catalogue(gateway: GatewayHarness, http: httpx.Client) -> None:
    assert http.get("/v1/models").json() == gateway.gateway.catalogue.models()
    assert http.get("/v1/voices").json() == gateway.gateway.catalogue.voices().model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    "error", [Forbidden("no"), InvalidRequest("no", field="audio.codec"), TooManySessions("later"), InternalError("oh")]
)
def test_an_error_is_a_problem(error: RealtimeTTSError) -> None:
    body = json.loads(bytes(problem_response(error, {}).body))
    problem = schemas.Problem.model_validate(body, strict=True)
    assert problem.model_dump(exclude_unset=True) == body
    assert (problem.code, problem.field) == (error.code, error.field)


async def test_metrics_count_what_happened(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as client:
        await client.speak("a", "Hello there.")
        done = await client.until_terminal("a")
        await client.send("text", context_id="b", text="command never. ")
        await client.until("audio")
        await client.send("cancel", context_id="b")
        await client.until_terminal("b")
        await client.speak("c", "command fail. ")
        await client.until_terminal("c")
        await client.socket.send("nonsense")
        await client.until("error")
        assert gateway.metric("sessions") == 1
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        text = (await http.get("/metrics")).text
    assert "realtime_tts_engine_workers_ready 1.0" in text
    for outcome in ("done", "cancelled", "failed"):
        assert gateway.metric("contexts_total", outcome=outcome) == 1
    assert gateway.metric("ttfa_seconds_count") == 1
    assert gateway.metric("characters_total") == len("Hello there.")
    assert gateway.metric("barge_ins_total") == 1
    assert gateway.metric("errors_total", code="numerical_error") == 1
    assert gateway.metric("errors_total", code="invalid_message") == 1
    packets = sum(len(log.packets) for log in client.contexts.values())
    assert gateway.metric("packets_total", codec="opus") == packets > done["audio_ms"] / 20
    assert gateway.metric("audio_seconds_total") == pytest.approx(packets * 0.02)


async def test_an_interruption_after_the_last_packet_counts_too(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as client:
        await client.speak("a", "Hello there, this goes on for two seconds or so.")
        await client.until_terminal("a")
        await client.send("playback", context_id="a", played_ms=40)
        await client.send("cancel", context_id="a")
        answer = await client.until("cancel.acknowledged")
        assert answer["state"] == "done"
    assert gateway.metric("barge_ins_total") == 1
    assert gateway.metric("contexts_total", outcome="done") == 1


def test_metrics_say_what_runs_here(http: httpx.Client) -> None:
    lines = http.get("/metrics").text.splitlines()
    (build,) = [line for line in lines if line.startswith("realtime_tts_build_info")]
    labels = {"version": __version__, "python": platform.python_version(), "model": "fake-voice", "device": "cpu"}
    assert build.endswith("} 1.0")
    assert dict(re.findall(r'(\w+)="([^"]*)"', build)) == labels
    assert "# TYPE realtime_tts_build_info gauge" in lines


async def test_restarts_of_a_worker_are_a_counter(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as client:
        await client.speak("a", "command crash, and then a good many words that nobody will ever hear.")
        assert (await client.until_terminal("a"))["code"] == "engine_lost"
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        for _ in range(500):
            if (await http.get("/readyz")).status_code == 200:
                break
            await asyncio.sleep(0.02)
        lines = (await http.get("/metrics")).text.splitlines()
        again = (await http.get("/metrics")).text.splitlines()
    for scrape in (lines, again):
        assert "realtime_tts_engine_worker_restarts_total 1.0" in scrape
        assert "# TYPE realtime_tts_engine_worker_restarts_total counter" in scrape


async def test_metrics_have_their_own_port_beyond_loopback(make_gateway: Callable[..., GatewayHarness]) -> None:
    _, key_hash = create_key()
    gateway = make_gateway(host="0.0.0.0", api_key_hashes=(key_hash,))
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        assert (await http.get(f"{gateway.url}/metrics")).status_code == 404
        port = gateway.server.address.metrics_port
        assert "realtime_tts_sessions" in (await http.get(f"http://127.0.0.1:{port}/metrics")).text


async def test_the_metrics_port_answers_for_health_in_the_same_way(make_gateway: Callable[..., GatewayHarness]) -> None:
    _, key_hash = create_key()
    gateway = make_gateway(host="0.0.0.0", api_key_hashes=(key_hash,))
    gateway.call(lambda: setattr(gateway.gateway.availability, "state", GatewayState.DRAINING))
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        answers = [
            await http.request(method, f"http://127.0.0.1:{port}/readyz")
            for port in (gateway.server.address.metrics_port, gateway.url.rpartition(":")[2])
            for method in ("GET", "HEAD")
        ]
    gateway.call(lambda: setattr(gateway.gateway.availability, "state", GatewayState.RUNNING))
    assert [answer.status_code for answer in answers] == [503] * 4
    assert [answer.content for answer in answers[1::2]] == [b"", b""]
    assert {answer.json()["code"] for answer in answers[::2]} == {"draining"}


def test_the_playground_is_served_and_locked_down(http: httpx.Client) -> None:
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-cache"
    script = http.get("/realtime-tts.js")
    assert "javascript" in script.headers["content-type"]
    assert http.get("/", headers={"if-none-match": page.headers["etag"]}).status_code == 304
    plain = http.get("/realtime-tts.js", headers={"accept-encoding": "identity"})
    assert plain.content == script.content
    assert (script.headers["content-encoding"], plain.headers.get("content-encoding")) == ("gzip", None)
    assert int(script.headers["content-length"]) < int(plain.headers["content-length"]) / 2


def test_the_gateway_is_imported_without_codecs_and_tensors() -> None:
    code = (
        "import sys, realtime_tts.server.run; print([m for m in ('torch', 'av', 'soxr', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.logs_errors
async def test_an_internal_error_is_logged_once_without_its_message(
    make_gateway: Callable[..., GatewayHarness], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = make_gateway()

    def fail(*args: object) -> None:
        raise LookupError("quetzalcoatl")

    monkeypatch.setattr(gateway.gateway.admission.authenticator, "check_origin", fail)
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        answer = await http.get("/v1/voices")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert answer.headers["x-request-id"]
    with pytest.raises(InvalidStatus) as caught:
        async with open_stream(gateway.ws_url):
            pass
    assert caught.value.response.status_code == 500
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == ["request_crashed"] * 2
    assert "quetzalcoatl" not in caplog.text
    assert "LookupError" in str([vars(record) for record in errors])


async def test_clients_that_vanish_leave_no_trace_in_the_log(gateway: GatewayHarness) -> None:
    """The fixture `quiet_log` looks."""
    port = int(gateway.url.rpartition(":")[2])
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + "A" * 22
    for host in ("localhost", "evil.example"):
        for path in ("/v1/stream", "/nowhere", "/openapi.json"):
            for bytes_read in (0, 1):
                with socket.create_connection(("127.0.0.1", port)) as peer:
                    peer.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{upgrade}==\r\n\r\n".encode())
                    peer.recv(bytes_read)
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        assert (await http.get("/healthz")).status_code == 200


async def test_figures_ask_for_a_key_where_there_are_keys(make_gateway: Callable[..., GatewayHarness]) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        assert (await http.get("/metrics")).status_code == 401
        answer = await http.get("/metrics", headers={"authorization": f"Bearer {key}"})
        assert (answer.status_code, "realtime_tts_sessions" in answer.text) == (200, True)
        assert (await http.get("/readyz")).status_code == 200, "a load balancer has no key"


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"host": "[::1"}, 400),
        ({"origin": "http://["}, 400),
    ],
)
def test_figures_and_readiness_are_for_this_machine(
    http: httpx.Client, path: str, headers: dict[str, str], status: int
) -> None:
    assert http.get(path, headers=headers).status_code == status
    assert http.get("/healthz", headers=headers).status_code == 200


async def test_a_local_metrics_port_goes_by_a_local_name(make_gateway: Callable[..., GatewayHarness]) -> None:
    _, key_hash = create_key()
    gateway = make_gateway(host="0.0.0.0", api_key_hashes=(key_hash,))
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{gateway.server.address.metrics_port}", trust_env=False, timeout=30
    ) as http:
        for path in ("/metrics", "/readyz"):
            assert (await http.get(path)).status_code == 200
            assert (await http.get(path, headers={"host": "evil.example"})).status_code == 403
            assert (await http.get(path, headers={"host": "[::1"})).status_code == 400
