"""Voices that outlive their process, and several processes that share them."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from client_harness import Journal, MakeClient, collect, speak, until

from realtime_tts.contract import frames
from realtime_tts.errors import EngineLost, InternalError, TooManyVoices, VoiceExists, VoiceNotFound
from realtime_tts.speech import voices
from realtime_tts.speech.recordings import VoiceRecordings
from realtime_tts.speech.voice_store import Consent, VoiceStore
from realtime_tts.speech.voices import VoiceLabels, VoiceRegistry
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool

TONE = (0.3 * np.sin(np.arange(16000) * 0.1)).astype(np.float32)
REFERENCE = VoiceRecordings(reference=(TONE, 16000))
OTHER = VoiceRecordings(reference=(TONE * 0.5, 16000), prompt=(TONE, 16000), prompt_text="a tone")
MakeRegistry = Callable[[EngineClient], VoiceRegistry]


@pytest.fixture
def open_registry(tmp_path: Path) -> Iterator[MakeRegistry]:
    """Registries over one directory, each as of a process of its own."""
    stores: list[VoiceStore] = []

    def make(client: EngineClient) -> VoiceRegistry:
        stores.append(VoiceStore(tmp_path / "voices"))
        return VoiceRegistry(client, stores[-1])

    yield make
    for store in stores:
        store.close()


async def hears(client: EngineClient, voice_id: str, tenant: str = "") -> bool:
    _, last = await collect(speak(client, "hello", f"{voice_id}{tenant}", voice=voice_id, tenant=tenant))
    client.close_context(f"{voice_id}{tenant}")
    return isinstance(last, frames.Done)


async def test_a_kept_voice_is_there_after_a_restart(make_client: MakeClient, open_registry: MakeRegistry) -> None:
    client = await make_client()
    before = open_registry(client)
    await before.refresh()
    consent = Consent("the studio", "all", 5.0, "ab" * 32)
    first = await before.add(VoiceLabels("mine", "low", "en"), REFERENCE, "t", consent=consent)
    second = await before.add(VoiceLabels("other"), OTHER, "t")
    await before.relabel(first.voice_id, "t", name="ours", description="lower", language="de")
    await client.close()
    client = await make_client()
    after = open_registry(client)
    await after.refresh()
    changed = dataclasses.replace(first, name="ours", description="lower", language="de")
    assert after.added("t") == [changed, second]
    assert (after.added(), after.names("t")[2:-1]) == ([], ["ours", "other"])
    assert [await hears(client, record.voice_id, "t") for record in (first, second)] == [True, True]
    assert (after.name_of(first.voice_id, "t"), after.name_of(first.voice_id)) == ("ours", None)
    assert after.get("ours", "t") == after.get(first.voice_id, "t") == changed
    with pytest.raises(VoiceNotFound):
        after.get(first.voice_id, "u")


async def test_what_one_process_does_the_others_take_over(make_client: MakeClient, open_registry: MakeRegistry) -> None:
    clients = [await make_client(), await make_client()]
    one, two = (open_registry(client) for client in clients)
    gone: list[str] = []
    two.on_removed = gone.append
    records = [await one.add(VoiceLabels(name), REFERENCE) for name in ("a", "b", "c")]
    await two.refresh()
    assert two.added() == records
    assert await hears(clients[1], records[0].voice_id)
    with pytest.raises(VoiceExists):
        await two.add(VoiceLabels("a"), REFERENCE)
    # "a" and "b" change names, by way of a third
    for record, name in ((records[0], "x"), (records[1], "a"), (records[0], "b")):
        await one.relabel(record.voice_id, name=name)
    await one.delete(records[2].voice_id)
    await two.refresh()
    assert [(record.voice_id, record.name) for record in two.added()] == [
        (records[0].voice_id, "b"),
        (records[1].voice_id, "a"),
    ]
    assert (two.engine_id("a"), two.engine_id("b")) == (records[1].voice_id, records[0].voice_id)
    assert gone == [records[2].voice_id]
    assert not await hears(clients[1], records[2].voice_id)


async def test_a_refresh_costs_for_the_voices_that_changed_only(
    make_client: MakeClient, open_registry: MakeRegistry
) -> None:
    client = await make_client()
    one, two = open_registry(client), open_registry(await make_client())
    first, second = [await one.add(VoiceLabels(name), REFERENCE) for name in ("a", "b")]
    await two.refresh()
    before = two.by_id(first.voice_id)
    await one.relabel(second.voice_id, name="c")
    await two.refresh()
    assert two.names()[2:-1] == ["a", "c"]
    assert two.by_id(first.voice_id) is before  # a pass over all names for each voice would stall the event loop


async def test_a_name_taken_by_another_process_meanwhile_is_refused_when_it_is_kept(
    make_client: MakeClient, open_registry: MakeRegistry
) -> None:
    client = await make_client()
    one, two = open_registry(client), open_registry(client)
    await two.refresh()
    record = await one.add(VoiceLabels("mine"), REFERENCE)
    with pytest.raises(VoiceExists):
        await two.add(VoiceLabels("mine"), OTHER)
    await two.refresh()
    assert two.added() == [record]
    other = await two.add(VoiceLabels("other"), OTHER)
    with pytest.raises(VoiceExists):
        await one.relabel(record.voice_id, name="other")
    for taken in ("slt", "zero-shot", "other"):
        with pytest.raises(VoiceExists):
            await two.relabel(record.voice_id, name=taken)
    assert await two.relabel(other.voice_id, description="unchanged name") in two.added()


async def test_a_change_sees_what_another_process_has_just_done(
    make_client: MakeClient, open_registry: MakeRegistry
) -> None:
    client = await make_client()
    one, two = open_registry(client), open_registry(client)
    await two.refresh()
    record = await one.add(VoiceLabels("mine"), REFERENCE)
    assert (await two.relabel("mine", description="known by its name")).voice_id == record.voice_id
    await one.delete("mine")
    await two.check_room("", 1, is_temporary=False)
    await two.add(VoiceLabels("mine"), OTHER, limit=1)
    await one.delete("mine")
    assert one.added() == []


async def test_a_voice_of_another_process_is_found_by_its_id_and_its_name(
    make_client: MakeClient, open_registry: MakeRegistry
) -> None:
    """Before it is spoken with: an unknown name means the default voice for clients of other services."""
    client = await make_client()
    one, two = open_registry(client), open_registry(client)
    await two.refresh()
    for number, changes in enumerate(({}, {"name": "renamed"})):
        record = await one.add(VoiceLabels(f"mine {number}"), REFERENCE, "t")
        if changes:
            record = await one.relabel(record.voice_id, "t", **changes)
        await two.look_up(record.name, "t")
        assert two.engine_id(record.name, "t") == record.voice_id
    record = await one.add(VoiceLabels("by id"), REFERENCE, "t")
    await two.look_up(record.voice_id, "t")
    assert two.name_of(record.voice_id, "t") == "by id"


async def test_a_disk_that_hangs_does_not_hold_up_speech(
    make_client: MakeClient, open_registry: MakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of other services name voices that are unknown here in each request."""
    registry = open_registry(await make_client())
    await registry.refresh()
    answered, looks = threading.Event(), []

    def version(store: VoiceStore) -> int:
        looks.append(store)
        answered.wait()
        return 0

    monkeypatch.setattr(voices, "_LOOK_UP_S", 0.01)
    monkeypatch.setattr(VoiceStore, "version", version)
    try:
        for _ in range(3):
            await registry.look_up("alloy", "t")
        assert len(looks) == 1
    finally:
        answered.set()


async def test_a_change_before_the_model_is_loaded_can_be_tried_again(open_registry: MakeRegistry) -> None:
    """A server takes requests from its start on, and does not know yet which voices are the model's."""
    registry = open_registry(EngineClient(WorkerPool([])))
    with pytest.raises(EngineLost):
        await registry.delete("mine")
    with pytest.raises(EngineLost):
        await registry.relabel("mine", name="yours")
    with pytest.raises(EngineLost):
        registry.names()


async def test_of_voices_added_at_once_a_tenant_gets_as_many_as_it_may_have(
    make_client: MakeClient, open_registry: MakeRegistry
) -> None:
    """By one process that keeps nothing, and by two that share a directory and have not heard of each other."""
    client = await make_client()
    for registries in ([VoiceRegistry(client)] * 2, [open_registry(client), open_registry(client)]):
        adding = (
            registry.add(VoiceLabels(f"{index}-{number}"), REFERENCE, "t", limit=3)
            for index, registry in enumerate(registries)
            for number in range(3)
        )
        results = await asyncio.gather(*adding, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["TooManyVoices"] * 3 + ["VoiceRecord"] * 3
        await registries[0].refresh()
        assert len(registries[0].added("t")) == 3
        with pytest.raises(TooManyVoices):
            await registries[0].check_room("t", 3, is_temporary=False)
        await registries[0].check_room("t", 3, is_temporary=True)


async def test_a_deleted_voice_is_gone_everywhere(
    make_client: MakeClient, open_registry: MakeRegistry, journal: Journal
) -> None:
    client = await make_client(journal=journal.path)
    registry = open_registry(client)
    record = await registry.add(VoiceLabels("mine"), REFERENCE, "t")
    with pytest.raises(VoiceNotFound):
        await registry.delete(record.voice_id, "u")
    await registry.delete(record.voice_id, "t")
    with pytest.raises(VoiceNotFound):
        await registry.delete(record.voice_id, "t")
    with pytest.raises(VoiceNotFound):
        await registry.relabel(record.voice_id, "t", name="x")
    assert (registry.added("t"), client._voices) == ([], {})
    await until(lambda: bool(journal.frames("remove_voice")))
    again = open_registry(client)
    await again.refresh()
    assert again.added("t") == []


async def test_cancelled_at_any_await_nothing_is_kept(make_client: MakeClient, open_registry: MakeRegistry) -> None:
    client = await make_client()
    registry = open_registry(client)
    for num_turns in range(12):
        task = asyncio.create_task(registry.add(VoiceLabels("mine"), REFERENCE))
        for _ in range(num_turns):
            await asyncio.sleep(0.002)
        done = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if done:
            await registry.delete("mine")
        other = open_registry(client)
        await other.refresh()
        assert (registry.added(), other.added(), client._voices) == ([], [], {})


async def test_a_disk_that_refuses_changes_nothing(
    make_client: MakeClient, open_registry: MakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await make_client()
    registry = open_registry(client)
    record = await registry.add(VoiceLabels("mine"), REFERENCE)

    def refuse(*_: object, **__: object) -> None:
        raise InternalError("the disk refuses")

    for name in ("add", "describe", "remove"):
        monkeypatch.setattr(VoiceStore, name, refuse)
    for attempt in (
        registry.add(VoiceLabels("other"), REFERENCE),
        registry.relabel(record.voice_id, name="other"),
        registry.delete(record.voice_id),
    ):
        with pytest.raises(InternalError):
            await attempt
    assert registry.added() == [record]
    assert await hears(client, record.voice_id)


async def test_a_change_that_could_not_be_read_is_read_the_next_time(
    make_client: MakeClient, open_registry: MakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await make_client()
    one, two = open_registry(client), open_registry(client)
    await two.refresh()
    record = await one.add(VoiceLabels("mine"), REFERENCE)

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(VoiceStore, "_select", refuse)
        with pytest.raises(InternalError):
            await two.refresh()
    await two.refresh()
    assert two.added() == [record]
