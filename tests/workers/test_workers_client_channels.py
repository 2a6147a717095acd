"""Several clients of one worker: each has its own, and loses no more than its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from client_harness import Journal, MakeClient, collect, speak, until
from processes import supervisors, worker_pids

from realtime_tts.contract import frames
from realtime_tts.engine.client_channels import ClientChannels
from realtime_tts.errors import AdapterExists, AdapterNotFound
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import Workers

MakeGuest = Callable[[EngineClient], Awaitable[EngineClient]]


class SharedWorkers(Workers):
    """The workers of another client, which stay its own."""

    def __init__(self, owner: EngineClient) -> None:
        super().__init__([worker.name for worker in owner.workers])
        self._owner = owner

    async def start(self) -> None:
        for supervisor in supervisors(self._owner):
            self.on_ready(supervisor.spec.name, supervisor.clients_path)


@pytest.fixture
async def make_guest(make_client: MakeClient) -> AsyncIterator[MakeGuest]:
    guests: list[EngineClient] = []

    async def make(owner: EngineClient) -> EngineClient:
        guests.append(EngineClient(SharedWorkers(owner)))
        await guests[-1].start()
        return guests[-1]

    yield make
    for guest in guests:
        await guest.close()


async def test_clients_that_use_the_same_ids_hear_their_own(make_client: MakeClient, make_guest: MakeGuest) -> None:
    owner = await make_client()
    guest = await make_guest(owner)
    mine, theirs = speak(owner, "0123456789ab", seed=1), speak(guest, "0123", seed=2)
    (pcm, done), (other_pcm, other_done) = await asyncio.gather(collect(mine), collect(theirs))
    assert isinstance(done, frames.Done)
    assert isinstance(other_done, frames.Done)
    assert (len(pcm), len(other_pcm)) == (3 * 5120, 5120)
    assert int.from_bytes(pcm[:2], "little", signed=True) == 0
    assert int.from_bytes(other_pcm[:2], "little", signed=True) == 1000


async def test_a_client_cancels_and_closes_nothing_of_another(make_client: MakeClient, make_guest: MakeGuest) -> None:
    owner = await make_client(patch_delay_s=0.02)
    guest = await make_guest(owner)
    mine, theirs = speak(owner, "x" * 40), speak(guest, "[never]")
    await anext(theirs)
    guest.workers[0].send(frames.Cancel("r"))
    guest.close_context("c")
    _, done = await collect(mine)
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("stop", 10)


async def test_a_connection_that_ends_takes_what_it_had_and_no_more(
    make_client: MakeClient, make_guest: MakeGuest
) -> None:
    owner = await make_client(patch_delay_s=0.02)
    guest = await make_guest(owner)
    mine = speak(owner, "x" * 300)  # 9 s at the pace of playback, in which the worker reports all four
    doomed = [speak(guest, "[never]", f"c{n}", f"r{n}") for n in range(3)]
    for stream in doomed:
        await anext(stream)
    await until(lambda: bool(owner.stats) and owner.stats[0].contexts == 4)
    await guest.close()
    await until(lambda: owner.stats[0].contexts == 1)
    assert [(await collect_rest(stream)).type for stream in doomed] == ["failed"] * 3
    _, done = await collect(mine)
    assert isinstance(done, frames.Done)
    assert done.num_patches == 75
    assert owner.keeper.num_restarts == 0


async def collect_rest(stream: object) -> frames.Message:
    messages = [message async for message in stream]  # type: ignore[attr-defined]
    return messages[-1]


async def test_a_worker_that_is_lost_is_lost_to_all_its_clients(make_client: MakeClient, make_guest: MakeGuest) -> None:
    owner = await make_client()
    guest = await make_guest(owner)
    streams = [speak(owner, "[never]"), speak(guest, "[never]")]
    for stream in streams:
        await anext(stream)
    os.kill(worker_pids(owner)[0], signal.SIGKILL)
    for stream in streams:
        last = await collect_rest(stream)
        assert isinstance(last, frames.Failed)
        assert last.code == "engine_lost"
    assert guest.num_ready == 0


async def test_a_voice_is_known_for_as_long_as_a_client_holds_it(
    make_client: MakeClient, make_guest: MakeGuest, journal: Journal
) -> None:
    owner = await make_client(journal=journal.path)
    guest = await make_guest(owner)
    voice = frames.AddVoice("mine", 1, 0, 1, 1, payload=b"\0" * 4)
    for client in (owner, guest):
        client.add_voice(voice)
        assert isinstance((await collect(speak(client, "hello", voice="mine")))[1], frames.Done)
    assert sum(map(len, journal.frames("add_voice").values())) == 1
    owner.remove_voice("mine")
    assert isinstance((await collect(speak(guest, "hello", "c2", "r2", voice="mine")))[1], frames.Done)
    await guest.close()
    await until(lambda: sum(map(len, journal.frames("remove_voice").values())) == 1)
    assert isinstance((await collect(speak(owner, "hello", "c2", "r2", voice="mine")))[1], frames.Failed)


async def test_a_damaged_frame_ends_the_connection_of_its_client_alone(
    make_client: MakeClient, make_guest: MakeGuest
) -> None:
    owner = await make_client(patch_delay_s=0.02)
    guest = await make_guest(owner)
    mine, doomed = speak(owner, "x" * 40), speak(guest, "[never]")
    await anext(doomed)
    link = guest.workers[0].link
    assert link is not None
    assert link._transport is not None
    link._transport.write(b"\xff" * 64)
    assert (await collect_rest(doomed)).type == "failed"
    await until(lambda: guest.num_ready == 1)  # it has come back
    assert isinstance((await collect(speak(guest, "again", "c2", "r2")))[1], frames.Done)
    assert isinstance((await collect(mine))[1], frames.Done)


async def test_each_client_knows_what_the_others_have_at_work(make_client: MakeClient, make_guest: MakeGuest) -> None:
    """Contexts, not requests; until they have ended, were cancelled, or their client has left."""
    owner = await make_client(patch_delay_s=0.02)
    guest = await make_guest(owner)

    async def others(owners: int, guests: int) -> None:
        await until(lambda: (owner.workers[0].num_others, guest.workers[0].num_others) == (owners, guests))

    streams = [speak(owner, "[stall]", "c", "r1"), speak(owner, "x", "c", "r2"), speak(owner, "[stall]", "d", "r3")]
    await others(0, 2)
    speak(guest, "[stall]")
    late = await make_guest(owner)
    await others(1, 2)
    await until(lambda: late.workers[0].num_others == 3)
    owner.workers[0].send(frames.Cancel("r1"))
    await collect(streams[1])
    await others(1, 1)
    await guest.close()
    await until(lambda: owner.workers[0].num_others == 0)


def test_engine_messages_for_clients_that_have_left_are_dropped() -> None:
    taken: list[frames.Message] = []
    channels = ClientChannels(frames.Ready("m", "cpu", "float32", "sdpa", 16000, 2560), taken.append)
    channels.send([frames.Audio("1/r", 0), frames.Done("1/r", "stop"), frames.VoiceFailed("v", "voice_exists", "")])
    assert not taken


async def test_an_adapter_is_there_as_long_as_a_client_wants_it(
    make_client: MakeClient, make_guest: MakeGuest, tmp_path: Path
) -> None:
    owner = await make_client()
    guest = await make_guest(owner)
    message = frames.AddAdapter("a", str(tmp_path))
    assert await owner.adapters.load(message) == await guest.adapters.load(message)
    owner.adapters.unload("a")
    _, last = await collect(speak(guest, "0123", adapter="a"))
    assert isinstance(last, frames.Done)
    with pytest.raises(AdapterExists):  # the same name for another one
        await owner.adapters.load(frames.AddAdapter("a", str(tmp_path.parent)))
    stream = speak(guest, "[never]", "d", adapter="a")
    await anext(stream)
    guest.adapters.unload("a")
    *_, end = [each async for each in stream]
    assert isinstance(end, frames.Failed)
    assert end.code == "adapter_not_found"
    await owner.adapters.load(frames.AddAdapter("a", str(tmp_path.parent)))
    await owner.close()


async def test_an_adapter_that_is_unloaded_everywhere_is_gone_for_all_and_can_come_anew(
    make_client: MakeClient, make_guest: MakeGuest, tmp_path: Path
) -> None:
    """A client that releases the old one then does no harm to the new one."""
    owner = await make_client()
    guest = await make_guest(owner)
    message = frames.AddAdapter("a", str(tmp_path))
    await asyncio.gather(owner.adapters.load(message), guest.adapters.load(message))
    stream = speak(guest, "[never]", "c", adapter="a")
    await anext(stream)
    owner.adapters.unload("a", everywhere=True)
    *_, end = [each async for each in stream]
    assert isinstance(end, frames.Failed)
    assert end.code == "adapter_not_found"
    await owner.adapters.load(frames.AddAdapter("a", str(tmp_path.parent)))
    guest.adapters.unload("a")
    with pytest.raises(AdapterExists):  # its own connection has no order with the owner's: this one comes after
        await guest.adapters.load(message)
    _, last = await collect(speak(owner, "0123", "d", adapter="a"))
    assert isinstance(last, frames.Done)


async def test_a_load_of_an_adapter_that_is_unloaded_everywhere_fails(
    make_client: MakeClient, make_guest: MakeGuest, tmp_path: Path
) -> None:
    owner = await make_client(adapter_gate=tmp_path / "gate")
    guest = await make_guest(owner)
    message = frames.AddAdapter("a", str(tmp_path))
    loads = [asyncio.ensure_future(client.adapters.load(message)) for client in (owner, guest)]
    await asyncio.sleep(0)
    for client in (owner, guest):
        await collect(speak(client, "0123"))  # what was sent before has arrived: both wait for the gate, at the worker
    owner.adapters.unload("a", everywhere=True)
    for load in loads:
        with pytest.raises(AdapterNotFound):
            await load
