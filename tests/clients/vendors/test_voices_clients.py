"""A voice's life through other services' unmodified clients: cloned, spoken with, deleted; also across a restart."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cartesia import BadRequestError as CartesiaBadRequest
from cartesia import Cartesia
from cartesia import NotFoundError as CartesiaNotFound
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError
from openai import BadRequestError, NotFoundError, OpenAI
from realtime_tts_client import OwnVoice, connect
from server_environment import ROOT, server_python
from vendor_gateways import running_gateway

TEXT = "Hello there."
_SAY = "import sys; from spoken_recordings import said, wav; sys.stdout.buffer.write(wav(said('heart')))"


@pytest.fixture(scope="session")
def recording() -> bytes:
    """Speech, from the server's environment."""
    paths = [str(ROOT), str(ROOT / "tests/support")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([server_python(), "-c", _SAY], capture_output=True, env=environment, check=True).stdout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "voices"


@pytest.fixture
def url(directory: Path) -> Iterator[str]:
    with running_gateway({"voices_dir": str(directory)}) as url:
        yield url


def listed(url: str) -> set[str]:
    return {voice["id"] for voice in httpx.get(f"{url}/v1/voices").json()["voices"]}


def assert_nothing_is_left(directory: Path, voice_id: str) -> None:
    kept = [path for path in directory.rglob("*") if path.is_file()]
    assert {path.name for path in kept if not path.name.startswith("voices.sqlite3")} <= {"in-use", "reserve"}
    assert voice_id.encode() not in b"".join(path.read_bytes() for path in kept)


@contextlib.contextmanager
def elevenlabs_client(url: str) -> Iterator[ElevenLabs]:
    """It closes no connection by itself."""
    with httpx.Client(timeout=60) as http:
        yield ElevenLabs(api_key="any", base_url=url, httpx_client=http)


def elevenlabs_voice(client: ElevenLabs, voice_id: str) -> str | None:
    """The voice that really spoke."""
    with client.text_to_speech.with_raw_response.convert(voice_id, text=TEXT, output_format="pcm_16000") as answer:
        assert b"".join(answer.data)
        return answer.headers.get("realtime-tts-voice")


def openai_voice(client: OpenAI, voice_id: str) -> str | None:
    answer = client.audio.speech.with_raw_response.create(model="tts-1", voice=voice_id, input=TEXT)
    assert answer.content
    return answer.headers.get("realtime-tts-voice")


def test_elevenlabs_clones_speaks_edits_and_deletes(url: str, directory: Path, recording: bytes) -> None:
    with elevenlabs_client(url) as client:
        elevenlabs_life(client, directory, recording)


def elevenlabs_life(client: ElevenLabs, directory: Path, recording: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        client.voices.ivc.create(name="Anna", files=[("a.wav", recording)])
    assert (refused.value.status_code, refused.value.body["detail"]["status"]) == (400, "invalid_request")
    labels = {"language": "en", "consent": "true", "consent_by": "Anna"}
    voice = client.voices.ivc.create(name="Anna", files=[("a.wav", recording)], description="low", labels=labels)
    assert voice.requires_verification is False
    about = client.voices.get(voice.voice_id)
    assert (about.name, about.category, about.labels) == ("Anna", "cloned", {"language": "en"})
    assert elevenlabs_voice(client, voice.voice_id) == "Anna"
    assert client.voices.update(voice.voice_id, name="Annie").status == "ok"
    assert [each.name for each in client.voices.search().voices if each.voice_id == voice.voice_id] == ["Annie"]
    assert client.voices.settings.get(voice.voice_id) == client.voices.settings.get_default()
    assert client.voices.delete(voice.voice_id).status == "ok"
    assert_nothing_is_left(directory, voice.voice_id)
    with pytest.raises(ApiError) as gone:
        client.voices.delete(voice.voice_id)
    assert gone.value.status_code == 404


def test_cartesia_clones_speaks_renames_and_deletes(url: str, directory: Path, recording: bytes) -> None:
    with Cartesia(api_key="any", base_url=url) as client:
        with pytest.raises(CartesiaBadRequest):
            client.voices.clone(clip=("a.wav", recording), name="Anna", language="en")
        consent = {"consent": "true"}
        voice = client.voices.clone(clip=("a.wav", recording), name="Anna", language="en", extra_body=consent)
        assert (voice.name, voice.access) == ("Anna", "private")
        assert client.voices.update(voice.id, description="low").description == "low"
        assert [each.is_owner for each in client.voices.list() if each.id == voice.id] == [True]
        answer = client.tts.with_raw_response.generate(
            model_id="sonic-3",
            transcript=TEXT,
            voice={"mode": "id", "id": voice.id},
            output_format={"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000},
        )
        assert answer.headers["realtime-tts-voice"] == "Anna"
        client.voices.delete(voice.id)
        assert_nothing_is_left(directory, voice.id)
        with pytest.raises(CartesiaNotFound):
            client.voices.get(voice.id)


def test_openai_consents_clones_speaks_and_deletes(url: str, directory: Path, recording: bytes) -> None:
    with OpenAI(api_key="any", base_url=f"{url}/v1", max_retries=0) as client:
        sample = ("a.wav", recording)
        consent = client.audio.voice_consents.create(name="Anna", language="en-US", recording=sample)
        with pytest.raises(NotFoundError):
            client.audio.voices.create(name="Anna", audio_sample=sample, consent="cons_nobody")
        voice = client.audio.voices.create(name="Anna", audio_sample=sample, consent=consent.id)
        assert (voice.object, voice.type) == ("audio.voice", "audio_sample")
        assert openai_voice(client, voice.id) == "Anna"
        assert [each.id for each in client.audio.voice_consents.list()] == [consent.id]
        assert client.audio.voice_consents.update(consent.id, name="Annie").name == "Annie"
        assert client.audio.voice_consents.retrieve(consent.id).name == "Annie"
        assert client.audio.voices.delete(voice.id).deleted
        assert client.audio.voice_consents.delete(consent.id).deleted
        assert_nothing_is_left(directory, voice.id)
        with pytest.raises(BadRequestError) as refused:
            client.audio.voices.create(name="Anna", audio_sample=("a.wav", b"no audio"), consent="true")
        assert refused.value.code == "audio_decode_error"


def test_openai_brings_a_voice_along(url: str, recording: bytes) -> None:
    own = {"reference": base64.b64encode(recording).decode(), "consent": True}
    with OpenAI(api_key="any", base_url=f"{url}/v1", max_retries=0) as client:
        answer = client.audio.speech.with_raw_response.create(model="tts-1", voice=own, input=TEXT)  # type: ignore[arg-type]
        assert answer.content
        assert answer.headers["realtime-tts-voice"].startswith("voice-")
        assert listed(url) == {"slt", "rms"}


async def native_voice(url: str, voice: str | OwnVoice) -> str:
    async with connect(url, voice=voice, playback="consumed") as session:
        context = session.speak(TEXT)
        assert [packet async for packet in context]
        return context.voice


def test_a_voice_lives_through_every_client_and_a_restart(directory: Path, recording: bytes) -> None:
    settings: dict[str, object] = {"voices_dir": str(directory)}
    with running_gateway(settings) as url:
        form = {"name": "Anna", "consent": "true"}
        made = httpx.post(f"{url}/v1/voices", data=form, files={"reference": ("a.wav", recording)}, timeout=60)
        voice_id = made.json()["id"]
        speaks_everywhere(url, voice_id)
        preview = httpx.get(f"{url}/v1/voices/Anna/preview", timeout=60).content
    with running_gateway(settings) as url:
        speaks_everywhere(url, voice_id)
        assert httpx.get(f"{url}/v1/voices/Anna/preview", timeout=60).content == preview
        assert httpx.delete(f"{url}/v1/voices/{voice_id}").status_code == 204
        assert listed(url) == {"slt", "rms"}
        assert_nothing_is_left(directory, voice_id)
    assert_nothing_is_left(directory, voice_id)


def speaks_everywhere(url: str, voice_id: str) -> None:
    assert asyncio.run(native_voice(url, "Anna")) == asyncio.run(native_voice(url, voice_id)) == "Anna"
    with OpenAI(api_key="any", base_url=f"{url}/v1", max_retries=0) as client:
        assert openai_voice(client, voice_id) == "Anna"
    with elevenlabs_client(url) as elevenlabs:
        assert elevenlabs_voice(elevenlabs, voice_id) == "Anna"
