"""OpenAI's addresses at the gateway."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from realtime_tts.dialects import openai
from realtime_tts.server.admission.auth import create_key
from tests.support.sound_files import read_sound_file

MakeGateway = Callable[..., GatewayHarness]
PATH = "/v1/audio/speech"
TEXT = "Hello there, this is a sentence."
NUM_PATCHES = 2 * len(TEXT)  # no fewer than there are, at any pace of the fake worker


@pytest.fixture
def http(gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        yield client


def speak(client: httpx.Client, text: str = TEXT, **fields: Any) -> httpx.Response:
    return client.post(PATH, json={"model": "tts-1", "voice": "alloy", "input": text, **fields})


@pytest.mark.parametrize(
    ("name", "content_type", "rate"),
    [
        ("mp3", "audio/mpeg", 24_000),
        ("opus", "audio/ogg; codecs=opus", 48_000),
        ("aac", "audio/aac", 24_000),
        ("flac", "audio/flac", 24_000),
        ("wav", "audio/wav", 24_000),
    ],
)
def test_every_format_is_what_it_says(http: httpx.Client, name: str, content_type: str, rate: int) -> None:
    pcm = speak(http, response_format="pcm")
    response = speak(http, response_format=name)
    assert (response.status_code, response.headers["content-type"]) == (200, content_type)
    samples, found_rate = read_sound_file(response.content)
    assert found_rate == rate
    seconds = len(pcm.content) / 2 / 24_000
    delay_s = 0.2 if name in ("mp3", "aac") else 0.001
    assert seconds - 0.001 <= len(samples) / rate <= seconds + delay_s


def test_events_carry_the_same_bytes(http: httpx.Client) -> None:
    response = speak(http, response_format="pcm", stream_format="sse")
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line]
    *deltas, done = events
    audio = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert len(audio) == len(speak(http, response_format="pcm").content)
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["input_tokens"] == len(TEXT)
    assert done["usage"]["output_tokens"] == round(len(audio) / 2 / 24_000 / 0.16)


def test_a_speech_that_fails_in_events_is_told_and_cut_off(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    body = {"input": "command fail command never.", "stream_format": "sse", "response_format": "pcm"}
    received = bytearray()

    def listen(client: httpx.Client) -> None:
        with client.stream("POST", PATH, json=body) as response:
            for part in response.iter_raw():
                received.extend(part)

    with (
        httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        listen(client)
    *_, last = [json.loads(line[6:]) for line in received.decode().splitlines() if line]
    assert (last["type"], last["error"]["code"]) == ("error", "numerical_error")


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_makes_it_shorter_or_longer(http: httpx.Client, speed: float) -> None:
    usual, changed = speak(http, response_format="pcm"), speak(http, response_format="pcm", speed=speed)
    assert len(changed.content) == pytest.approx(len(usual.content) / speed, rel=0.02)
    assert "speed" not in changed.headers["realtime-tts-notice"]


def test_headers_name_the_voice_that_speaks_and_what_is_ignored(http: httpx.Client) -> None:
    headers = speak(http, instructions="slowly").headers
    assert headers["realtime-tts-voice"] == "slt"
    assert headers["realtime-tts-notice"] == (
        "voice 'alloy' is not known here, 'slt' speaks; model 'tts-1' is not known here, 'fake-voice' speaks; "
        "instructions are ignored, this model takes none"
    )
    own = speak(http, voice="rms", model="fake-voice").headers
    assert own["realtime-tts-voice"] == "rms"
    assert "realtime-tts-notice" not in own


@pytest.mark.parametrize("voice", ["\r\nset-cookie: a=b", "\u2603" * 500, "\x00", "a" * 5_000])
def test_a_strange_name_does_no_harm_in_a_header(http: httpx.Client, voice: str) -> None:
    response = speak(http, voice=voice)
    assert response.status_code == 200
    assert "set-cookie" not in response.headers
    assert len(response.headers["realtime-tts-notice"]) < 300


def test_an_alias_speaks_with_its_voice(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(voice_aliases=(("alloy", "rms"), ("echo", "none")), model_aliases=("tts-1",))
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        headers = speak(client).headers
        replaced = speak(client, voice="echo").headers
    assert headers["realtime-tts-voice"] == "rms"
    assert "realtime-tts-notice" not in headers
    assert replaced["realtime-tts-notice"] == "voice 'echo' is not known here, 'slt' speaks"


def test_a_model_with_voice_design_is_told_how_to_speak(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"takes_instructions": True})
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        assert "instructions" not in speak(client, instructions="slowly").headers["realtime-tts-notice"]


def test_a_style_guide_that_is_too_long_for_the_model_is_cut_between_words(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    cases = [
        ("Voice: warm.\n\n" + "Tone: calm. " * 200, "Voice: warm.\n\n" + "Tone: calm. " * 40 + "Tone:"),
        ("a" * 501, "a" * 500),
        ("a" * 499 + " b c", "a" * 499),
        ("a" * 498 + " b c", "a" * 498 + " b"),
        (" " * 600 + "slowly", "slowly"),
        (" " * 600, ""),
    ]
    gateway = make_gateway(worker={"takes_instructions": True, "asked": tmp_path / "asked"})
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        for instructions, read in cases:
            answer = speak(client, "Hello.", instructions=instructions)
            is_cut = "instructions are cut after 500 characters" in answer.headers["realtime-tts-notice"]
            assert (answer.status_code, is_cut) == (200, len(read) > 100)
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text(encoding="utf-8").splitlines()]
    assert [request["instructions"] for request in asked if request["type"] == "generate"] == [
        read for _, read in cases
    ]


def test_strict_ids_refuse_other_services_names(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(strict_ids=True, model_aliases=("tts-1",))
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        voice = speak(client)
        assert (voice.status_code, voice.json()["error"]["param"]) == (404, "voice")
        assert "slt, rms" in voice.json()["error"]["message"]
        model = speak(client, voice="slt", model="tts-2")
        assert (model.status_code, model.json()["error"]["code"]) == (404, "model_not_found")
        assert client.get("/v1/models/tts-2").status_code == 404
        assert speak(client, voice="slt").status_code == 200
        assert client.get("/v1/models/tts-1").json()["id"] == "tts-1"


def test_models_have_what_clients_read(http: httpx.Client) -> None:
    listed = http.get("/v1/models").json()["data"][0]
    found = http.get(f"/v1/models/{listed['id']}").json()
    assert {name: listed[name] for name in found} == found
    assert set(found) == {"id", "object", "created", "owned_by"}
    assert http.get("/v1/models/openbmb/VoxCPM2").json()["id"] == "openbmb/VoxCPM2"


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_a_client_that_warms_up_gets_an_answer(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert (response.status_code, response.json()["name"]) == (200, "realtime-tts")
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("key", ["none", "rtts_wrong"])
def test_a_wrong_key_is_refused_in_this_dialects_words(make_gateway: MakeGateway, key: str) -> None:
    gateway = make_gateway(api_key_hashes=(create_key()[1],))
    with httpx.Client(
        base_url=gateway.url, trust_env=False, timeout=30, headers={"authorization": f"Bearer {key}"}
    ) as client:
        for response in (speak(client), client.get("/v1/models/tts-1")):
            assert response.status_code == 401
            assert set(response.json()) == {"error"}
            assert response.json()["error"]["code"] == "unauthorized"
            assert response.headers["x-request-id"]


def test_a_page_of_another_origin_is_refused(http: httpx.Client) -> None:
    response = http.post(PATH, json={"input": "Hi."}, headers={"origin": "https://evil.example"})
    assert (response.status_code, response.json()["error"]["type"]) == (403, "permission_error")


def test_the_documents_describe_the_addresses(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    operation = document["paths"][PATH]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["input"]
    assert body["properties"]["response_format"]["enum"] == list(openai.FORMATS)
    assert {"200", "400", "401", "404", "413", "429", "503"} <= set(operation["responses"])
    assert "audio/mpeg" in operation["responses"]["200"]["content"]
    assert "/v1/models/{model_id}" in document["paths"]


def test_the_application_loads_neither_a_model_nor_a_codec() -> None:
    code = "import sys, realtime_tts.server.app; print([m for m in ('torch', 'av', 'numpy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("input", "model", "voice", "response_format", "stream_format", "instructions", "speed")
KNOWN = st.sampled_from([*openai.FORMATS, "sse", "audio", "Hello.", "\ud800", "a\0b", "slt", 1.0, 0.25, 4, {"id": "v"}])
OBJECTS = st.dictionaries(st.sampled_from(NAMES), KNOWN | JSON, max_size=7)
SPOKEN = st.fixed_dictionaries({"input": st.text(max_size=30)}, optional=dict.fromkeys(NAMES[1:], KNOWN))
BODIES = st.binary(max_size=200) | st.one_of(JSON, OBJECTS, SPOKEN).map(lambda value: json.dumps(value).encode())


def check_any_body(http: httpx.Client, body: bytes) -> None:
    response = http.post(PATH, content=body)
    if response.status_code == 200:
        assert response.headers["realtime-tts-voice"] == "slt"
    else:
        assert response.status_code == 400
        assert response.json()["error"]["message"]


@given(body=BODIES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_body_gets_speech_or_an_error(http: httpx.Client, body: bytes) -> None:
    check_any_body(http, body)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(body=BODIES)
@settings(max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_of_many_bodies_gets_speech_or_an_error(http: httpx.Client, body: bytes) -> None:
    """And nothing stays in the gateway, which the fixture looks at."""
    check_any_body(http, body)
