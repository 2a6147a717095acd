"""Deepgram's `POST /v1/speak`."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import numpy as np
import pytest
from gateway_harness import GatewayHarness
from stream_client import native_pcm

from realtime_tts.server.admission.auth import create_key
from realtime_tts.speech.recordings import VoiceRecordings
from realtime_tts.speech.voices import VoiceLabels
from tests.support.sound_files import read_sound_file

TEXT = "Hello there, this is a whole sentence. And here is another one! "


def speak(gateway: GatewayHarness, text: str = TEXT, **query: str) -> httpx.Response:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        return client.post("/v1/speak", params={"model": "aura-2-thalia-en", **query}, json={"text": text})


@pytest.mark.parametrize(
    ("encoding", "codec", "rate"),
    [("linear16", "pcm_s16le", 24_000), ("mulaw", "mulaw", 8_000), ("alaw", "alaw", 16_000)],
)
async def test_samples_are_those_of_the_native_protocol(
    clauses: GatewayHarness, encoding: str, codec: str, rate: int
) -> None:
    answer = speak(clauses, encoding=encoding, sample_rate=str(rate), container="none")
    native = await native_pcm(clauses.ws_url, TEXT, {"codec": codec, "sample_rate": rate, "frame_ms": 40})
    assert native.startswith(answer.content)  # there the last packet is filled up
    assert 0 <= len(native) - len(answer.content) < len(native) // 20


@pytest.mark.parametrize(
    ("query", "content_type", "rate"),
    [
        ({}, "audio/mpeg", 22_050),
        ({"encoding": "mp3", "bit_rate": "32000"}, "audio/mpeg", 22_050),
        ({"encoding": "linear16"}, "audio/wav", 24_000),
        ({"encoding": "mulaw", "container": "wav"}, "audio/wav", 8_000),
        ({"encoding": "opus", "container": "ogg"}, "audio/ogg; codecs=opus", 48_000),
        ({"encoding": "flac", "sample_rate": "48000"}, "audio/flac", 48_000),
        ({"encoding": "aac"}, "audio/aac", 22_050),
    ],
)
def test_files_are_what_they_say(clauses: GatewayHarness, query: dict[str, str], content_type: str, rate: int) -> None:
    answer = speak(clauses, **query)
    assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
    samples, found_rate = read_sound_file(answer.content)
    assert found_rate == rate
    raw = speak(clauses, encoding="linear16", container="none")
    assert len(samples) / rate == pytest.approx(len(raw.content) / 48_000, abs=0.2)


def test_speech_may_be_faster(clauses: GatewayHarness) -> None:
    usual, faster = (speak(clauses, encoding="linear16", container="none", speed=speed) for speed in ("1", "1.25"))
    assert len(faster.content) == pytest.approx(len(usual.content) / 1.25, rel=0.01)


def test_headers_name_the_request(clauses: GatewayHarness) -> None:
    answer = speak(clauses, "Hello.", encoding="linear16", bit_rate="48000")
    assert answer.headers["dg-request-id"] == answer.headers["x-request-id"]
    assert (answer.headers["dg-model-name"], answer.headers["dg-char-count"]) == ("fake-voice", "6")
    assert "bit_rate is ignored" in answer.headers["realtime-tts-notice"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"encoding": "vorbis"}, "unsupported_audio_format"),
        ({"encoding": "mp3", "container": "wav"}, "unsupported_audio_format"),
        ({"encoding": "opus", "container": "none"}, "unsupported_audio_format"),
        ({"sample_rate": "24k"}, "invalid_request"),
        ({"sample_rate": "123"}, "unsupported_audio_format"),
        ({"bit_rate": "7"}, "unsupported_audio_format"),
        ({"speed": "fast"}, "invalid_request"),
        ({"callback": "https://example.com"}, "invalid_request"),
    ],
)
def test_an_invalid_request_is_answered_in_this_dialect(
    clauses: GatewayHarness, query: dict[str, str], code: str
) -> None:
    answer = speak(clauses, **query)
    assert (answer.status_code, answer.json()["err_code"]) == (400, code)
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"{}", b'{"text":7}', b'{"text":" "}', b'{"url":"x"}'])
def test_a_body_without_a_text_is_refused(clauses: GatewayHarness, body: bytes) -> None:
    answer = httpx.post(f"{clauses.url}/v1/speak", content=body, trust_env=False, timeout=30)
    assert (answer.status_code, set(answer.json())) == (400, {"err_code", "err_msg", "request_id"})


def test_a_refusal_may_name_a_voice_with_any_name(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway(strict_ids=True)
    tone = VoiceRecordings(reference=(np.sin(np.arange(32_000) * 0.1), 16_000))
    gateway.run(gateway.gateway.voices.add(VoiceLabels("Änne\nand Bo\0"), tone))
    answer = speak(gateway, model="unknown")
    assert (answer.status_code, answer.json()["err_code"]) == (404, "voice_not_found")
    assert "?nne?and Bo?" in answer.headers["dg-error"]


def test_keys_have_their_place(make_gateway: Callable[..., GatewayHarness]) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))

    def ask(secret: str) -> httpx.Response:
        headers = {"authorization": f"Token {secret}"}
        return httpx.post(f"{gateway.url}/v1/speak", json={"text": "Hi."}, headers=headers, trust_env=False, timeout=30)

    assert ask(key).status_code == 200
    assert (ask("wrong").status_code, ask("wrong").json()["err_code"]) == (401, "unauthorized")
