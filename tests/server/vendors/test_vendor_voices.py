"""Voices at the addresses of other services: what their clients send, are told, and are refused."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import pytest
from gateway_harness import GatewayHarness
from quick_recordings import decodings
from raw_http import port_of
from spoken_recordings import said, wav

from realtime_tts.server.admission.auth import create_key

__all__ = ["decodings"]

pytestmark = pytest.mark.usefixtures("decodings")


@pytest.fixture(scope="module")
def recording() -> bytes:
    return wav(said("heart"))


@pytest.fixture(scope="module")
def keyed() -> Iterator[tuple[str, str, str]]:
    """A server's address, and two keys."""
    (key, key_hash), (other, other_hash) = create_key(), create_key()
    with GatewayHarness(api_key_hashes=(key_hash, other_hash), max_voices_per_tenant=3) as harness:
        yield harness.url, key, other


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    yield
    while Service.opened:
        Service.opened.pop().close()


class Service:
    """One service's addresses. `headers`: how its clients bring a key."""

    opened: ClassVar[list[httpx.Client]] = []

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30)
        self.opened.append(self.http)

    def add(self, recording: bytes | None, **fields: str) -> httpx.Response:
        raise NotImplementedError

    def delete(self, voice_id: str) -> httpx.Response:
        raise NotImplementedError

    def id_of(self, added: httpx.Response) -> str:
        return str(added.json()["id"])

    def problem(self, answer: httpx.Response) -> str:
        raise NotImplementedError


class ElevenLabs(Service):
    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, {"xi-api-key": key})

    def add(self, recording: bytes | None, **fields: str) -> httpx.Response:
        consent = {name: value for name, value in fields.items() if name.startswith("consent")}
        data = {**fields, "labels": json.dumps({"language": "en", "accent": "none", **consent})}
        for name in consent:
            del data[name]
        files = [("files", ("a.wav", recording))] * 2 if recording else [("files", ("", b""))][:0]
        return self.http.post("/v1/voices/add", data=data, files=files or {"x": (None, "y")})

    def delete(self, voice_id: str) -> httpx.Response:
        return self.http.delete(f"/v1/voices/{voice_id}")

    def id_of(self, added: httpx.Response) -> str:
        return str(added.json()["voice_id"])

    def problem(self, answer: httpx.Response) -> str:
        return str(answer.json()["detail"]["status"])


class Cartesia(Service):
    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, {"authorization": f"Bearer {key}", "cartesia-version": "2026-03-01"})

    def add(self, recording: bytes | None, **fields: str) -> httpx.Response:
        files: Any = {"clip": ("a.wav", recording)} if recording else {"x": (None, "y")}
        return self.http.post("/voices/clone", data={"language": "en", "enhance": "true", **fields}, files=files)

    def delete(self, voice_id: str) -> httpx.Response:
        return self.http.delete(f"/voices/{voice_id}")

    def problem(self, answer: httpx.Response) -> str:
        return str(answer.json()["error_code"])


class OpenAI(Service):
    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, {"authorization": f"Bearer {key}"})

    def add(self, recording: bytes | None, **fields: str) -> httpx.Response:
        files: Any = {"audio_sample": ("a.wav", recording)} if recording else {"type": (None, "audio_sample")}
        return self.http.post("/v1/audio/voices", data=fields, files=files)

    def delete(self, voice_id: str) -> httpx.Response:
        return self.http.delete(f"/v1/audio/voices/{voice_id}")

    def problem(self, answer: httpx.Response) -> str:
        return str(answer.json()["error"]["code"])


SERVICES = [ElevenLabs, Cartesia, OpenAI]


@pytest.mark.parametrize("kind", SERVICES, ids=lambda kind: kind.__name__)
def test_a_voice_is_added_listed_and_deleted_by_its_own_key(
    keyed: tuple[str, str, str], recording: bytes, kind: type[Service], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "realtime_tts.server")
    url, key, other = keyed
    service, stranger = kind(url, key), kind(url, other)
    added = service.add(recording, name="Anna", consent="true")
    assert added.status_code == 200
    voice_id = service.id_of(added)
    ours = httpx.get(f"{url}/v1/voices/Anna", headers={"authorization": f"Bearer {key}"}).json()
    assert (ours["id"], ours["consent"]["scope"]) == (voice_id, "")
    taken = service.add(recording, name="Anna", consent="true")
    assert (taken.status_code, service.problem(taken)) == (400 if kind is OpenAI else 409, "voice_exists")
    unheard = stranger.delete(voice_id)
    assert (unheard.status_code, stranger.problem(unheard)) == (404, "voice_not_found")
    assert service.delete(voice_id).is_success
    gone = service.delete(voice_id)
    assert (gone.status_code, service.problem(gone)) == (404, "voice_not_found")
    events = [(record.getMessage(), vars(record).get("fields", {}).get("voice")) for record in caplog.records]
    assert [event for event in events if voice_id in event] == [("voice_added", voice_id), ("voice_removed", voice_id)]


WRONG: dict[str, tuple[bytes | None, dict[str, str], int, str]] = {
    "no consent": (b"RIFF", {"name": "x"}, 400, "invalid_request"),
    "no name": (b"RIFF", {"name": "", "consent": "true"}, 400, "invalid_request"),
    "no recording": (None, {"name": "x", "consent": "true"}, 400, "invalid_request"),
    "no audio": (b"no audio", {"name": "x", "consent": "true"}, 400, "audio_decode_error"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("kind", SERVICES, ids=lambda kind: kind.__name__)
def test_what_makes_no_voice_is_refused_in_their_shape(
    keyed: tuple[str, str, str], kind: type[Service], case: str
) -> None:
    recording, fields, status, code = WRONG[case]
    service = kind(keyed[0], keyed[1])
    answer = service.add(recording, **fields)
    assert (answer.status_code, service.problem(answer)) == (status, code)


@pytest.mark.parametrize("kind", SERVICES, ids=lambda kind: kind.__name__)
def test_a_token_or_a_wrong_key_changes_nothing(
    keyed: tuple[str, str, str], recording: bytes, kind: type[Service]
) -> None:
    url, key, _ = keyed
    token = httpx.post(f"{url}/v1/tokens", json={}, headers={"authorization": f"Bearer {key}"}).json()["token"]
    for held, status in ((token, 403), ("wrong", 401)):
        service = kind(url, held)
        for answer in (service.add(recording, name="x", consent="true"), service.delete("slt")):
            assert answer.status_code == status
            service.problem(answer)


def test_elevenlabs_edits_and_settings(keyed: tuple[str, str, str], recording: bytes) -> None:
    service = ElevenLabs(keyed[0], keyed[1])
    voice = service.id_of(service.add(recording, name="Anna", description="low", consent="true"))
    http = service.http
    assert http.get(f"/v1/voices/{voice}").json()["labels"] == {"language": "en"}
    edited = http.post(f"/v1/voices/{voice}/edit", files={"name": (None, "Annie"), "labels": (None, "null")})
    assert edited.json() == {"status": "ok"}
    about = http.get(f"/v1/voices/{voice}").json()
    assert (about["name"], about["description"], about["category"]) == ("Annie", "low", "cloned")
    for name, files, status in (
        (voice, {"name": (None, "x"), "files": ("a.wav", recording)}, 400),
        (voice, {"labels": (None, "[1]")}, 400),
        ("slt", {"name": (None, "x")}, 404),
    ):
        assert http.post(f"/v1/voices/{name}/edit", files=files).status_code == status
    assert http.get(f"/v1/voices/{voice}/settings").json() == http.get("/v1/voices/settings/default").json()
    assert http.get("/v1/voices/nobody/settings").status_code == 404
    change = f"/v1/voices/{voice}/settings/edit"
    assert http.post(change, json={"stability": 0.3, "speed": 1.0}).json() == {"status": "ok"}
    assert service.problem(http.post(change, json={"speed": 1.1})) == "invalid_request"
    assert http.get(f"/v1/voices/{voice}", headers={"xi-api-key": keyed[2]}).status_code == 404
    assert service.delete(voice).json() == {"status": "ok"}


@pytest.mark.parametrize(("named", "num_sent", "status"), [("voice", 400_000, 400), ("nobody", 0, 404)])
def test_an_elevenlabs_edit_reads_labels_only_and_for_a_voice_that_is_there(
    keyed: tuple[str, str, str], recording: bytes, named: str, num_sent: int, status: int
) -> None:
    """Most of the body is never sent, so that only a server that does not wait for it answers."""
    service = ElevenLabs(keyed[0], keyed[1])
    voice = service.id_of(service.add(recording, name="Anna", consent="true"))
    path = f"/v1/voices/{voice if named == 'voice' else named}/edit"
    part = b'--b\r\ncontent-disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nxi-api-key: {keyed[1]}\r\ncontent-length: 30000000\r\n"
        "content-type: multipart/form-data; boundary=b\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port_of(keyed[0])), timeout=30) as connection:
        connection.sendall(head.encode() + part + bytes(num_sent))
        answer = connection.recv(4096)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    service.delete(voice)


def test_cartesia_renames_and_says_whose_it_is(keyed: tuple[str, str, str], recording: bytes) -> None:
    service = Cartesia(keyed[0], keyed[1])
    added = service.add(recording, name="Anna", description="low", consent="true").json()
    assert (added["language"], added["access"], added["visibility"]) == ("en", "private", "owner")
    changed = service.http.patch(f"/voices/{added['id']}", json={"name": "Annie"}).json()
    assert (changed["id"], changed["name"], changed["description"], changed["is_owner"]) == (
        added["id"],
        "Annie",
        "low",
        True,
    )
    assert service.http.patch("/voices/slt", json={"name": "x"}).status_code == 404
    assert service.problem(service.http.patch(f"/voices/{added['id']}", json={"name": 5})) == "invalid_message"
    assert service.delete(added["id"]).status_code == 204


def test_openai_takes_consent_that_was_recorded(keyed: tuple[str, str, str], recording: bytes) -> None:
    service, stranger = OpenAI(keyed[0], keyed[1]), OpenAI(keyed[0], keyed[2])
    path, http = "/v1/audio/voice_consents", service.http
    form = {"name": (None, "Anna Example"), "language": (None, "en-US"), "recording": ("c.wav", recording)}
    consent = http.post(path, files=form).json()
    assert (consent["object"], consent["language"]) == ("audio.voice_consent", "en-US")
    others = [http.post(path, files=form).json()["id"] for _ in range(2)]
    listed = http.get(path, params={"limit": 2}).json()
    assert ([entry["id"] for entry in listed["data"]], listed["has_more"]) == ([consent["id"], others[0]], True)
    rest = http.get(path, params={"after": listed["last_id"]}).json()
    assert ([entry["id"] for entry in rest["data"]], rest["has_more"]) == ([others[1]], False)
    assert http.post(f"{path}/{consent['id']}", json={"name": "Anna"}).json()["name"] == "Anna"
    assert http.get(f"{path}/{consent['id']}").json()["name"] == "Anna"
    assert stranger.http.get(f"{path}/{consent['id']}").status_code == 404
    refused = stranger.add(recording, name="x", consent=consent["id"])
    assert (refused.status_code, service.problem(refused)) == (404, "consent_not_found")
    voice = service.add(recording, name="Anna", consent=consent["id"]).json()
    assert (voice["object"], voice["type"], "prompt" in voice) == ("audio.voice", "audio_sample", False)
    ours = http.get(f"/v1/voices/{voice['id']}").json()["consent"]
    assert ours["given_by"] == "Anna"
    assert ours["scope"].startswith("recorded (en-US), SHA-256 ")
    for id_ in (consent["id"], *others):
        assert http.delete(f"{path}/{id_}").json() == {"id": id_, "object": "audio.voice_consent", "deleted": True}
    assert http.delete(f"{path}/{consent['id']}").status_code == 404
    deleted = service.delete(voice["id"])
    assert deleted.json() == {"id": voice["id"], "object": "audio.voice.deleted", "deleted": True}
    for wrong, field in (({"name": (None, "")}, "name"), ({"language": (None, "")}, "language")):
        assert http.post(path, files={**form, **wrong}).json()["error"]["param"] == field
    del form["recording"]
    assert http.post(path, files=form).json()["error"]["param"] == "recording"


def test_openai_designs_a_voice(keyed: tuple[str, str, str]) -> None:
    service = OpenAI(keyed[0], keyed[1])
    wanted = {"type": "prompt", "name": "warm", "prompt": "An old man."}
    for sent in ({"json": wanted}, {"files": {name: (None, value) for name, value in wanted.items()}}):
        voice = service.http.post("/v1/audio/voices", **sent).json()  # type: ignore[arg-type]
        assert (voice["type"], voice["prompt"]) == ("prompt", "An old man.")
        assert service.delete(voice["id"]).is_success
    for wrong, field in (({"prompt": " "}, "prompt"), ({"type": "audio_sample"}, "type"), ({"type": ""}, "type")):
        answer = service.http.post("/v1/audio/voices", json={**wanted, **wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
