"""Voices over HTTP: what each tenant can do with them, and what is left of one that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import logging
import os
import socket
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from client_harness import Journal, until
from gateway_harness import GatewayHarness
from spoken_recordings import TEXT, said, wav
from stream_client import open_stream

from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.http import schemas
from realtime_tts.server.voices import routes
from realtime_tts.server.voices.limits import VoiceMaking
from realtime_tts.speech.voice_store import Latents, VoiceRecord, VoiceStore

MakeGateway = Callable[..., GatewayHarness]


@pytest.fixture(scope="module")
def recording() -> bytes:
    return wav(said("heart"))


@pytest.fixture
def clients() -> Iterator[Callable[..., httpx.Client]]:
    opened: list[httpx.Client] = []

    def client(gateway: GatewayHarness, key: str = "") -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        opened.append(httpx.Client(base_url=gateway.url, headers=headers, timeout=120))
        return opened[-1]

    yield client
    for each in opened:
        each.close()


def create(client: httpx.Client, name: str, recording: bytes, **fields: str) -> httpx.Response:
    files = {"reference": ("reference.wav", recording)}
    return client.post("/v1/voices", data={"name": name, "consent": "true", **fields}, files=files)


def names(client: httpx.Client) -> list[str]:
    return [voice["name"] for voice in client.get("/v1/voices").json()["voices"]]


async def hears(gateway: GatewayHarness, voice: str, key: str = "") -> str:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with open_stream(gateway.ws_url, additional_headers=headers) as client:
        await client.send("text", context_id="c", text="Hello there.", voice=voice)
        await client.send("end", context_id="c")
        last = await client.until(lambda m: m["type"] in ("context.done", "context.failed", "error"))
        return str(last.get("code", "heard"))


@pytest.mark.logs_errors
def test_a_voice_that_cannot_be_stored_is_an_error_in_the_log(
    make_gateway: MakeGateway,
    clients: Callable[..., httpx.Client],
    recording: bytes,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = clients(make_gateway(voices_dir=str(tmp_path)))
    (tmp_path / "latents").rmdir()
    (tmp_path / "latents").touch()
    refused = create(client, "Quetzalcoatl", recording)
    reason = "the record cannot be stored: the disk is full or broken"
    assert (refused.status_code, refused.json()["message"]) == (500, reason)
    (logged,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (logged.getMessage(), vars(logged)["fields"]["reason"]) == ("request_failed", reason)
    assert "Quetzalcoatl" not in str(vars(logged))
    assert names(client).count("Quetzalcoatl") == 0


async def test_a_voice_is_made_heard_renamed_and_deleted(
    make_gateway: MakeGateway,
    clients: Callable[..., httpx.Client],
    recording: bytes,
    tmp_path: Path,
    journal: Journal,
) -> None:
    gateway = make_gateway(voices_dir=str(tmp_path / "voices"), worker={"journal": journal.path})
    http = clients(gateway)
    made = create(http, "Anna", recording, description="low", language="en", consent_by="Anna", consent_scope="calls")
    assert made.status_code == 201
    voice = made.json()
    assert schemas.NewVoice.model_validate(voice, strict=True).warnings == []
    assert {name: voice[name] for name in ("name", "kind", "description", "language", "default")} == {
        "name": "Anna",
        "kind": "cloned",
        "description": "low",
        "language": "en",
        "default": False,
    }
    assert (voice["consent"]["given_by"], voice["consent"]["scope"]) == ("Anna", "calls")
    listed = http.get("/v1/voices").json()["voices"]
    assert [entry for entry in listed if entry["id"] == voice["id"]] == [
        {key: value for key, value in voice.items() if key != "warnings"}
    ]
    assert http.get(f"/v1/voices/{voice['id']}").json() == http.get("/v1/voices/Anna").json() == listed[-1]
    assert [await hears(gateway, name) for name in ("Anna", voice["id"])] == ["heard", "heard"]
    changed = http.patch(f"/v1/voices/{voice['id']}", json={"name": "Annie"}).json()
    assert (changed["name"], changed["description"]) == ("Annie", "low")
    assert names(http) == ["slt", "rms", "Annie"]
    assert http.delete(f"/v1/voices/{voice['id']}").status_code == 204
    assert http.delete(f"/v1/voices/{voice['id']}").status_code == 404
    assert names(http) == ["slt", "rms"]
    assert await hears(gateway, voice["id"]) == "voice_not_found"
    assert list((tmp_path / "voices/latents").iterdir()) == []
    await until(lambda: list(journal.frames("remove_voice").values()) == [[("remove_voice", voice["id"])]])


async def test_a_voice_is_there_after_a_restart_and_at_another_gateway(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes, tmp_path: Path
) -> None:
    first, second = (make_gateway(voices_dir=str(tmp_path)) for _ in range(2))
    voice = create(clients(first), "mine", recording).json()
    http = clients(second)
    changed = http.patch(f"/v1/voices/{voice['id']}", json={"description": "known at once"}).json()
    assert (changed["name"], changed["description"]) == ("mine", "known at once")
    for _ in range(100):
        if "mine" in names(http):
            break
        await asyncio.sleep(0.1)
    assert await hears(second, voice["id"]) == "heard"
    assert clients(first).delete("/v1/voices/mine").status_code == 204
    for _ in range(100):
        if "mine" not in names(http):
            break
        await asyncio.sleep(0.1)
    assert await hears(second, voice["id"]) == "voice_not_found"
    kept = create(http, "kept", recording).json()
    assert clients(first).get(f"/v1/voices/{kept['id']}/preview").status_code == 200
    third = make_gateway(voices_dir=str(tmp_path))
    assert clients(third).get("/v1/voices/kept").json()["id"] == kept["id"]
    assert await hears(third, "kept") == "heard"


def test_an_alias_of_a_voice_that_does_not_exist_is_in_the_log_at_the_start(
    make_gateway: MakeGateway,
    clients: Callable[..., httpx.Client],
    recording: bytes,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert create(clients(make_gateway(voices_dir=str(tmp_path))), "mine", recording).status_code == 201
    aliases = (("alloy", "rms"), ("echo", "mine"), ("nova", "zero-shot"), ("onyx", "rsm"))
    make_gateway(voices_dir=str(tmp_path), voice_aliases=aliases)
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    told = [(record.getMessage(), vars(record).get("fields")) for record in warned]
    assert told == [("unknown_voice_of_alias", {"alias": "onyx", "voice": "rsm"})]


async def test_a_voice_is_kept_though_its_client_leaves_after_the_upload(
    make_gateway: MakeGateway,
    clients: Callable[..., httpx.Client],
    recording: bytes,
    tmp_path: Path,
    journal: Journal,
) -> None:
    """It cannot know whether its voice was made, and finds it by its name."""
    gateway = make_gateway(worker={"journal": journal.path, "encode_gate": tmp_path / "gate"})
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as leaving:
        files = {"reference": ("reference.wav", recording)}
        upload = asyncio.create_task(leaving.post("/v1/voices", data={"name": "mine", "consent": "true"}, files=files))
        await until(lambda: bool(journal.frames("encode_voice")))
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
    (tmp_path / "gate").touch()
    await until(lambda: "mine" in names(clients(gateway)))


async def test_another_gateway_of_the_directory_finds_a_voice_by_its_name_at_once(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes, tmp_path: Path
) -> None:
    """Clients of other services would hear the default voice."""
    first, second = (make_gateway(voices_dir=str(tmp_path)) for _ in range(2))
    for name, find in (
        ("a", lambda: clients(second).post("/v1/audio/speech", json={"input": "Hi.", "voice": "a"}).headers),
        ("b", lambda: {"realtime-tts-voice": clients(second).get("/v1/voices/b").json()["name"]}),
    ):
        assert create(clients(first), name, recording).status_code == 201
        assert find()["realtime-tts-voice"] == name
    assert create(clients(first), "c", recording).status_code == 201
    assert await hears(second, "c") == "heard"


async def test_a_voice_belongs_to_its_tenant(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    (key, key_hash), (other_key, other_hash) = create_key(), create_key()
    gateway = make_gateway(api_key_hashes=(key_hash, other_hash), max_voices_per_tenant=1)
    owner, other = clients(gateway, key), clients(gateway, other_key)
    voice = create(owner, "mine", recording).json()
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/preview")):
        for name in (voice["id"], "mine"):
            answer = other.request(method, f"/v1/voices/{name}{path}", json={} if method == "PATCH" else None)
            assert (answer.status_code, answer.json()["code"]) == (404, "voice_not_found")
    assert "mine" not in names(other)
    full = create(owner, "another", recording)
    assert (full.status_code, full.json()["code"]) == (409, "too_many_voices")
    assert create(other, "mine", recording).status_code == 201
    assert [await hears(gateway, voice["id"], held) for held in (key, other_key)] == ["heard", "voice_not_found"]
    token = owner.post("/v1/tokens", json={"voices": ["mine"]}).json()["token"]
    browser = clients(gateway, token)
    assert names(browser) == ["mine"]
    assert browser.get("/v1/voices/mine/preview").status_code == 200
    for answer in (create(browser, "x", recording), browser.delete("/v1/voices/mine")):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert clients(gateway).delete("/v1/voices/mine").status_code == 401


async def test_uploads_at_the_same_time_cannot_pass_the_limit_together(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gateway = make_gateway(max_voices_per_tenant=1, worker={"encode_gate": str(gate)})
    http = clients(gateway)
    uploads = [asyncio.create_task(asyncio.to_thread(create, http, name, recording)) for name in ("one", "other")]
    await until(lambda: len(gateway.gateway.voices._adding) == 2)
    gate.touch()
    answers = await asyncio.gather(*uploads)
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert [answer.json()["code"] for answer in answers if answer.status_code == 409] == ["too_many_voices"]
    assert len(http.get("/v1/voices").json()["voices"]) == 1 + len(gateway.gateway.engine.policy.voices)


async def test_speech_in_a_deleted_voice_ends_typed_and_others_go_on(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.01})
    http = clients(gateway)
    create(http, "mine", recording)
    async with open_stream(gateway.ws_url) as client:
        for context_id, voice in (("a", "mine"), ("b", "slt")):
            await client.send("text", context_id=context_id, text="command never. ", voice=voice)
        await client.until(lambda m: m["type"] == "audio" and m["context_id"] == "a")
        await asyncio.to_thread(http.delete, "/v1/voices/mine")
        failed = await client.until_terminal("a")
        assert (failed["type"], failed["code"]) == ("context.failed", "voice_not_found")
        await client.send("cancel", context_id="b")
        assert (await client.until_terminal("b"))["type"] == "context.cancelled"


def test_a_voice_speaks_over_plain_http_by_its_id_or_its_name(shared: GatewayHarness, recording: bytes) -> None:
    with httpx.Client(base_url=shared.url, timeout=120) as http:
        voice = create(http, "mine", recording).json()
        try:
            for name in (voice["id"], "mine"):
                body = {"input": "Hello.", "voice": name, "response_format": "pcm"}
                answer = http.post("/v1/audio/speech", json=body)
                assert (answer.status_code, answer.headers["realtime-tts-voice"]) == (200, "mine")
                assert "realtime-tts-notice" not in answer.headers
        finally:
            http.delete("/v1/voices/mine")


def test_speech_over_plain_http_in_a_deleted_voice_ends_broken_off(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.01})
    http = clients(gateway)
    create(http, "mine", recording)
    body = {"model": "tts-1", "input": "command never. ", "voice": "mine", "response_format": "pcm"}
    with http.stream("POST", "/v1/audio/speech", json=body) as answer:
        parts = answer.iter_raw()
        assert next(parts)
        clients(gateway).delete("/v1/voices/mine")
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in parts:
                pass
    refused = http.post("/v1/audio/speech", json={**body, "input": "Hello."})
    assert refused.status_code == 200  # another service's name, by now: the default voice speaks


def test_a_preview_is_made_once_and_goes_with_its_voice(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes, tmp_path: Path
) -> None:
    gateway = make_gateway(voices_dir=str(tmp_path))
    http = clients(gateway)
    voice = create(http, "mine", recording, language="de").json()
    heard = [http.get(f"/v1/voices/{name}/preview") for name in (voice["id"], "mine", "slt")]
    assert [(answer.status_code, answer.headers["content-type"]) for answer in heard] == [(200, "audio/wav")] * 3
    with wave.open(io.BytesIO(heard[0].content)) as file:
        assert (file.getnchannels(), file.getnframes() > file.getframerate()) == (1, True)
    assert heard[0].content == heard[1].content
    assert f"in the voice {voice['id']}".encode() in heard[0].content
    assert [path.name for path in (tmp_path / "previews").iterdir()] == [f"{voice['id']}.wav"]
    gateway.call(lambda: gateway.gateway.previews.put(voice["id"], b"cached"))
    assert http.get("/v1/voices/mine/preview").content == b"cached"
    other = clients(make_gateway(voices_dir=str(tmp_path), provenance=False))
    assert other.get("/v1/voices/mine/preview").content == heard[0].content  # from the disk
    assert b"Synthetic" not in other.get("/v1/voices/slt/preview").content
    http.patch("/v1/voices/mine", json={"description": "low"})
    assert http.get("/v1/voices/mine/preview").content == b"cached"
    http.patch("/v1/voices/mine", json={"language": "en"})  # in which the sample sentence is another one
    assert list((tmp_path / "previews").iterdir()) == []
    assert http.get("/v1/voices/mine/preview").content == heard[0].content
    http.delete("/v1/voices/mine")
    assert gateway.call(lambda: gateway.gateway.previews.get(voice["id"])) is None
    assert list((tmp_path / "previews").iterdir()) == []
    assert http.get("/v1/voices/mine/preview").status_code == 404


def test_speech_over_http_says_what_it_is_unless_it_is_not_to(make_gateway: MakeGateway) -> None:
    body = {"input": "Hello.", "voice": "slt", "response_format": "wav"}
    for gateway, says in ((make_gateway(), True), (make_gateway(provenance=False), False)):
        answer = httpx.post(f"{gateway.url}/v1/audio/speech", json=body, timeout=30)
        assert (b"in the voice slt" in answer.content) is says


def test_prompt_and_reference_are_taken_together(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    gateway = make_gateway()
    http = clients(gateway)
    files = {"reference": ("r.wav", recording), "prompt": ("p.wav", wav(said("michael")))}
    fields = {"name": "both", "prompt_text": TEXT, "consent": "yes"}
    assert http.post("/v1/voices", data=fields, files=files).status_code == 201
    latents = gateway.gateway.voices.get("both").latents
    assert latents.num_reference_patches > 0 < latents.num_prompt_patches
    assert latents.prompt_text == TEXT


def test_a_designed_voice_is_made_of_its_description(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client]
) -> None:
    http = clients(make_gateway())
    answer = http.post("/v1/voices", data={"name": "warm", "instructions": "An old man."})
    made = http.post("/v1/voices", files={"name": (None, "warm"), "instructions": (None, "An old man.")})
    assert answer.status_code == 400  # no form of parts
    assert (made.status_code, made.json()["kind"], made.json()["instructions"]) == (201, "designed", "An old man.")
    assert made.json()["consent"] is None


WRONG: dict[str, tuple[dict[str, Any], int, str, str | None]] = {
    "no name": ({"name": ""}, 400, "invalid_request", "name"),
    "a long name": ({"name": "x" * 129}, 400, "invalid_request", "name"),
    "a long field": ({"description": "x" * 5000}, 400, "invalid_request", "description"),
    "a longer one": ({"description": "x" * 50_000}, 400, "invalid_request", None),
    "an unknown field": ({"speed": "1"}, 400, "invalid_request", "speed"),
    "a name of the model's": ({"name": "slt"}, 409, "voice_exists", "name"),
    "no consent": ({"consent": "no"}, 400, "invalid_request", "consent"),
    "a description besides": ({"instructions": "An old man."}, 400, "invalid_request", "instructions"),
    "a text without its prompt": ({"prompt_text": "hello"}, 400, "audio_decode_error", "prompt_text"),
    "no audio": ({"reference": b"no audio at all, just text"}, 400, "audio_decode_error", "reference"),
    "an empty file": ({"reference": b""}, 400, "audio_decode_error", "reference"),
    "silence": ({"reference": wav(np.zeros(48_000 * 3))}, 422, "recording_silent", "reference"),
    "a file for a field": ({"name": None, "files": {"name": b"x"}}, 400, "invalid_request", "name"),
    "an unknown file": ({"files": {"cover": b"x"}}, 400, "invalid_request", "cover"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[GatewayHarness]:
    with GatewayHarness() as harness:
        yield harness


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_voice_is_refused_with_its_reason(shared: GatewayHarness, recording: bytes, case: str) -> None:
    changed, status, code, field = WRONG[case]
    fields = {"name": "mine", "consent": "true", **changed}
    content = fields.pop("reference", recording)
    files = {"reference": ("r.wav", content), **{n: (n, d) for n, d in fields.pop("files", {}).items()}}
    data = {name: value for name, value in fields.items() if value is not None}
    answer = httpx.post(f"{shared.url}/v1/voices", data=data, files=files, timeout=30)
    assert (answer.status_code, answer.json()["code"], answer.json().get("field")) == (status, code, field)
    assert shared.gateway.voices.added() == []


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"--x\r\n"),
        ("multipart/form-data; boundary=x", b"no parts"),
        ("multipart/form-data; boundary=x", b'--x\r\ncontent-disposition: form-data; name="na'),
        ("multipart/form-data; boundary=x", b'--x\r\ncontent-disposition: form-data; name="name"\r\n\r\n\xff\xfe'),
        (
            "multipart/form-data; boundary=x; charset=undefined",  # a codec of Python that refuses everything
            b'--x\r\ncontent-disposition: form-data; name="name"\r\n\r\nmine\r\n--x--\r\n',
        ),
        ("", b""),
    ],
)
def test_a_malformed_form_is_answered_with_400(shared: GatewayHarness, content_type: str, body: bytes) -> None:
    answer = httpx.post(f"{shared.url}/v1/voices", content=body, headers={"content-type": content_type})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def form_in_utf_7(**parts: bytes) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a form whose charset can write half a UTF-16 pair."""
    body = b"".join(
        b'--x\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        % (name.encode(), b'; filename="r.wav"' if name == "reference" else b"", content)
        for name, content in parts.items()
    )
    return body + b"--x--\r\n", {"content-type": "multipart/form-data; boundary=x; charset=utf-7"}


def test_half_a_utf_16_pair_in_a_form_is_replaced(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    client = clients(make_gateway())
    body, headers = form_in_utf_7(name=b"+2AA-x", consent=b"true", reference=recording)
    answer = client.post("/v1/voices", content=body, headers=headers)
    assert (answer.status_code, answer.json()["name"]) == (201, "?x")
    assert "?x" in names(client)
    body, headers = form_in_utf_7(**{"+2AA-": b"x"})
    assert client.post("/v1/voices", content=body, headers=headers).json()["field"] == "?"


@pytest.mark.parametrize("content_type", ["Multipart/Form-Data; boundary=x", "multipart/form-data;boundary=x"])
def test_the_media_type_of_a_form_is_read_in_any_case(shared: GatewayHarness, content_type: str) -> None:
    form = b'--x\r\ncontent-disposition: form-data; name="nmae"\r\n\r\nmine\r\n--x--\r\n'
    answer = httpx.post(f"{shared.url}/v1/voices", content=form, headers={"content-type": content_type})
    assert answer.json()["field"] == "nmae", answer.text


@pytest.mark.parametrize(
    ("data", "files", "said"),
    [
        ({"nmae": "x"}, ["reference"], "there is no field 'nmae' in this form; it has name,"),
        ({}, ["audio"], "there is no file 'audio' in this form; it has reference, prompt"),
        ({"name": ["x", "y"]}, ["reference"], "name can be given once"),
        ({}, ["reference", "reference"], "reference can be given once"),
        ({}, ["name"], "name must be text, not a file"),
        ({"reference": "x"}, [], "reference must be a file"),
    ],
)
def test_what_is_wrong_with_a_form_is_told_in_a_sentence(
    shared: GatewayHarness, data: dict[str, object], files: list[str], said: str
) -> None:
    parts = [(name, (name, b"content")) for name in files or ["prompt"]]
    answer = httpx.post(f"{shared.url}/v1/voices", data=data, files=parts)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(said)


def test_an_upload_that_is_too_large_ends_at_its_limit(
    shared: GatewayHarness, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dataclasses.replace(routes._FORM, max_body_bytes=len(recording) // 2)
    monkeypatch.setattr(routes, "_FORM", small)
    answer = httpx.post(
        f"{shared.url}/v1/voices", data={"name": "x"}, files={"reference": ("r.wav", recording)}, timeout=30
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")


def test_previews_of_another_models_voices_outlive_a_start(make_gateway: MakeGateway, tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    store.add(VoiceRecord("voice-of-another", "", "Anna", "another model", 0.0, Latents(1, 0, 1, 1, b"\0" * 4)))
    store.close()
    (tmp_path / "previews").mkdir()
    for name in ("voice-of-another", "voice-of-none"):
        (tmp_path / "previews" / f"{name}.wav").write_bytes(b"wav")
    make_gateway(voices_dir=str(tmp_path))
    assert os.listdir(tmp_path / "previews") == ["voice-of-another.wav"]


def test_an_invalid_label_is_refused(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    http = clients(make_gateway())
    for name in ("one", "two"):
        create(http, name, recording)
    for change, status, field in (
        ({"name": ""}, 400, "name"),
        ({"name": "two"}, 409, "name"),
        ({"name": "slt"}, 409, "name"),
        ({"language": "x" * 17}, 400, "language"),
        ({"name": 5}, 400, "name"),
        ({"voice": "x"}, 400, "voice"),
    ):
        answer = http.patch("/v1/voices/one", json=change)
        assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert http.patch("/v1/voices/slt", json={"name": "x"}).status_code == 404
    assert http.patch("/v1/voices/one", json={}).json()["name"] == "one"


async def test_changes_of_a_voice_at_the_same_time_are_all_made(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    gateway = make_gateway()
    http = clients(gateway)
    await asyncio.to_thread(create, http, "Anna", recording)
    storing, may_leave = gateway.gateway.voices._storing, asyncio.Event()

    async def hold() -> None:
        async with storing:
            await may_leave.wait()

    holding = gateway.call(lambda: asyncio.create_task(hold()))
    changes = [
        asyncio.create_task(asyncio.to_thread(http.patch, "/v1/voices/Anna", json=change))
        for change in ({"description": "low"}, {"language": "de"})
    ]
    await until(lambda: len(storing._waiters or ()) >= 2, 30)  # type: ignore[attr-defined]
    gateway.call(may_leave.set)
    assert [(await change).status_code for change in changes] == [200, 200]
    gateway.call(holding.result)
    voice = (await asyncio.to_thread(http.get, "/v1/voices/Anna")).json()
    assert (voice["description"], voice["language"]) == ("low", "de")


def test_a_server_may_require_the_person_who_consents_or_no_consent(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    http = clients(make_gateway(voice_consent="required"))
    assert create(http, "a", recording).json()["field"] == "consent_by"
    assert create(http, "a", recording, consent_by="Ann").json()["field"] == "consent_scope"
    assert create(http, "a", recording, consent_by="Ann", consent_scope="all").status_code == 201
    http = clients(make_gateway(voice_consent="off"))
    made = create(http, "a", recording, consent="")
    assert (made.status_code, made.json()["consent"]) == (201, None)


def test_blanks_around_a_voices_name_are_left_out_and_old_names_with_them_can_speak(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    gateway = make_gateway()
    http = clients(gateway)
    assert create(http, " Anna ", recording).json()["name"] == "Anna"
    assert create(http, "Anna\t", recording).status_code == 409
    old = dataclasses.replace(gateway.gateway.voices.get("Anna"), name="Berta ")  # as earlier versions kept it
    gateway.call(lambda: gateway.gateway.voices._rename(old))
    voice_id = old.voice_id
    for voice in (voice_id, "Berta "):
        answer = http.post("/v1/audio/speech", json={"input": "Hello.", "voice": voice, "response_format": "pcm"})
        assert (answer.status_code, answer.headers["realtime-tts-voice"]) == (200, "Berta")


SLOW_UPLOAD = (
    "POST /v1/voices HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nExpect: 100-continue\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 90000\r\n\r\n"
)


def test_slow_uploads_of_one_tenant_keep_no_other_from_making_a_voice(
    make_gateway: MakeGateway, clients: Callable[..., httpx.Client], recording: bytes
) -> None:
    (slow, slow_hash), (honest, honest_hash) = create_key(), create_key()
    gateway = make_gateway(api_key_hashes=(slow_hash, honest_hash), handshake_timeout_s=120.0)
    address = ("127.0.0.1", int(gateway.url.rpartition(":")[2]))
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(4)]
        for connection in sockets[:3]:
            connection.sendall(SLOW_UPLOAD.format(key=slow).encode())
        for connection in sockets[:3]:
            assert connection.recv(64).startswith(b"HTTP/1.1 100")  # it is being read
        sockets[3].sendall(SLOW_UPLOAD.format(key=slow).encode())
        assert create(clients(gateway, honest), "mine", recording).status_code == 201


def create_dictionary(client: httpx.Client, name: str, recording: bytes) -> httpx.Response:
    files = {"file": ("words.json", b'{"nginx": "engine x"}' + b" " * 120_000)}  # does not arrive before it is read
    return client.post("/v1/pronunciation-dictionaries/add-from-file", data={"name": name}, files=files)


@pytest.mark.parametrize(("upload", "status"), [(create, 201), (create_dictionary, 200)])
async def test_the_limit_on_a_requests_arrival_does_not_run_while_an_upload_waits_for_its_turn(
    make_gateway: MakeGateway,
    clients: Callable[..., httpx.Client],
    recording: bytes,
    upload: Callable[..., httpx.Response],
    status: int,
) -> None:
    gateway = make_gateway()
    making, connections = gateway.gateway.voice_making, gateway.server.server_state.connections
    may_leave = asyncio.Event()

    async def hold(tenant: str) -> None:
        async with making.uploads.place(tenant):
            await may_leave.wait()

    holding = gateway.call(lambda: [asyncio.create_task(hold(tenant)) for tenant in "aabb"])
    uploading = asyncio.create_task(asyncio.to_thread(upload, clients(gateway), "mine", recording))
    await until(lambda: len(making.uploads._waiting) == 1, 30)
    assert gateway.call(lambda: {each._request_timer for each in connections}) == {None}
    gateway.call(may_leave.set)
    assert (await uploading).status_code == status
    gateway.call(lambda: [task.result() for task in holding])


async def test_only_so_many_voices_are_made_at_once() -> None:
    making, most, running = VoiceMaking(), 0, 0

    async def make() -> str:
        nonlocal most, running
        try:
            async with making.turns.place(""):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= 1
                return "made"
        except Exception as error:
            return str(getattr(error, "code", error))

    outcomes = await asyncio.gather(*(make() for _ in range(14)))
    assert (most, outcomes.count("made"), outcomes.count("overloaded")) == (2, 8, 6)
