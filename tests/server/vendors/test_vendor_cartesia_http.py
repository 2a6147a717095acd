"""Cartesia's addresses over plain HTTP: bytes, events, voices."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import av
import httpx
import numpy as np
import pytest
from gateway_harness import GatewayHarness
from stream_client import native_pcm

from realtime_tts.server.admission.auth import create_key
from tests.support.sound_files import read_sound_file

TEXT = "Hello there, this is a whole sentence. And here is another one! "
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}
HEADERS = {"cartesia-version": "2026-03-01"}


def asking(gateway: GatewayHarness, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=gateway.url, trust_env=False, timeout=30, headers={**HEADERS, **headers})


def body(transcript: str = TEXT, **fields: Any) -> dict[str, Any]:
    voice = {"mode": "id", "id": "katie"}
    return {"model_id": "sonic-3", "voice": voice, "output_format": RAW, "transcript": transcript, **fields}


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    events = []
    for told in answer.text.strip().split("\n\n"):
        kind, data = told.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}"
    return events


@pytest.mark.parametrize(
    ("encoding", "codec", "rate"),
    [("pcm_s16le", "pcm_s16le", 24_000), ("pcm_f32le", "pcm_f32le", 44_100), ("pcm_mulaw", "mulaw", 8_000)],
)
async def test_bytes_are_the_native_protocols_samples(
    clauses: GatewayHarness, encoding: str, codec: str, rate: int
) -> None:
    with asking(clauses) as client:
        wanted = {"container": "raw", "encoding": encoding, "sample_rate": rate}
        answer = client.post("/tts/bytes", json=body(output_format=wanted))
    native = await native_pcm(clauses.ws_url, TEXT, {"codec": codec, "sample_rate": rate, "frame_ms": 40})
    assert answer.status_code == 200
    assert native.startswith(answer.content)  # there the last packet is filled up
    assert 0 <= len(native) - len(answer.content) < len(native) // 20


@pytest.mark.parametrize(
    ("wanted", "content_type"),
    [
        ({"container": "wav", "encoding": "pcm_s16le", "sample_rate": 22_050}, "audio/wav"),
        ({"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44_100}, "audio/wav"),
        ({"container": "mp3", "bit_rate": 128_000, "sample_rate": 44_100}, "audio/mpeg"),
    ],
)
def test_files_are_what_they_say(clauses: GatewayHarness, wanted: dict[str, Any], content_type: str) -> None:
    with asking(clauses) as client:
        answer = client.post("/tts/bytes", json=body(output_format=wanted))
        raw = client.post("/tts/bytes", json=body())
    assert answer.headers["content-type"] == content_type
    samples, rate = read_sound_file(answer.content)
    assert rate == wanted["sample_rate"]
    assert len(samples) / rate == pytest.approx(len(raw.content) / 32_000, abs=0.1)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050])
@pytest.mark.parametrize("bit_rate", [32_000, 64_000, 96_000, 128_000, 192_000])
def test_mp3_has_the_highest_bit_rate_that_there_is_at_a_low_sample_rate(
    clauses: GatewayHarness, rate: int, bit_rate: int
) -> None:
    wanted = {"container": "mp3", "bit_rate": bit_rate, "sample_rate": rate}
    with asking(clauses) as client:
        answer = client.post("/tts/bytes", json=body(output_format=wanted))
    assert answer.status_code == 200
    with av.open(io.BytesIO(answer.content)) as container:
        stream = container.streams.audio[0]
        made = min(bit_rate, 64_000 if rate == 8_000 else 160_000)
        assert (stream.rate, stream.bit_rate) == (rate, made)
    assert (f"bit_rate is {made}" in answer.headers.get("realtime-tts-notice", "")) is (made != bit_rate)


async def test_events_carry_the_same_audio_and_its_words(clauses: GatewayHarness) -> None:
    with asking(clauses) as client:
        answer = client.post("/tts/sse", json=body(add_timestamps=True, context_id="mine"))
        plain = client.post("/tts/bytes", json=body())
    events = events_of(answer)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert {event["context_id"] for event in events} == {"mine"}
    assert b"".join(base64.b64decode(event["data"]) for event in events if event["type"] == "chunk") == plain.content
    words = [word for event in events if event["type"] == "timestamps" for word in event["word_timestamps"]["words"]]
    assert words == TEXT.split()
    assert [event["done"] for event in events] == [False] * (len(events) - 1) + [True]


def test_events_without_a_context_and_words_have_none(clauses: GatewayHarness) -> None:
    with asking(clauses) as client:
        events = events_of(client.post("/tts/sse", json=body("Hello.")))
    assert {event["type"] for event in events} == {"chunk", "done"}
    assert not any("context_id" in event for event in events)


def test_speech_may_be_faster(clauses: GatewayHarness) -> None:
    with asking(clauses) as client:
        usual = client.post("/tts/bytes", json=body())
        faster = client.post("/tts/bytes", json=body(generation_config={"speed": 1.25}))
        beyond = client.post("/tts/bytes", json=body(generation_config={"speed": 9}))
    assert len(faster.content) == pytest.approx(len(usual.content) / 1.25, rel=0.01)
    assert beyond.status_code == 400


def test_tags_change_speed_and_volume_and_spell_out(clauses: GatewayHarness) -> None:
    """The fake speaks by the length of the text."""
    with asking(clauses) as client:
        usual, fast, soft, plain, spelt = (
            client.post("/tts/bytes", json=body(text)).content
            for text in (
                "Hello there.", '<speed ratio="1.25"/>Hello there.', '<volume ratio="0.5"/>Hello there.',
                "It is gvxzkwq.", "It is <spell>gvxzkwq</spell>.",
            )
        )  # fmt: skip
        told = events_of(client.post("/tts/sse", json=body('Hi <emotion value="sad"/>you.', add_timestamps=True)))
    assert len(fast) == pytest.approx(len(usual) / 1.25, rel=0.01)
    peaks = [int(np.abs(np.frombuffer(pcm, "<i2").astype(int)).max()) for pcm in (usual, soft)]
    assert peaks[1] == pytest.approx(peaks[0] / 2, abs=1)
    assert len(spelt) > len(plain)
    words = [word for event in told if event["type"] == "timestamps" for word in event["word_timestamps"]["words"]]
    assert words == ["Hi", "you."]


def test_what_is_not_done_is_said_in_a_header(clauses: GatewayHarness) -> None:
    config = {"speed": 1.0, "volume": 1.0, "emotion": "angry"}
    with asking(clauses) as client:
        answer = client.post("/tts/bytes", json=body("Hi.", generation_config=config, save=True))
    notice = answer.headers["realtime-tts-notice"]
    assert "emotion is ignored" in notice
    assert "save is ignored" in notice
    assert "volume" not in notice
    assert "'katie' is not known here" in notice


@pytest.mark.parametrize(
    ("path", "fields", "code"),
    [
        ("bytes", {"transcript": None}, "invalid_message"),
        ("bytes", {"transcript": "  "}, "invalid_request"),
        ("bytes", {"output_format": None}, "invalid_message"),
        ("bytes", {"output_format": {**RAW, "container": "ogg"}}, "unsupported_audio_format"),
        ("bytes", {"output_format": {**RAW, "sample_rate": 123}}, "unsupported_audio_format"),
        ("bytes", {"output_format": {**RAW, "container": "mp3", "bit_rate": 1}}, "unsupported_audio_format"),
        ("bytes", {"language": "xx"}, "unsupported_language"),
        ("sse", {"output_format": {**RAW, "container": "wav"}}, "unsupported_audio_format"),
        ("sse", {"add_timestamps": "yes"}, "invalid_message"),
    ],
)  # fmt: skip
def test_an_invalid_request_is_answered_in_this_dialect(
    clauses: GatewayHarness, path: str, fields: dict[str, Any], code: str
) -> None:
    with asking(clauses) as client:
        answer = client.post(f"/tts/{path}", json={**body(), **fields})
    told = answer.json()
    assert (answer.status_code, told["error_code"], told["title"]) == (400, code, "Bad Request")
    assert told["request_id"] == answer.headers["x-request-id"]
    assert told["error"] == f"Bad Request: {told['message']}"


def test_what_is_no_json_is_told_in_this_dialect(clauses: GatewayHarness) -> None:
    with asking(clauses) as client:
        assert client.post("/tts/bytes", content=b"\xff").json()["error_code"] == "invalid_message"
        assert client.get("/tts/bytes").status_code in (404, 405)


def test_keys_and_voices(make_gateway: Callable[..., GatewayHarness]) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), voice_aliases=(("katie", "rms"),))
    with asking(gateway) as client:
        refused = client.get("/voices")
        assert (refused.status_code, refused.json()["error_code"]) == (401, "unauthorized")
        client.headers["x-api-key"] = key
        first = client.get("/voices", params={"limit": 1}).json()
        second = client.get("/voices", params={"limit": 1, "starting_after": first["next_page"]}).json()
        back = client.get("/voices", params={"limit": 1, "ending_before": second["data"][0]["id"]}).json()
        assert [first["has_more"], second["has_more"], second["next_page"]] == [True, False, None]
        assert back["data"] == first["data"]
        assert {page["data"][0]["id"] for page in (first, second)} == {"slt", "rms"}
        assert client.get("/voices", params={"q": "RMS"}).json()["data"] == [client.get("/voices/rms").json()]
        assert client.get("/voices/katie").json()["id"] == "rms"
        unknown = client.get("/voices/nobody")
        assert (unknown.status_code, unknown.json()["error_code"]) == (404, "voice_not_found")
        assert client.get("/voices", params={"limit": 0}).status_code == 400
