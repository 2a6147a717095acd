"""A voice that comes with what is to be spoken, and goes again: over HTTP, for sockets, and what is left of it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import realtime_tts_client as client
from client_harness import Journal, until
from gateway_harness import GatewayHarness
from quick_recordings import decodings
from spoken_recordings import TEXT, said, wav
from stream_client import open_stream

from realtime_tts.audio.decode import Recording, decode_recording
from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.http import speech_response
from realtime_tts.server.voices import cloning
from realtime_tts.speech.voice_store import VoiceStore

__all__ = ["decodings"]

MakeGateway = Callable[..., GatewayHarness]


@pytest.fixture(scope="module")
def recording() -> bytes:
    return wav(said("heart"))


@pytest.fixture
def processes() -> None:
    """Recordings are decoded and looked at as the server does it."""


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest) -> None:
    if "processes" not in request.fixturenames:
        request.getfixturevalue("decodings")


@pytest.fixture
def really_decoded(processes: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []

    async def decode(data: bytes, rate_hz: int, field: str) -> Recording:
        found.append(len(data))
        return await decode_recording(data, rate_hz, field)

    monkeypatch.setattr(cloning, "decode_recording", decode)
    return found


def lend(url: str, recording: bytes, key: str = "", **fields: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    data = {"ttl_s": "60", "consent": "true", **fields}
    return httpx.post(
        f"{url}/v1/voices", data=data, files={"reference": ("r.wav", recording)}, headers=headers, timeout=60
    )


def encoded(recording: bytes, **more: Any) -> dict[str, Any]:
    return {"reference": base64.b64encode(recording).decode(), "consent": True, **more}


async def outcome(gateway: GatewayHarness, voice: str) -> str:
    async with open_stream(gateway.ws_url) as stream:
        await stream.send("text", context_id="c", text="Hello there.", voice=voice)
        await stream.send("end", context_id="c")
        last = await stream.until(lambda m: m["type"] in ("context.done", "context.failed", "error"))
        return str(last.get("code", "heard"))


def latents_in(directory: Path) -> list[Path]:
    return list((directory / "latents").iterdir())


def database(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.glob("voices.sqlite3*"))


def expire(gateway: GatewayHarness, after_s: float) -> None:
    """What the gateway does every two seconds, that much later."""
    gateway.run(gateway.gateway.voices.expire((), time.time() + after_s))


async def test_a_temporary_voice_is_spoken_with_by_its_id_and_listed_nowhere(
    make_gateway: MakeGateway, recording: bytes, journal: Journal, tmp_path: Path
) -> None:
    gateway = make_gateway(voices_dir=str(tmp_path), worker={"journal": journal.path})
    answer = await asyncio.to_thread(lend, gateway.url, recording)
    assert answer.status_code == 201
    voice = answer.json()
    assert voice["name"] == voice["id"]
    assert voice["expires_at"] == pytest.approx(voice["created_at"] + 60, abs=1)
    async with httpx.AsyncClient(base_url=gateway.url) as http:
        listed = (await http.get("/v1/voices")).json()["voices"]
        assert [entry["id"] for entry in listed] == ["slt", "rms"]
        assert (await http.get(f"/v1/voices/{voice['id']}")).json()["expires_at"] >= voice["expires_at"]
        renamed = await http.patch(f"/v1/voices/{voice['id']}", json={"name": "x"})
        assert (renamed.status_code, renamed.json()["field"]) == (400, "voice")
    assert await outcome(gateway, voice["id"]) == "heard"
    unknown = await outcome(gateway, "voice-" + "0" * 32)
    assert unknown == "voice_not_found"
    expire(gateway, 30)
    assert gateway.gateway.voices.by_id(voice["id"]) is not None
    expire(gateway, 61)
    assert await outcome(gateway, voice["id"]) == "voice_not_found"
    assert latents_in(tmp_path) == []
    assert voice["id"].encode() not in database(tmp_path)
    await until(lambda: list(journal.frames("remove_voice").values()) == [[("remove_voice", voice["id"])]])


async def test_a_voice_that_is_spoken_with_does_not_go(make_gateway: MakeGateway, recording: bytes) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.01})
    voice = (await asyncio.to_thread(lend, gateway.url, recording)).json()["id"]
    async with open_stream(gateway.ws_url) as stream:
        await stream.send("text", context_id="c", text="command never. ", voice=voice)
        await stream.until(lambda m: m["type"] == "audio")
        in_use = {name for holder in gateway.gateway.admission.slots.owners for name in holder.voices}
        assert in_use == {voice}
        later = time.time() + 100
        gateway.run(gateway.gateway.voices.expire(in_use, later))
        gateway.run(gateway.gateway.voices.expire((), later + 59))
        assert gateway.gateway.voices.by_id(voice) is not None
        await stream.send("cancel", context_id="c")
        assert (await stream.until_terminal("c"))["type"] == "context.cancelled"
    expire(gateway, 161)
    assert gateway.gateway.voices.by_id(voice) is None


async def test_another_gateway_of_the_directory_knows_it_at_once_and_a_restart_forgets_what_is_over(
    make_gateway: MakeGateway, recording: bytes, tmp_path: Path
) -> None:
    first, second = (make_gateway(voices_dir=str(tmp_path)) for _ in range(2))
    voice = (await asyncio.to_thread(lend, first.url, recording)).json()["id"]
    assert await outcome(second, voice) == "heard"
    other = (await asyncio.to_thread(lend, first.url, recording)).json()["id"]
    body = {"input": "Hello.", "voice": other, "response_format": "pcm"}
    answer = await asyncio.to_thread(lambda: httpx.post(f"{second.url}/v1/audio/speech", json=body, timeout=60))
    assert answer.headers["realtime-tts-voice"] == other
    store = VoiceStore(tmp_path)
    assert {record.voice_id for record in store.voices(first.gateway.catalogue.ready.model)} == {voice, other}
    store._db.execute("UPDATE records SET body = json_set(body, '$.expires_at', 1) WHERE kind = 'voice'")
    store.close()
    VoiceStore(tmp_path).close()
    assert latents_in(tmp_path) == []


def test_the_same_recording_is_decoded_once_while_there_is_a_voice_of_it(
    make_gateway: MakeGateway, recording: bytes, decodings: list[int]
) -> None:
    (key, key_hash), (other, other_hash) = create_key(), create_key()
    gateway = make_gateway(api_key_hashes=(key_hash, other_hash))
    first, second = (lend(gateway.url, recording, key).json() for _ in range(2))
    assert len(decodings) == 1
    assert first["id"] != second["id"]  # deleting one does not end the other
    assert [warning["code"] for warning in first["warnings"]] == ["several_speakers"]
    assert first["warnings"] == second["warnings"]
    by_id = gateway.gateway.voices.by_id
    records = [by_id(voice["id"]) for voice in (first, second)]
    assert records[0] is not None is not records[1]
    assert records[0].latents is records[1].latents
    assert lend(gateway.url, recording, other).status_code == 201
    assert len(decodings) == 2  # another key is not told that it was sent before
    refused = lend(gateway.url, recording, key, consent="")
    assert (refused.status_code, refused.json()["field"]) == (400, "consent")
    for voice in (first, second):
        deleted = httpx.delete(f"{gateway.url}/v1/voices/{voice['id']}", headers={"authorization": f"Bearer {key}"})
        assert deleted.status_code == 204
    assert lend(gateway.url, recording, key).status_code == 201
    assert len(decodings) == 3


WRONG_LOANS: dict[str, tuple[dict[str, str], int, str]] = {
    "too short": ({"ttl_s": "1"}, 400, "ttl_s"),
    "too long": ({"ttl_s": "1e9"}, 400, "ttl_s"),
    "no number": ({"ttl_s": "soon"}, 400, "ttl_s"),
    "not finite": ({"ttl_s": "nan"}, 400, "ttl_s"),
    "a name": ({"name": "Anna"}, 400, "name"),
    "a text without its prompt": ({"prompt_text": "x"}, 400, "prompt_text"),
}


@pytest.mark.parametrize("case", WRONG_LOANS)
def test_a_temporary_voice_is_refused_typed(gateway: GatewayHarness, recording: bytes, case: str) -> None:
    fields, status, field = WRONG_LOANS[case]
    answer = lend(gateway.url, recording, **fields)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


def test_a_key_has_only_so_many_of_them(make_gateway: MakeGateway, recording: bytes) -> None:
    gateway = make_gateway(max_voices_per_tenant=2)
    assert [lend(gateway.url, recording).status_code for _ in range(3)] == [201, 201, 409]
    kept = httpx.post(
        f"{gateway.url}/v1/voices",
        data={"name": "kept", "consent": "true"},
        files={"reference": ("r.wav", recording)},
        timeout=60,
    )
    assert kept.status_code == 201  # counted apart


# ---- in one request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [False, True])
def test_a_request_for_speech_brings_its_voice_along(
    make_gateway: MakeGateway, recording: bytes, really_decoded: list[int], form: bool
) -> None:
    gateway = make_gateway()
    body = {"input": "Hello.", "response_format": "pcm", "speed": 1.2}
    spoken = []
    for _ in range(2):
        if form:
            fields = {name: str(value) for name, value in body.items()} | {"consent": "true"}
            files = {"reference": ("r.wav", recording)}
            answer = httpx.post(f"{gateway.url}/v1/audio/speech", data=fields, files=files, timeout=60)
        else:
            answer = httpx.post(
                f"{gateway.url}/v1/audio/speech", json={**body, "voice": encoded(recording)}, timeout=60
            )
        assert answer.status_code == 200
        spoken.append(answer)
    voices = [answer.headers["realtime-tts-voice"] for answer in spoken]
    assert voices[0] != voices[1]
    assert all(voice.startswith("voice-") for voice in voices)
    assert "realtime-tts-notice" not in spoken[0].headers
    assert len(really_decoded) == 1
    expire(gateway, 61)
    assert gateway.gateway.voices.num_temporary() == 0
    assert gateway.gateway.engine._voices == {}


def test_all_that_a_voice_can_be_made_of_comes_with_a_request(gateway: GatewayHarness, recording: bytes) -> None:
    other = wav(said("michael"))
    prompt = {"prompt": base64.b64encode(other).decode(), "prompt_text": TEXT, "consent": True}
    for voice, parts in ((encoded(recording), (1, 0)), (prompt, (0, 1)), (encoded(recording, **prompt), (1, 1))):
        body = {"input": "Hello.", "response_format": "pcm", "voice": voice, "instructions": "Softly."}
        answer = httpx.post(f"{gateway.url}/v1/audio/speech", json=body, timeout=60)
        assert answer.status_code == 200
        record = gateway.gateway.voices.by_id(answer.headers["realtime-tts-voice"])
        assert record is not None
        latents = record.latents
        assert (bool(latents.num_reference_patches), bool(latents.num_prompt_patches)) == tuple(map(bool, parts))
        assert latents.prompt_text == (TEXT if parts[1] else None)
    expire(gateway, 61)


WRONG_VOICES: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "nothing": ({}, 400, "invalid_message", "voice.id"),
    "no base64": ({"reference": "not base64!"}, 400, "invalid_request", "voice.reference"),
    "beyond ASCII": ({"reference": "ä" * 8}, 400, "invalid_request", "voice.reference"),
    "a number": ({"reference": 5}, 400, "invalid_message", "voice.reference"),
    "no audio": ({"reference": "AAAA"}, 400, "audio_decode_error", "reference"),
    "consent withheld": ({"consent": False}, 400, "invalid_request", "consent"),
    "consent in words": ({"consent": "yes"}, 400, "invalid_message", "voice.consent"),
}


@pytest.mark.parametrize("case", WRONG_VOICES)
def test_an_invalid_voice_is_refused_in_the_dialects_shape(
    gateway: GatewayHarness, recording: bytes, case: str
) -> None:
    changed, status, code, field = WRONG_VOICES[case]
    voice = {**encoded(recording), **changed} if changed else {}
    answer = httpx.post(f"{gateway.url}/v1/audio/speech", json={"input": "Hello.", "voice": voice}, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, field)
    assert gateway.gateway.voices.num_temporary() == 0


def test_recordings_without_a_content_length_are_refused_with_what_is_missing(
    gateway: GatewayHarness, recording: bytes
) -> None:
    body = json.dumps({"input": "Hello.", "voice": encoded(recording)}).encode()
    answer = httpx.post(f"{gateway.url}/v1/audio/speech", content=iter([body]), timeout=60)
    assert answer.request.headers["transfer-encoding"] == "chunked"
    assert answer.status_code == 400
    assert "a body with recordings needs a Content-Length header" in answer.json()["error"]["message"]


def test_a_form_says_what_it_wants_once(gateway: GatewayHarness, recording: bytes) -> None:
    for fields, field in (({"voice": "slt"}, "voice"), ({"speed": "fast"}, "speed"), ({"cover": "x"}, "cover")):
        data = {"input": "Hello.", "consent": "true", **fields}
        files = {"reference": ("r.wav", recording)}
        answer = httpx.post(f"{gateway.url}/v1/audio/speech", data=data, files=files, timeout=60)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    answer = httpx.post(
        f"{gateway.url}/v1/audio/speech",
        files={"input": (None, "Hello."), "voice": (None, "rms"), "response_format": (None, "pcm")},
        timeout=60,
    )
    assert (answer.status_code, answer.headers["realtime-tts-voice"]) == (200, "rms")


@pytest.mark.parametrize("filling", [b"[" * 700_000, b'["a",' * 200_000, b'"' + b"\\n" * 400_000])
def test_a_large_body_that_is_no_recording_is_not_parsed(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch, filling: bytes
) -> None:
    monkeypatch.setattr(speech_response, "MAX_RECORDINGS_BODY_BYTES", 2 * len(filling))
    for opening, status, code in (
        (b'{"input": ', 400, "string_above_max_length"),
        (b'{"voice": {"reference": "", "input": ', 413, "request_too_large"),
    ):
        answer = httpx.post(f"{gateway.url}/v1/audio/speech", content=opening + filling, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    monkeypatch.setattr(speech_response, "MAX_RECORDINGS_BODY_BYTES", len(filling) // 2)
    answer = httpx.post(f"{gateway.url}/v1/audio/speech", content=b'{"input": "' + b"A" * len(filling), timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_a_token_brings_no_voice_along(make_gateway: MakeGateway, recording: bytes) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    held = {"authorization": f"Bearer {key}"}
    token = httpx.post(f"{gateway.url}/v1/tokens", json={}, headers=held).json()["token"]
    held = {"authorization": f"Bearer {token}"}
    body = {"input": "Hello.", "voice": encoded(recording)}
    large = {"input": "Hello.", "voice": encoded(recording * 4)}
    for each in (body, large):
        answer = httpx.post(f"{gateway.url}/v1/audio/speech", json=each, headers=held, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert lend(gateway.url, recording, token).status_code == 403


# ---- through the Python client ---------------------------------------------------------------------------------------


async def test_the_python_client_has_a_voice_made_and_returns_it(
    gateway: GatewayHarness, recording: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "me.wav"
    await asyncio.to_thread(file.write_bytes, recording)
    own = client.OwnVoice(reference=file, consent=True)
    async with client.connect(gateway.url, voice=own, playback="consumed") as session:
        assert gateway.gateway.voices.by_id(session.voice) is not None
        context = session.speak("Hello there.")
        assert [packet async for packet in context]
        assert context.voice == session.voice
        both = client.OwnVoice(recording, recording, TEXT, consent=True, consent_by="Ann", consent_scope="all")
        other = await session.lend_voice(both)
        record = gateway.gateway.voices.by_id(other)
        assert record is not None
        assert (record.latents.prompt_text, record.consent and record.consent.given_by) == (TEXT, "Ann")
        assert [packet async for packet in session.speak("Hello there.", voice=other)]
    assert gateway.gateway.voices.num_temporary() == 0


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"reference": b"no audio", "consent": True}, "audio_decode_error"),
        ({"reference": "nowhere.wav", "consent": True}, "invalid_request"),
        ({}, "invalid_request"),
        ({"prompt_text": "a text", "consent": True}, "invalid_request"),
    ],
)
async def test_the_python_client_tells_why_there_is_no_voice(
    gateway: GatewayHarness, own: dict[str, Any], code: str
) -> None:
    with pytest.raises(client.RealtimeTTSError) as refused:
        async with client.connect(gateway.url, voice=client.OwnVoice(**own)):
            pass
    assert refused.value.code == code
    with pytest.raises(client.ConnectionFailed):
        async with client.connect("ws://127.0.0.1:1", voice=client.OwnVoice(b"x", consent=True)):
            pass


async def test_the_python_client_returns_its_voice_where_it_gets_no_session(
    make_gateway: MakeGateway, recording: bytes
) -> None:
    gateway = make_gateway(max_sessions=1)
    async with open_stream(gateway.ws_url) as first:
        await first.send("session.start")
        await first.until(lambda m: m["type"] == "session.started")
        with pytest.raises(client.Overloaded):
            async with client.connect(gateway.url, voice=client.OwnVoice(recording, consent=True)):
                pass
    assert gateway.gateway.voices.num_temporary() == 0


# ---- what it costs other listeners ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("inline", [False, True])
def test_a_minute_of_recording_holds_up_no_event_loop(
    make_gateway: MakeGateway, recording: bytes, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    """No callback takes 40 ms of its thread's processor time (of base64, 80), however busy the machine is otherwise."""
    busy_s: list[float] = []
    run = asyncio.events.Handle._run

    def timed(self: asyncio.events.Handle) -> None:
        begun_s = time.thread_time()
        run(self)
        busy_s.append(time.thread_time() - begun_s)

    seconds = 29 if inline else 59  # what base64 of 4 MiB holds
    samples = np.tile(said("heart"), 20)[: 48_000 * seconds]
    minute = wav(samples)
    gateway = make_gateway()
    assert httpx.get(f"{gateway.url}/v1/voices", timeout=60).status_code == 200  # whose first answer loads modules
    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    if inline:
        body = {"input": "Hello.", "response_format": "pcm", "voice": encoded(minute)}
        answer = httpx.post(f"{gateway.url}/v1/audio/speech", json=body, timeout=120)
    else:
        answer = lend(gateway.url, minute)
    assert answer.is_success
    assert max(busy_s) < (0.08 if inline else 0.04)  # JSON is parsed at one go
