"""A bot's answer that is begun in a pause of the caller."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import numpy as np
import pytest
import realtime_tts_client as client
from client_fake_server import Connection, scripted
from realtime_tts_client import Packet, Session
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from conversation import Conversation, History, Turn

RATE_HZ = 16_000
LOUD, QUIET = 3000, 0


class Line(Conversation):
    """A line that plays at once."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, self._written, RATE_HZ)
        self.asked: list[History] = []
        self._rng = np.random.default_rng(0)

    async def _written(self, history: History) -> AsyncIterator[str]:
        self.asked.append(history)
        yield "Yes, of course. "

    async def _carry(self, turn: Turn, packet: Packet) -> None:
        self._played(turn, turn.carried_ms)

    async def _carry_end(self, turn: Turn) -> None:
        self._heard_out(turn)

    async def _cut(self, turn: Turn) -> None: ...

    async def _silence(self, turn: Turn, held_ms: float) -> None: ...

    def _reached_ms(self, turn: Turn) -> float:
        return turn.played_ms

    async def hear(self, level: int, duration_ms: int) -> None:
        for _ in range(duration_ms // 20):
            noise = self._rng.integers(-level, level + 1, RATE_HZ // 50)
            self._hear(noise.astype(np.int16))
            await asyncio.sleep(0)

    async def spoken(self) -> None:
        while len(self.history) < 2:
            await asyncio.sleep(0.005)

    async def hang_up(self) -> None:
        await self._quiet()


@contextlib.asynccontextmanager
async def calling(url: str) -> AsyncIterator[Line]:
    async with client.connect(url, audio=client.AudioFormat("pcm_s16le", sample_rate=8000)) as session:
        line = Line(session)
        yield line
        await line.hang_up()


async def test_the_answer_is_begun_in_the_pause_and_spoken_at_the_end_of_the_turn(fake_gateway: str) -> None:
    async with calling(fake_gateway) as line:
        await line.hear(LOUD, 400)
        await line.hear(QUIET, 300)
        assert line.asked == [[{"role": "user", "content": "(speech)"}]]
        assert line.turn is None
        assert line.history == []
        await line.hear(QUIET, 200)
        await asyncio.wait_for(line.spoken(), 30)
        assert line.turn is not None
        assert line.turn.context.done is not None
        assert line.turn.context.done.draft_used is not None  # it was a draft
        assert [line["role"] for line in line.history] == ["user", "assistant"]
        assert len(line.asked) == 1


async def test_a_caller_who_goes_on_drops_the_answer(fake_gateway: str) -> None:
    async with calling(fake_gateway) as line:
        drafts = []
        for _ in range(2):
            await line.hear(LOUD, 400)
            await line.hear(QUIET, 300)
            assert line._early is not None
            drafts.append(line._early.context)
        assert [context._cancelled for context in drafts] == [True, False]
        assert line.turn is None
        await line.hear(QUIET, 200)
        await asyncio.wait_for(line.spoken(), 30)
        assert [line["role"] for line in line.history] == ["user", "assistant"]
        assert len(line.asked) == 2
        assert line.turn is not None
        assert (line.turn.number, line.turn.context) == (1, drafts[1])


@pytest.mark.parametrize("pause_ms", [120, 180])
async def test_a_short_pause_begins_nothing(fake_gateway: str, pause_ms: int) -> None:
    async with calling(fake_gateway) as line:
        await line.hear(LOUD, 400)
        await line.hear(QUIET, pause_ms)
        await line.hear(LOUD, 400)
        assert line.asked == []


async def test_an_answer_whose_draft_was_refused_is_begun_again() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        refused = (await connection.read("text"))["context_id"]
        error = {"code": "overloaded", "message": "no room", "retryable": True}
        await connection.send("error", context_id=refused, **error)
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        await connection.audio(1, 0)
        await connection.read("end")
        await connection.done(context_id, 2, 1, 16)
        await connection.until_closed()

    async with scripted(script) as (url, _), calling(url) as line:
        await line.hear(LOUD, 400)
        await line.hear(QUIET, 300)
        assert line._early is not None
        while line._early.context.spoken is None:
            await asyncio.sleep(0.005)
        await line.hear(QUIET, 200)
        await asyncio.wait_for(line.spoken(), 30)
        assert len(line.history) == 2


async def test_a_hold_that_is_refused_ends_neither_turn_nor_call() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        first = (await connection.read("end"))["context_id"]
        await connection.accept(first)
        await connection.audio(1, 0)
        await connection.read("hold")
        error = {"code": "invalid_request", "message": "a draft has no speech yet", "retryable": False}
        await connection.send("error", context_id=first, **error)
        await connection.read("cancel")
        await connection.cancelled(first, 2, "Yes,", 20.0)
        second = (await connection.read("end"))["context_id"]
        await connection.accept(second, 2)
        await connection.audio(1, 0, 2)
        await connection.done(second, 2, 1, 16)
        await connection.until_closed()

    async with scripted(script) as (url, _), calling(url) as line:
        line._begin_turn(asked="")
        while line.turn is None or line.turn.played_ms == 0:
            await asyncio.sleep(0.005)
        await line.hear(LOUD, 300)  # held
        assert line._changing is not None
        await asyncio.wait([line._changing])
        await line.hear(LOUD, 400)  # interrupted
        await line.hear(QUIET, 500)
        while len(line.history) < 3:
            await asyncio.sleep(0.005)
        assert [said["content"] for said in line.history] == ["Yes,", "(speech)", "Yes, of course. "]


class Recording(Line):
    """A line that plays what a test says, and records what it is given."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.carried_ms: list[float] = []
        self.ends_ms: list[float] = []

    async def _carry(self, turn: Turn, packet: Packet) -> None:
        assert turn.carried_ms == packet.start_ms + packet.duration_ms
        self.carried_ms.append(turn.carried_ms)

    async def _carry_end(self, turn: Turn) -> None:
        self.ends_ms.append(turn.carried_ms)


async def test_what_follows_a_release_near_the_end_of_a_turn_belongs_to_the_turn() -> None:
    """The packets are there before the answer that says from where they are."""

    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        for frame in range(5):
            await connection.audio(frame + 1, frame)
        await connection.read("hold")
        held = {"played_ms": 40.0, "spoken_text": "", "spoken_chars": 0, "timeout_s": 30}
        await connection.send("context.held", context_id=context_id, **held)
        for frame in range(5, 10):
            await connection.audio(frame + 1, frame)
        await connection.done(context_id, 11, 10, 16)
        await connection.read("release")
        await connection.send("context.released", context_id=context_id, from_ms=40.0)
        await connection.until_closed()

    async with scripted(script) as (url, _), client.connect(url) as session:
        line = Recording(session)
        line._begin_turn(asked="")
        turn = line.turn
        assert turn is not None

        async def until(num_carried: int) -> None:
            while len(line.carried_ms) < num_carried:
                await asyncio.sleep(0.005)

        await asyncio.wait_for(until(5), 30)
        line._played(turn, 40.0)
        await line._hold_turn(turn)
        while turn.context.done is None:
            await asyncio.sleep(0.005)
        await line._release_turn(turn)
        await asyncio.wait_for(until(13), 30)
        assert line.carried_ms == [*range(20, 101, 20), *range(60, 201, 20)]
        while not line.ends_ms:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)
        assert line.ends_ms == [turn.carried_ms] == [200.0]
        await line.hang_up()
