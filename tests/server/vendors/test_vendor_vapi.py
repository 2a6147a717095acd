"""Vapi's custom voice on a real server: samples, keys, refusals and a client that hangs up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness

from realtime_tts.server.admission.auth import create_key

TEXT = "Hello there, this is a whole sentence."


def asked(text: str = TEXT, **message: Any) -> dict[str, Any]:
    """A request as Vapi sends it, with something about the call."""
    call = {"id": "c1", "assistant": {"voice": {"provider": "custom-voice"}}}
    return {
        "message": {
            "type": "voice-request",
            "text": text,
            "sampleRate": 16_000,
            "timestamp": 1,
            "call": call,
            **message,
        }
    }


@pytest.fixture
def http(clauses: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=clauses.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100])
def test_samples_are_those_of_other_interfaces(http: httpx.Client, rate: int) -> None:
    answer = http.post("/v1/vapi?voice=rms", json=asked(sampleRate=rate))
    assert (answer.status_code, answer.headers["realtime-tts-voice"]) == (200, "rms")
    same = http.post(f"/v1/speak?model=rms&encoding=linear16&container=none&sample_rate={rate}", json={"text": TEXT})
    assert answer.content == same.content
    assert len(answer.content) > rate


@pytest.mark.parametrize(("query", "voice"), [("", "rms"), ("?voice=slt", "slt")])
def test_the_voice_is_that_of_the_assistant_or_of_the_address(http: httpx.Client, query: str, voice: str) -> None:
    assert http.post(f"/v1/vapi{query}", json=asked(voiceId="rms")).headers["realtime-tts-voice"] == voice


def test_the_address_has_what_vapi_does_not_say(http: httpx.Client) -> None:
    slow, fast = (http.post(f"/v1/vapi?speed={speed}", json=asked()) for speed in ("0.5", "2"))
    assert len(slow.content) > 2 * len(fast.content)


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("", {}, 400, "invalid_message"),
        ("", {"message": "Hello."}, 400, "invalid_message"),
        ("", asked(type="status-update"), 400, "invalid_message"),
        ("", asked(text=""), 400, "invalid_request"),
        ("", asked(sampleRate="fast"), 400, "invalid_message"),
        ("", asked(sampleRate=12_345), 400, "unsupported_audio_format"),
        ("?speed=fast", asked(), 400, "invalid_request"),
        ("?speed=9", asked(), 400, "invalid_request"),
        ("", asked(text="a" * 30_000), 413, "text_too_long"),
    ],
)
def test_an_invalid_request_is_refused(http: httpx.Client, query: str, body: Any, status: int, code: str) -> None:
    answer = http.post("/v1/vapi" + query, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["error"]
    assert http.post("/v1/vapi", json=asked()).status_code == 200


def test_the_key_is_vapis_secret(make_gateway: Callable[..., GatewayHarness]) -> None:
    key, key_hash = create_key()
    url = make_gateway(api_key_hashes=(key_hash,)).url
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        answers = [http.post("/v1/vapi", json=asked(), headers={"X-VAPI-SECRET": secret}) for secret in (key, "wrong")]
    assert [answer.status_code for answer in answers] == [200, 401]
    assert answers[1].json()["code"] == "unauthorized"


def test_a_caller_who_interrupts_ends_the_speech(gateway: GatewayHarness) -> None:
    """Vapi closes the connection; the fixture checks that nothing is left."""
    with (
        httpx.Client(base_url=gateway.url, trust_env=False, timeout=60) as http,
        http.stream("POST", "/v1/vapi", json=asked("command never. And more.")) as answer,
    ):
        assert next(answer.iter_raw())
