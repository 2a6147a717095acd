"""Drafts through the gateway: what the worker and the client get, and what is charged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import realtime_tts_client as client
from client_harness import until
from gateway_harness import GatewayHarness
from processes import worker_pids
from realtime_tts_client.link import Link

from realtime_tts.errors import RateLimited
from realtime_tts.server.admission.admission import Admission

TEXT = "Sure, let me check that for you. It is on its way."
MakeGateway = Callable[..., GatewayHarness]


class Asked:
    """What the worker was asked for so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __call__(self, kind: str) -> list[dict[str, Any]]:
        messages = [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        return [message for message in messages if message["type"] == kind]

    def drafts(self) -> list[dict[str, Any]]:
        return [message for message in self("generate") if message["draft"]]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path / "asked")


@pytest.mark.parametrize(("text", "is_used"), [(None, True), (TEXT + " Really.", True), ("No. It is late.", False)])
async def test_the_client_has_one_context_and_is_told_whether_its_draft_was_used(
    make_gateway: MakeGateway, asked: Asked, text: str | None, is_used: bool
) -> None:
    gateway = make_gateway(worker={"asked": asked.path})
    async with client.connect(gateway.url) as session:
        context = session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        assert gateway.usage().requests == 0
        assert context.done is None
        await context.commit(text)
        packets = [packet async for packet in context]
        assert packets[0].start_ms == 0
        assert context.done is not None
        assert context.done.draft_used is is_used
        assert context.done.characters == len(text or TEXT)
        assert [word.text for word in context.words] == (text or TEXT).split()
    (draft,), (first, *_) = asked.drafts(), [request for request in asked("generate") if not request["draft"]]
    same = ("context_id", "voice", "seed", "cfg", "steps", "encoding", "tenant", "instructions", "adapter", "segment")
    assert {name: draft[name] for name in same} == {name: first[name] for name in same}


async def test_the_client_is_told_of_an_opening_from_memory_and_of_mended_faults(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    async with client.connect(gateway.url) as session:
        told = []
        for text, openings in [(TEXT, "on"), (TEXT, "on"), (TEXT, "off"), (f"{TEXT} Now command skip.", "on")]:
            context = session.speak(text, params={"openings": openings})
            async for _ in context:
                pass
            assert context.done is not None
            told.append((context.done.opening_used, context.done.mended))
    assert told == [(False, 0), (True, 0), (None, 0), (True, 1)]


async def test_a_draft_that_is_dropped_is_forgotten_by_the_worker(make_gateway: MakeGateway, asked: Asked) -> None:
    gateway = make_gateway(worker={"asked": asked.path})
    async with client.connect(gateway.url) as session:
        context = session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        assert (await context.cancel()).text == ""
        await until(lambda: bool(asked("close_context")))
    assert gateway.metric("barge_ins_total") == 0


async def test_characters_are_charged_when_a_draft_is_committed(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[int] = []
    charge = Admission.charge

    def note(self: Admission, key: Any, num_chars: int) -> Any:
        charged.append(num_chars)
        return charge(self, key, num_chars)

    monkeypatch.setattr(Admission, "charge", note)
    gateway = make_gateway()
    async with client.connect(gateway.url) as session:
        context = session.speak(draft=True)
        await context.send(TEXT)
        await until(lambda: charged == [0])
        await context.commit("No.")
        await context.end()
        assert [packet async for packet in context]
    assert charged == [0, 3]


async def test_a_commit_that_exceeds_the_quota_fails_its_context(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def charge(self: Admission, key: Any, num_chars: int) -> RateLimited | None:
        return RateLimited("too much") if num_chars else None

    monkeypatch.setattr(Admission, "charge", charge)
    gateway = make_gateway()
    async with client.connect(gateway.url) as session:
        context = session.speak(TEXT, draft=True)
        await context.commit()
        with pytest.raises(client.RateLimited):
            await anext(context)


async def test_a_worker_that_dies_takes_the_draft_and_not_the_context(
    make_gateway: MakeGateway, asked: Asked, tmp_path: Path
) -> None:
    (gate := tmp_path / "gate").touch()
    gateway = make_gateway(worker={"asked": asked.path, "ready_gate": gate})
    engine = gateway.gateway.engine
    async with client.connect(gateway.url) as session:
        context = session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        await asyncio.to_thread(gate.unlink)  # it is not back before the test has seen that it was gone
        os.kill(worker_pids(engine)[0], signal.SIGKILL)
        await until(lambda: engine.num_ready == 0)
        await asyncio.to_thread(gate.touch)
        await until(lambda: engine.num_ready == 1)
        await context.commit()
        assert [packet async for packet in context]
        assert context.done is not None
        assert context.done.draft_used is False


async def test_a_worker_that_dies_while_it_sends_a_draft_fails_the_context(
    make_gateway: MakeGateway, asked: Asked
) -> None:
    gateway = make_gateway(worker={"asked": asked.path})
    text = "Sure, command never."  # it goes on for ever
    async with client.connect(gateway.url) as session:
        context = session.speak(text, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        await context.commit()
        assert (await anext(context)).start_ms == 0
        os.kill(worker_pids(gateway.gateway.engine)[0], signal.SIGKILL)
        with pytest.raises(client.EngineLost) as lost:
            async for _ in context:
                pass
        assert lost.value.retryable


class Connections:
    """The client's connections. After `lose` it makes no other one before `come_back`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._latest: list[Any] = []
        self._may_come = asyncio.Event()
        serve, reconnect = Link._serve, Link._reconnect

        async def noted(link: Link, websocket: Any) -> Any:
            self._latest.append(websocket)
            return await serve(link, websocket)

        async def when_allowed(link: Link, session_id: str | None) -> Any:
            await self._may_come.wait()
            return await reconnect(link, session_id)

        monkeypatch.setattr(Link, "_serve", noted)
        monkeypatch.setattr(Link, "_reconnect", when_allowed)

    async def lose(self) -> None:
        self._latest[-1].transport.abort()
        await self._latest[-1].wait_closed()

    def come_back(self) -> None:
        self._may_come.set()


@pytest.fixture
async def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(monkeypatch)


@pytest.mark.parametrize("text", [None, "No. It is late."], ids=["as it is", "with another text"])
async def test_a_draft_that_is_committed_without_a_connection_is_spoken_after_it_comes_back(
    make_gateway: MakeGateway, asked: Asked, connections: Connections, text: str | None
) -> None:
    gateway = make_gateway(worker={"asked": asked.path})
    async with client.connect(gateway.url) as session:
        context = session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        await connections.lose()
        await context.commit(text)
        connections.come_back()
        packets = [packet async for packet in context]
        assert packets[0].start_ms == 0
        assert [word.text for word in context.words] == (text or TEXT).split()
        assert context.done is not None
        assert context.done.draft_used is (text is None)
    assert len(asked.drafts()) == 1


async def test_a_draft_that_is_cancelled_without_a_connection_is_never_heard(
    make_gateway: MakeGateway, asked: Asked, connections: Connections
) -> None:
    gateway = make_gateway(worker={"asked": asked.path})
    async with client.connect(gateway.url) as session:
        context = session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        await connections.lose()
        cancelling = asyncio.ensure_future(context.cancel())
        connections.come_back()
        assert (await cancelling).text == ""
        await until(lambda: bool(asked("close_context")))
    assert gateway.usage().unfinished_contexts == 0
    assert len(asked("generate")) == 1


async def test_a_draft_that_is_committed_and_held_without_a_connection_is_held(
    make_gateway: MakeGateway, asked: Asked, connections: Connections
) -> None:
    gateway = make_gateway(worker={"asked": asked.path})
    async with client.connect(gateway.url, playback="manual") as session:
        context = session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
        await connections.lose()
        await context.commit()
        holding = asyncio.ensure_future(context.hold())
        await asyncio.sleep(0)
        connections.come_back()
        held = await holding
        assert (held.text, held.played_ms) == ("", 0)
        assert await context.release() == 0
        async for packet in context:
            session.played(context, packet.start_ms + packet.duration_ms)
        assert [word.text for word in context.words] == TEXT.split()
        assert context.done is not None
        assert context.done.draft_used is True


async def test_a_draft_that_is_lost_with_its_connection_is_cancelled_after_a_while(
    make_gateway: MakeGateway, asked: Asked
) -> None:
    gateway = make_gateway(worker={"asked": asked.path}, resume_window_s=0.0)
    async with client.connect(gateway.url) as session:
        session.speak(TEXT, draft=True)
        await until(lambda: len(asked.drafts()) == 1)
    await until(lambda: bool(asked("close_context")))
