"""ElevenLabs' addresses over plain HTTP: sound with and without times, what there is to choose from, refusals."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from stream_client import native_pcm

from realtime_tts.server.admission.auth import create_key

TEXT = "Hello there, this is a whole sentence. And here is another one!"
THEIRS = {"xi-api-key": "any"}


def post(gateway: GatewayHarness, endpoint: str = "", **fields: Any) -> httpx.Response:
    path = f"/v1/text-to-speech/rachel{endpoint}"
    body = {"text": TEXT, "model_id": "eleven_flash_v2_5", "seed": 7, **fields}
    return httpx.post(gateway.url + path, json=body, params={"output_format": "pcm_16000"}, timeout=20, headers=THEIRS)


def get(gateway: GatewayHarness, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(gateway.url + path, headers=THEIRS if headers is None else headers)


async def test_every_address_gives_the_samples_of_the_native_protocol(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.002, "text_lag_ms": 80.0, "chars_per_patch": 2.5})
    audio = {"codec": "pcm_s16le", "sample_rate": 16_000}
    expected = await native_pcm(gateway.ws_url, TEXT, audio, seed=7, mode="clause")
    for endpoint in ("", "/stream"):
        answer = post(gateway, endpoint)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/pcm")
        assert expected.startswith(answer.content)  # packets are filled up with silence
        assert len(expected) - len(answer.content) <= 640
    found = post(gateway, "/with-timestamps").json()
    assert base64.b64decode(found["audio_base64"]) == answer.content
    lines = [json.loads(line) for line in post(gateway, "/stream/with-timestamps").text.splitlines()]
    assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == answer.content
    assert len(lines) > 2
    told = [alignment for line in lines if (alignment := line["alignment"])]
    assert "".join("".join(alignment["characters"]) for alignment in told) == TEXT
    for name in found["alignment"]:
        assert found["alignment"][name] == [item for alignment in told for item in alignment[name]]
    ends = found["alignment"]["character_end_times_seconds"]
    assert ends == sorted(ends)
    assert 0.9 * len(answer.content) <= 32_000 * ends[-1] <= len(answer.content) + 32


def test_speech_has_the_requested_speed(gateway: GatewayHarness) -> None:
    usual, slow = post(gateway).content, post(gateway, voice_settings={"speed": 0.8}).content
    assert len(slow) == pytest.approx(len(usual) / 0.8, rel=0.01)


def test_ssml_is_followed_and_its_characters_keep_their_places(gateway: GatewayHarness) -> None:
    tagged = '<speak><prosody rate="200%">Hello there.</prosody></speak>'
    usual, fast = (post(gateway, text=text).content for text in ("Hello there.", tagged))
    assert len(fast) == len(usual) // 2
    found = post(gateway, "/with-timestamps", text=tagged).json()
    assert "".join(found["alignment"]["characters"]) == tagged
    refused = post(gateway, text="<speak>Hello")
    assert (refused.status_code, refused.json()["detail"]["status"]) == (400, "bad_ssml")


def test_without_a_format_it_is_mp3_and_a_client_is_told_what_makes_no_difference(gateway: GatewayHarness) -> None:
    body = {"text": "Hello.", "voice_settings": {"stability": 0.5}}
    answer = httpx.post(f"{gateway.url}/v1/text-to-speech/rachel", json=body, timeout=20)
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.content.startswith(b"ID3")
    assert "stability is ignored" in answer.headers["realtime-tts-notice"]


@pytest.mark.parametrize(
    ("fields", "query", "status", "named"),
    [
        ({"text": ""}, {}, 400, "invalid_request"),
        ({"text": 7}, {}, 400, "invalid_message"),
        ({"text": "a", "language_code": "xx"}, {}, 400, "unsupported_language"),
        ({"text": "a"}, {"output_format": "mp3_1"}, 400, "invalid_output_format"),
        ({"text": "a" * 30_000}, {}, 400, "max_character_limit_exceeded"),
    ],
)
def test_refusals_are_details(
    gateway: GatewayHarness, fields: dict[str, Any], query: dict[str, str], status: int, named: str
) -> None:
    answer = httpx.post(f"{gateway.url}/v1/text-to-speech/rachel", json=fields, params=query)
    assert (answer.status_code, answer.json()["detail"]["status"]) == (status, named)


def test_models_and_voices_are_listed_for_their_clients_and_as_before_for_others(gateway: GatewayHarness) -> None:
    assert [model["model_id"] for model in get(gateway, "/v1/models").json()] == ["fake-voice"]
    assert get(gateway, "/v1/models", {}).json()["object"] == "list"
    for path in ("/v1/voices", "/v2/voices"):
        assert [voice["voice_id"] for voice in get(gateway, path).json()["voices"]] == ["slt", "rms"]
    assert get(gateway, "/v1/voices", {}).json()["voices"][0]["id"] == "slt"
    assert get(gateway, "/v1/voices/rms").json()["name"] == "rms"
    unknown = get(gateway, "/v1/voices/nobody")
    assert (unknown.status_code, unknown.json()["detail"]["status"]) == (404, "voice_not_found")


def test_keys_and_switches(make_gateway: Callable[..., GatewayHarness]) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), strict_ids=True)
    assert post(gateway).json()["detail"]["status"] == "invalid_api_key"
    assert get(gateway, "/v1/voices").status_code == 401
    assert get(gateway, "/v1/voices", {"xi-api-key": key}).status_code == 200
    body = {"text": "Hello.", "model_id": "fake-voice"}
    for voice, status in (("slt", 200), ("rachel", 404)):
        url = f"{gateway.url}/v1/text-to-speech/{voice}"
        assert httpx.post(url, json=body, headers={"xi-api-key": key}, timeout=20).status_code == status
