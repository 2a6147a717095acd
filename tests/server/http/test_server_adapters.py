"""Adapters over HTTP, and in what a caller asks for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from gateway_harness import GatewayHarness
from stream_client import open_stream

from realtime_tts.errors import ConfigError
from realtime_tts.server.admission.auth import create_key

MakeGateway = Callable[..., GatewayHarness]
Asking = Callable[[GatewayHarness], httpx.Client]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("first", "second", "third"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path / "adapters"


@pytest.fixture
def asking() -> Iterator[Callable[[GatewayHarness], httpx.Client]]:
    """→ a client of a gateway's."""
    with contextlib.ExitStack() as opened:
        yield lambda gateway: opened.enter_context(httpx.Client(base_url=gateway.url, timeout=30))


async def ends(gateway: GatewayHarness, params: dict[str, Any], session: dict[str, Any] | None = None) -> str:
    async with open_stream(gateway.ws_url) as client:
        if session is not None:
            await client.send("session.start", params=session)
            started = await client.until(lambda m: m["type"] in ("session.started", "error"))
            if started["type"] == "error":
                return f"{started['code']} {started['field']}"
            assert started["params"]["adapter"] == (session["adapter"] or None)
        await client.send("text", context_id="c", text="Hello there.", params=params)
        await client.send("end", context_id="c")
        last = await client.until(lambda m: m["type"] in ("context.done", "context.failed", "error"))
        return f"{last['code']} {last.get('field')}" if "code" in last else "heard"


async def test_an_adapter_is_loaded_spoken_with_and_unloaded(
    make_gateway: MakeGateway, asking: Asking, directory: Path
) -> None:
    gateway = make_gateway(engine={"adapters": (("first", str(directory / "first")),), "adapters_dir": str(directory)})
    http, address = asking(gateway), "/v1/adapters"
    first = {"name": "first", "rank": 8, "digest": "first"}
    assert http.get(address).json() == {"adapters": [first]}
    unknown = "adapter_not_found params.adapter"
    assert await ends(gateway, {"adapter": "second"}) == unknown
    assert await ends(gateway, {}, session={"adapter": "second"}) == unknown
    loaded = http.post(address, json={"name": "second"})
    assert (loaded.status_code, loaded.json()["digest"]) == (201, "second")
    again, full = http.post(address, json={"name": "second"}), http.post(address, json={"name": "third"})
    assert (again.status_code, again.json()["code"]) == (409, "adapter_exists")
    assert (full.status_code, full.json()["code"]) == (409, "too_many_adapters")
    assert [adapter["name"] for adapter in http.get(address).json()["adapters"]] == ["first", "second"]
    assert await ends(gateway, {"adapter": "second"}) == "heard"
    assert await ends(gateway, {}, session={"adapter": "first"}) == "heard"

    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="Hello command never.", params={"adapter": "second"})
        await client.send("text", context_id="d", text="Hello command never.", params={"adapter": "first"})
        for context in ("c", "d"):
            await client.send("end", context_id=context)
        await client.until(lambda m: m["type"] == "context.started" and m["context_id"] == "d")
        assert http.delete(address + "/second").status_code == 204
        failed = await client.until(lambda m: m["type"] == "context.failed")
        assert (failed["context_id"], failed["code"]) == ("c", "adapter_not_found")
    assert http.delete(address + "/second").status_code == 404
    assert await ends(gateway, {"adapter": "second"}) == unknown
    assert await ends(gateway, {"adapter": ""}, session={"adapter": "first"}) == "heard"


async def test_an_empty_name_is_none_whatever_the_session_has(
    make_gateway: MakeGateway, asking: Asking, directory: Path
) -> None:
    gateway = make_gateway(engine={"adapters": (("first", str(directory / "first")),), "adapters_dir": str(directory)})
    http = asking(gateway)
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start", params={"adapter": "first"})
        for context, params in (("with", {}), ("without", {"adapter": ""})):
            await client.send("text", context_id=context, text="Hello command never.", params=params)
            await client.send("end", context_id=context)
        await client.until(lambda m: m["type"] == "context.started" and m["context_id"] == "without")
        http.delete("/v1/adapters/first")
        failed = await client.until(lambda m: m["type"] == "context.failed")
        assert failed["context_id"] == "with"
        await client.send("cancel", context_id="without")
        assert await client.until(lambda m: m["type"] == "context.cancelled")


def test_openais_address_takes_an_adapter_too(make_gateway: MakeGateway, asking: Asking, directory: Path) -> None:
    http = asking(make_gateway(engine={"adapters": (("first", str(directory / "first")),)}))

    def speech(name: str) -> httpx.Response:
        body = {"input": "Hello there.", "response_format": "pcm", "adapter": name}
        return http.post("/v1/audio/speech", json=body)

    assert speech("first").status_code == 200
    refused = speech("second")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "adapter_not_found")


async def test_clients_that_name_a_model_name_an_adapter_with_it(
    make_gateway: MakeGateway, asking: Asking, directory: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked.jsonl"
    gateway = make_gateway(engine={"adapters": (("first", str(directory / "first")),)}, worker={"asked": asked})
    http = asking(gateway)
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}
    speech = {"input": "Hi.", "response_format": "pcm"}
    named = http.post("/v1/audio/speech", json={**speech, "model": "fake-voice:first"})
    assert "realtime-tts-notice" not in named.headers
    other = http.post("/v1/audio/speech", json={**speech, "model": "tts-1:unknown"})
    assert "model 'tts-1:unknown' is not known here" in other.headers["realtime-tts-notice"]
    answers = [
        named,
        other,
        http.post("/v1/text-to-speech/slt", json={"text": "Hi.", "model_id": "eleven_flash_v2_5:first"}),
        http.post("/tts/bytes", json={"model_id": "sonic-3:first", "transcript": "Hi.", "output_format": raw}),
        http.post("/v1/speak", params={"model": "rms:first"}, json={"text": "Hi."}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 5
    await say(gateway, "/v1/text-to-speech/slt/stream-input?model_id=x:first", [{"text": "Hi. "}, {"text": ""}])
    hello = {"model_id": "x:first", "context_id": "c", "transcript": "Hi.", "output_format": raw, "voice": "slt"}
    await say(gateway, "/tts/websocket", [hello])
    await say(gateway, "/v1/speak?model=rms:first", [{"type": "Speak", "text": "Hi."}, {"type": "Flush"}])
    frames = [json.loads(line) for line in asked.read_text(encoding="utf-8").splitlines()]
    wanted = [(frame["voice"], frame["adapter"]) for frame in frames if frame["type"] == "generate"]
    slt, rms = ("slt", "first"), ("rms", "first")
    assert wanted == [slt, ("slt", None), slt, slt, rms, slt, slt, rms]


async def say(gateway: GatewayHarness, address: str, messages: list[dict[str, Any]]) -> None:
    """Until the first sound comes."""
    async with websockets.connect(gateway.url.replace("http", "ws", 1) + address) as socket:
        for message in messages:
            await socket.send(json.dumps(message))
        async for answer in socket:
            if isinstance(answer, bytes) or '"audio":"' in answer or '"type":"chunk"' in answer:
                return
    pytest.fail(f"{address} gave no sound")


async def test_where_ids_are_strict_the_model_before_an_adapter_is_one(
    make_gateway: MakeGateway, asking: Asking, directory: Path
) -> None:
    engine = {"adapters": (("first", str(directory / "first")),)}
    http = asking(make_gateway(engine=engine, strict_ids=True, model_aliases=("tts-1",)))
    for model, status in (("tts-1:first", 200), (":first", 200), ("tts-1:second", 404), ("tts-2:first", 404)):
        body = {"input": "Hi.", "response_format": "pcm", "model": model}
        assert http.post("/v1/audio/speech", json=body).status_code == status, model
    assert http.get("/v1/models").json()["data"][0]["params"]["adapter"] == {"choices": ["first"]}


@pytest.mark.parametrize(
    "name", ["../outside", "..", ".", "", "/etc", "first/../../outside", "a b", "x" * 65, "first\n"]
)
def test_only_what_lies_in_the_directory_is_loaded(asking: Asking, adapters_gateway: GatewayHarness, name: str) -> None:
    refused = asking(adapters_gateway).post("/v1/adapters", json={"name": name})
    assert (refused.status_code, refused.json()["code"]) == (404, "adapter_not_found")


@pytest.fixture(scope="module")
def adapters_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    directory = tmp_path_factory.mktemp("adapters") / "inside"
    (directory / "first").mkdir(parents=True)
    (directory.parent / "outside").mkdir()
    with GatewayHarness(engine={"adapters_dir": str(directory)}) as gateway:
        yield gateway


@pytest.mark.parametrize("body", [b"", b"{}", b'{"name": 3}', b'{"name": "first", "path": "/etc"}', b"[]", b"{"])
def test_a_malformed_body_is_refused(asking: Asking, adapters_gateway: GatewayHarness, body: bytes) -> None:
    refused = asking(adapters_gateway).post("/v1/adapters", content=body)
    assert refused.status_code == 400


def test_a_server_without_a_directory_changes_nothing(
    make_gateway: MakeGateway, asking: Asking, directory: Path
) -> None:
    gateway = make_gateway(engine={"adapters": (("first", str(directory / "first")),)})
    http, address = asking(gateway), "/v1/adapters"
    for refused in (http.post(address, json={"name": "second"}), http.delete(address + "/first")):
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert [adapter["name"] for adapter in http.get(address).json()["adapters"]] == ["first"]


def test_a_key_is_needed_and_a_token_may_only_look(make_gateway: MakeGateway, asking: Asking, directory: Path) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(engine={"adapters_dir": str(directory)}, api_key_hashes=(key_hash,))
    http, address = asking(gateway), "/v1/adapters"
    assert http.get(address).status_code == 401
    assert http.post(address, json={"name": "first"}).status_code == 401
    bearer = {"authorization": f"Bearer {key}"}
    token = http.post("/v1/tokens", json={}, headers=bearer).json()["token"]
    with_token = {"authorization": f"Bearer {token}"}
    assert http.get(address, headers=with_token).status_code == 200
    assert http.post(address, json={"name": "first"}, headers=with_token).status_code == 403
    assert http.post(address, json={"name": "first"}, headers=bearer).status_code == 201
    assert http.delete(address + "/first", headers=with_token).status_code == 403
    assert http.delete(address + "/first", headers=bearer).status_code == 204


def test_a_server_whose_adapter_cannot_be_loaded_does_not_start(make_gateway: MakeGateway, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the adapter 'first' cannot be loaded from .*: there is no such directory"):
        make_gateway(engine={"adapters": (("first", str(tmp_path / "nothing")),)})
