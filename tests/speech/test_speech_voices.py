"""Names of voices: whose they are, what the engine is told, and that nothing of one stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import wave
from pathlib import Path

import numpy as np
import pytest
from client_harness import Journal, MakeClient, collect, speak, until
from processes import worker_pids

from realtime_tts.contract import frames
from realtime_tts.errors import AudioDecodeError, Draining, EngineLost, InvalidRequest, VoiceExists, VoiceNotFound
from realtime_tts.speech.recordings import VoiceRecordings
from realtime_tts.speech.voices import MAX_NAME_CHARS, VoiceLabels, VoiceRegistry
from realtime_tts.workers.client import EngineClient

TONE = (0.3 * np.sin(np.arange(16000) * 0.1)).astype(np.float32)
REFERENCE = VoiceRecordings(reference=(TONE, 16000))


async def hears(client: EngineClient, voice_id: str, tenant: str = "") -> bool:
    """Whether a tenant can speak with an engine's voice."""
    name = f"{voice_id}-{tenant}-{os.urandom(4).hex()}"
    _, last = await collect(speak(client, "hello", name, name, voice=voice_id, tenant=tenant))
    client.close_context(name)
    return isinstance(last, frames.Done)


def assert_nothing_left(registry: VoiceRegistry, client: EngineClient) -> None:
    assert not registry._added
    assert not registry._records
    assert not registry._adding
    assert not client._voices
    assert not any(worker.encodings for worker in client.workers)


async def test_a_voice_is_known_by_its_name_until_it_is_removed(make_client: MakeClient, journal: Journal) -> None:
    client = await make_client(2, journal=journal.path)
    registry = VoiceRegistry(client)
    await registry.add(VoiceLabels("mine"), REFERENCE)
    voice_id = registry.engine_id("mine")
    assert voice_id != "mine"
    assert "mine" in registry.names()
    assert await hears(client, voice_id)
    registry.remove("mine")
    registry.remove("mine")
    assert "mine" not in registry.names()
    with pytest.raises(VoiceNotFound):
        registry.engine_id("mine")
    assert not await hears(client, voice_id)
    assert_nothing_left(registry, client)
    await until(lambda: list(journal.frames("remove_voice").values()) == [[("remove_voice", voice_id)]] * 2)


async def test_the_models_voices_are_every_tenants_and_keep_their_names(make_client: MakeClient) -> None:
    client = await make_client()
    registry = VoiceRegistry(client)
    assert [registry.engine_id(name, "anyone") for name in ("slt", "zero-shot")] == ["slt", "zero-shot"]
    registry.remove("slt")
    assert await hears(client, registry.engine_id("slt"))
    for name in ("slt", "zero-shot"):
        with pytest.raises(VoiceExists):
            await registry.add(VoiceLabels(name), REFERENCE, "t")
    assert_nothing_left(registry, client)


async def test_two_tenants_have_two_voices_of_one_name(make_client: MakeClient) -> None:
    client = await make_client()
    registry = VoiceRegistry(client)
    await registry.add(VoiceLabels("mine"), REFERENCE, "a")
    first = registry.engine_id("mine", "a")
    with pytest.raises(VoiceNotFound):
        registry.engine_id("mine", "b")
    registry.remove("mine", "b")
    await registry.add(VoiceLabels("mine"), VoiceRecordings(prompt=(TONE, 16000), prompt_text="a tone"), "b")
    second = registry.engine_id("mine", "b")
    assert first == registry.engine_id("mine", "a") != second
    assert registry.names("a") == registry.names("b") == ["slt", "rms", "mine", "zero-shot"]
    assert registry.names() == ["slt", "rms", "zero-shot"]
    assert [await hears(client, first, tenant) for tenant in ("a", "b", "")] == [True, False, False]
    registry.remove("mine", "a")
    assert await hears(client, second, "b")


async def test_a_taken_name_is_refused_even_while_its_voice_is_made(make_client: MakeClient, journal: Journal) -> None:
    client = await make_client(encode_gate="/never", journal=journal.path)
    registry = VoiceRegistry(client)
    adding = asyncio.create_task(registry.add(VoiceLabels("mine"), REFERENCE))
    await until(lambda: bool(journal.frames("encode_voice")))
    with pytest.raises(VoiceExists) as caught:
        await registry.add(VoiceLabels("mine"), REFERENCE)
    assert (caught.value.code, caught.value.http_status) == ("voice_exists", 409)
    with pytest.raises(VoiceNotFound):
        registry.engine_id("mine")
    assert "mine" not in registry.names()
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    assert_nothing_left(registry, client)


async def test_a_voice_removed_while_it_is_made_is_not_added_and_its_name_is_free(
    make_client: MakeClient, journal: Journal, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    client = await make_client(encode_gate=gate, journal=journal.path)
    registry = VoiceRegistry(client)
    first = asyncio.create_task(registry.add(VoiceLabels("mine"), REFERENCE))
    await until(lambda: bool(journal.frames("encode_voice")))
    registry.remove("mine")
    second = asyncio.create_task(registry.add(VoiceLabels("mine"), REFERENCE))
    with pytest.raises(VoiceNotFound):
        await first
    gate.touch()
    await second
    assert "mine" in registry.names()
    assert await hears(client, registry.engine_id("mine"))
    assert list(journal.frames("add_voice").values()) == [[("add_voice", registry.engine_id("mine"))]]


async def test_a_voice_removed_while_its_file_is_decoded_is_not_added(make_client: MakeClient, tmp_path: Path) -> None:
    client = await make_client()
    registry = VoiceRegistry(client)
    with wave.open(str(tmp_path / "tone.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((TONE * 32767).astype("<i2").tobytes())
    adding = asyncio.create_task(registry.add(VoiceLabels("mine"), VoiceRecordings(reference=tmp_path / "tone.wav")))
    await asyncio.sleep(0)
    registry.remove("mine")
    with pytest.raises(VoiceNotFound):
        await adding
    assert_nothing_left(registry, client)


@pytest.mark.parametrize("lend", [False, True])
async def test_cancelled_at_any_await_it_leaves_nothing_behind(make_client: MakeClient, lend: bool) -> None:
    client = await make_client()
    registry = VoiceRegistry(client)

    async def make() -> None:
        if lend:
            async with registry.lend(REFERENCE):
                await asyncio.sleep(0)
        else:
            await registry.add(VoiceLabels("mine"), REFERENCE)
            registry.remove("mine")

    for num_turns in range(20):
        task = asyncio.create_task(make())
        for _ in range(num_turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert_nothing_left(registry, client)
    await make()
    assert_nothing_left(registry, client)


async def test_a_lent_voice_has_no_name_and_goes_with_its_block(make_client: MakeClient) -> None:
    client = await make_client()
    registry = VoiceRegistry(client)
    with contextlib.suppress(KeyError):
        async with registry.lend(REFERENCE, "t") as voice_id:
            assert [await hears(client, voice_id, tenant) for tenant in ("t", "")] == [True, False]
            assert registry.names("t") == ["slt", "rms", "zero-shot"]
            raise KeyError("the speaker failed")
    assert not await hears(client, voice_id, "t")
    assert_nothing_left(registry, client)


async def test_an_invalid_name_or_recording_is_refused_before_it_is_sent(
    make_client: MakeClient, journal: Journal
) -> None:
    client = await make_client(journal=journal.path)
    registry = VoiceRegistry(client)
    for name in ("", " ", "x" * (MAX_NAME_CHARS + 1)):
        with pytest.raises(InvalidRequest, match="name"):
            await registry.add(VoiceLabels(name), REFERENCE)
    for recordings in (
        VoiceRecordings(),
        VoiceRecordings(prompt=(TONE, 16000)),
        VoiceRecordings(prompt_text="a tone"),
        VoiceRecordings(reference=(np.zeros(0), 16000)),
        VoiceRecordings(reference=(np.zeros(16000 * 60 * 12), 16000)),  # would be a frame that ends the worker
        VoiceRecordings(reference="/nonexistent.wav"),
    ):
        with pytest.raises(AudioDecodeError):
            await registry.add(VoiceLabels("mine"), recordings)
    assert not journal.frames()
    assert_nothing_left(registry, client)


async def test_without_a_worker_no_voice_is_made_but_those_there_are_stay(make_client: MakeClient) -> None:
    client = await make_client()
    registry = VoiceRegistry(client)
    await registry.add(VoiceLabels("mine"), REFERENCE)
    for pid in worker_pids(client):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: client.num_ready == 0)
    with pytest.raises(EngineLost):
        await registry.add(VoiceLabels("other"), REFERENCE)
    await until(lambda: client.num_ready == 1)
    assert await hears(client, registry.engine_id("mine"))
    await client.close()
    with pytest.raises(Draining):
        await registry.add(VoiceLabels("other"), REFERENCE)
    registry.remove("mine")
    assert_nothing_left(registry, client)
