"""Requests of older versions of other services' clients, and of applications that speak their interfaces."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from quick_recordings import decodings
from spoken_recordings import said, wav
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

from realtime_tts.server.admission.auth import create_key

__all__ = ["decodings"]

KEY, KEY_HASH = create_key()
NAMES = ["slt", "rms"]


@pytest.fixture(scope="module")
def keyed() -> Iterator[GatewayHarness]:
    with GatewayHarness(api_key_hashes=(KEY_HASH,), max_token_ttl_s=1800, max_voices_per_tenant=5) as harness:
        yield harness


@pytest.fixture
def service(keyed: GatewayHarness) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=keyed.url, timeout=30) as client:
        yield client


@pytest.fixture
def elevenlabs(service: httpx.Client) -> httpx.Client:
    service.headers["xi-api-key"] = KEY
    return service


@pytest.fixture
def bearer(service: httpx.Client) -> httpx.Client:
    service.headers["authorization"] = f"Bearer {KEY}"
    return service


# ---- voices and models ---------------------------------------------------------------------------------------------


def test_voices_and_models_are_listed_beside_openais_speech(bearer: httpx.Client) -> None:
    """Open WebUI, wyoming-openai and Home Assistant's openai_tts read these."""
    voices = bearer.get("/v1/audio/voices").json()["voices"]
    assert [(voice["id"], voice["name"]) for voice in voices] == [(name, name) for name in NAMES]
    [model] = bearer.get("/v1/audio/models").json()["models"]
    assert model["id"] == model["name"] == bearer.get("/v1/models").json()["data"][0]["id"]
    bearer.headers["authorization"] = "Bearer wrong"
    assert bearer.get("/v1/audio/voices").status_code == 401


def test_cartesias_older_client_lists_voices_at_an_address_that_ends_with_a_slash(bearer: httpx.Client) -> None:
    assert [voice["id"] for voice in bearer.get("/voices/").json()["data"]] == NAMES
    assert bearer.get("/voices/").json() == bearer.get("/voices").json()


def test_cartesias_oldest_clients_want_voices_in_a_list(bearer: httpx.Client) -> None:
    listed = bearer.get("/voices", headers={"cartesia-version": "2024-06-10"}).json()
    assert listed == bearer.get("/voices", headers={"cartesia-version": "2024-11-13"}).json()["data"]


@pytest.mark.usefixtures("decodings")
def test_voices_are_told_apart_by_their_owner_and_by_what_is_searched(elevenlabs: httpx.Client) -> None:
    """The form's files may have the name that older clients give them."""
    labels = '{"language": "de", "consent": "true"}'
    files = {"files[]": ("a.wav", wav(said("heart")))}
    made = elevenlabs.post("/v1/voices/add", data={"name": "Anna", "labels": labels}, files=files)
    assert made.status_code == 200, made.text
    voice_id = made.json()["voice_id"]
    try:

        def found(**query: Any) -> list[str]:
            return [voice["name"] for voice in elevenlabs.get("/v2/voices", params=query).json()["voices"]]

        everything = elevenlabs.get("/v2/voices").json()["voices"]
        assert {voice["name"]: voice["is_owner"] for voice in everything} == {"slt": False, "rms": False, "Anna": True}
        assert found(search="ann") == ["Anna"]
        assert found(voice_type="default") == NAMES
        assert found(voice_type="personal") == found(category="cloned") == found(language="de") == ["Anna"]
        assert found(voice_type="community") == found(gender="female") == []
        assert found(voice_ids=["rms", voice_id], sort="name", sort_direction="desc") == ["rms", "Anna"]
        mine = [voice["name"] for voice in elevenlabs.get("/voices", params={"is_owner": True}).json()["data"]]
        theirs = [voice["name"] for voice in elevenlabs.get("/voices", params={"is_owner": False}).json()["data"]]
        assert (mine, theirs) == (["Anna"], NAMES)
    finally:
        elevenlabs.delete(f"/v1/voices/{voice_id}")


def test_a_search_is_told_a_page_at_a_time(elevenlabs: httpx.Client) -> None:
    first = elevenlabs.get("/v2/voices", params={"page_size": 1}).json()
    assert ([voice["name"] for voice in first["voices"]], first["has_more"], first["total_count"]) == (["slt"], True, 2)
    query = {"page_size": 1, "next_page_token": first["next_page_token"]}
    second = elevenlabs.get("/v2/voices", params=query).json()
    assert ([voice["name"] for voice in second["voices"]], second["has_more"]) == (["rms"], False)
    refused = elevenlabs.get("/v2/voices", params={"page_size": 0})
    assert (refused.status_code, refused.json()["detail"]["status"]) == (400, "invalid_request")


# ---- keys ----------------------------------------------------------------------------------------------------------


def test_a_key_is_checked_by_asking_for_its_user(elevenlabs: httpx.Client) -> None:
    user = elevenlabs.get("/v1/user").json()
    assert user["subscription"] == elevenlabs.get("/v1/user/subscription").json()
    assert user["user_id"]
    assert user["subscription"]["status"] == "active"
    assert user["subscription"]["character_count"] < user["subscription"]["character_limit"]
    assert user["subscription"]["voice_limit"] == 5
    elevenlabs.headers["xi-api-key"] = "wrong"
    for path in ("/v1/user", "/v1/user/subscription"):
        refused = elevenlabs.get(path)
        assert (refused.status_code, refused.json()["detail"]["status"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/access-token", {"expires_in": 60, "grants": {"tts": True}}, "token"),
        ("/access-token", None, "token"),
        ("/v1/auth/grant", {"ttl_seconds": 30.0}, "access_token"),
        ("/v1/auth/grant", {}, "access_token"),
        ("/v1/single-use-token/tts_websocket", None, "token"),
    ],
)
def test_a_page_gets_a_token_as_of_its_service(
    keyed: GatewayHarness, path: str, body: dict[str, Any] | None, name: str
) -> None:
    with httpx.Client(base_url=keyed.url, headers={"xi-api-key": KEY}) as owner:
        answer = owner.post(path, json=body)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        token = answer.json()[name]
    with httpx.Client(base_url=keyed.url, headers={"authorization": f"Bearer {token}"}) as page:
        assert page.get("/v1/models").status_code == 200
        assert page.post(path, json=body).status_code == 403, "a token makes no other token"
    assert httpx.post(keyed.url + path, json=body).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/access-token", {"expires_in": 0}, 400),
        ("/access-token", {"expires_in": 1801}, 400),
        ("/access-token", {"expires_in": "60"}, 400),
        ("/v1/auth/grant", {"ttl_seconds": 10**9}, 400),
        ("/v1/auth/grant", {"ttl_seconds": -1}, 400),
        ("/v1/single-use-token/realtime_scribe", None, 400),
    ],
)
def test_tokens_that_are_refused(elevenlabs: httpx.Client, path: str, body: dict[str, Any] | None, status: int) -> None:
    assert elevenlabs.post(path, json=body).status_code == status


def test_deepgram_tells_how_long_its_token_lasts(bearer: httpx.Client) -> None:
    assert bearer.post("/v1/auth/grant", json={}).json()["expires_in"] == 30
    assert bearer.post("/v1/auth/grant", json={"ttl_seconds": 90}).json()["expires_in"] == 90


def test_a_server_without_keys_gives_tokens_too(gateway: GatewayHarness) -> None:
    """Its clients insist on one, as they do on a key."""
    token = httpx.post(f"{gateway.url}/access-token", json={"expires_in": 60}).json()["token"]
    voices = httpx.get(f"{gateway.url}/voices", headers={"authorization": f"Bearer {token}"})
    assert voices.status_code == 200


@pytest.mark.parametrize("scheme", ["token", "bearer"])
@pytest.mark.parametrize("place", [0, 1])
async def test_deepgrams_browser_client_brings_key_and_session_as_subprotocols(
    keyed: GatewayHarness, scheme: str, place: int
) -> None:
    session = ["x-deepgram-session-id", str(uuid.uuid4())]
    offered: Any = [[scheme, KEY, *session], [*session, scheme, KEY]][place]
    async with connect(
        f"{keyed.ws_url.removesuffix('/v1/stream')}/v1/speak", subprotocols=offered, proxy=None
    ) as socket:
        assert socket.subprotocol == scheme, "a browser drops a connection that answers with none or another one"


@pytest.mark.parametrize("form", ["{}", "Bearer {}", "bearer {}"])
async def test_elevenlabs_key_may_be_an_authorization_in_the_address(keyed: GatewayHarness, form: str) -> None:
    query = httpx.QueryParams(authorization=form.format(KEY))
    url = f"{keyed.ws_url.removesuffix('/v1/stream')}/v1/text-to-speech/rms/stream-input?{query}"
    async with connect(url, proxy=None) as socket:
        await socket.send('{"text": ""}')
        assert '"isFinal":true' in [str(message) async for message in socket][-1]


def elevenlabs_socket(gateway: GatewayHarness, endpoint: str = "stream-input") -> Any:
    return connect(f"{gateway.ws_url.removesuffix('/v1/stream')}/v1/text-to-speech/rms/{endpoint}", proxy=None)


@pytest.mark.parametrize("name", ["xi_api_key", "xi-api-key", "authorization"])
@pytest.mark.parametrize("endpoint", ["stream-input", "multi-stream-input"])
async def test_elevenlabs_key_may_come_with_the_first_message(keyed: GatewayHarness, endpoint: str, name: str) -> None:
    async with elevenlabs_socket(keyed, endpoint) as socket:
        key = f"Bearer {KEY}" if name == "authorization" else KEY
        await socket.send(json.dumps({"text": " ", name: key}))
        await socket.send('{"text": "Hello. "}')
        await socket.send('{"text": "", "close_socket": true}')
        told = [json.loads(message) async for message in socket]
    assert any(message.get("audio") for message in told)
    assert told[-1]["isFinal"] is True
    assert socket.close_code == 1000


@pytest.mark.parametrize(
    "first",
    [
        '{"text": " "}',
        '{"text": " ", "xi_api_key": "wrong"}',
        '{"xi_api_key": 7}',
        "[]",
        b"\xff",
        '{"xi_api_key": "\u20ac"}',
    ],
)
async def test_a_first_message_without_the_key_is_told_so_and_nothing_is_spoken(
    keyed: GatewayHarness, first: str | bytes
) -> None:
    async with elevenlabs_socket(keyed) as socket:
        await socket.send(first)
        told = json.loads(await socket.recv())
        with pytest.raises(ConnectionClosedError):
            await socket.recv()
    assert (told["error"], told["code"], socket.close_code) == ("invalid_api_key", 1008, 1008)
    assert not keyed.gateway.sessions


async def test_a_socket_without_a_key_is_not_kept(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway(api_key_hashes=(KEY_HASH,), handshake_timeout_s=1.0)
    async with elevenlabs_socket(gateway) as socket:
        with pytest.raises(ConnectionClosedError):
            await socket.recv()
    assert socket.close_code == 1008


# ---- applications --------------------------------------------------------------------------------------------------

# The body that each of them sends to `POST /v1/audio/speech`, and what it wants to get.
APPLICATIONS = {
    "Open WebUI": ({"model": "tts-1", "input": "Hello there.", "voice": "alloy"}, "audio/mpeg"),
    "Home Assistant": (
        {
            "model": "tts-1", "input": "Hello there.", "voice": "alloy", "response_format": "wav", "speed": 1.0,
            "instructions": "Speak calmly.", "stream_format": "audio",
        },
        "audio/wav",
    ),
    "SillyTavern": (
        {"model": "tts-1", "input": "Hello there.", "voice": "alloy", "response_format": "mp3", "speed": 1.25},
        "audio/mpeg",
    ),
    "speech-to-speech": (
        {
            "model": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", "input": "Hello there.", "voice": "aiden",
            "response_format": "pcm", "stream": True, "stream_format": "audio", "task_type": "CustomVoice",
        },
        "audio/pcm",
    ),
    "LiteLLM": ({"model": "tts-1", "input": "Hello there.", "voice": "alloy", "speed": None}, "audio/mpeg"),
}  # fmt: skip


@pytest.mark.parametrize("name", APPLICATIONS)
def test_applications_are_spoken_to(bearer: httpx.Client, name: str) -> None:
    body, content_type = APPLICATIONS[name]
    answer = bearer.post("/v1/audio/speech", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
    assert len(answer.content) > 1000


# ---- headers -------------------------------------------------------------------------------------------------------


def test_deepgrams_older_clients_need_the_model_by_its_id(bearer: httpx.Client) -> None:
    answers = [bearer.post("/v1/speak", json={"text": "Hello."}) for _ in range(2)]
    ids = {uuid.UUID(answer.headers["dg-model-uuid"]) for answer in answers}
    assert len(ids) == 1
    assert {"dg-request-id", "dg-model-name", "dg-char-count", "date", "content-type"} <= set(answers[0].headers)


def test_elevenlabs_speech_names_its_request(elevenlabs: httpx.Client) -> None:
    for endpoint in ("", "/stream", "/with-timestamps", "/stream/with-timestamps"):
        answer = elevenlabs.post(f"/v1/text-to-speech/rms{endpoint}", json={"text": "Hello."})
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
