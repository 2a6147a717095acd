"""Open-loop load on a local server: its capacity, and clients that arrive at set times."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from tqdm import tqdm

from benchmarks.soak.account import History, Outcome, Record
from benchmarks.soak.caller import Caller
from benchmarks.soak.plan import QUIET_MIX, Kind, Turn, plan_turns
from benchmarks.soak.process import ServerUnderTest

LOAD = 0.8  # of the capacity
MAX_STREAMS = 24  # spoken at once on average, whatever the capacity
MAX_IN_FLIGHT = 400
MAX_ATTEMPTS = 5
CALIBRATING_CALLERS = 32
RAMP_S = 8.0  # until all of them are there; from then on it counts
REFUSED_S = 1.0  # delay of a retry after a refusal, as the server asks


class LoadMaker:
    """Starter of clients for turns, with their records.

    Attributes:
        num_not_sent: turns left out since `MAX_IN_FLIGHT` were under way.
        capacity: seconds of audio a second, once it was measured.
    """

    def __init__(self, server: ServerUnderTest, history: History, rng: random.Random) -> None:
        self._server, self._history, self._rng = server, history, rng
        self._start = time.monotonic()
        self._calls: set[asyncio.Task[None]] = set()
        self.num_not_sent = 0
        self.capacity: float | None = None

    def clock(self) -> float:
        return time.monotonic() - self._start

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def calibrated_rate(self, duration_s: float) -> float:
        """Turns a second at `LOAD` of what a server gives that is asked for more: it lets in as many as it can."""
        turns = iter(tqdm(plan_turns(self._rng, 50.0, 60.0 + duration_s, QUIET_MIX), desc="calibrate"))
        begun = self.clock()
        end, counted_from = begun + duration_s, begun + RAMP_S
        spoken: list[Record] = []

        async def one_after_another(index: int) -> None:
            await asyncio.sleep(RAMP_S * index / CALIBRATING_CALLERS)
            while self.clock() < end:
                turn = next(turns)
                record = Record(turn.index, 0, turn.kind, self.clock())
                await Caller(self._server.stream_url, turn, record, self._history, self.clock, plain=True).call()
                if record.outcome is Outcome.REFUSED:
                    await asyncio.sleep(REFUSED_S)
                elif counted_from <= record.ended_s < end:
                    spoken.append(record)

        await asyncio.gather(*(one_after_another(index) for index in range(CALIBRATING_CALLERS)))
        if not spoken:
            raise RuntimeError("nothing was spoken in the calibration")
        audio_s = sum(record.audio_s for record in spoken)
        self.capacity = audio_s / (end - counted_from)
        return min(LOAD * self.capacity, MAX_STREAMS) * len(spoken) / audio_s

    async def load(self, phase: str, turns: Sequence[Turn], duration_s: float, records: list[Record]) -> None:
        """Open loop: each turn at its time, whatever became of those before. Returns when the last one is over."""
        begun = self.clock()
        for turn in tqdm(turns, desc=phase):
            await asyncio.sleep(max(0.0, begun + turn.at_s - self.clock()))
            if len(self._calls) >= MAX_IN_FLIGHT:
                self.num_not_sent += 1
                continue
            call = asyncio.create_task(self._have_spoken(turn, records))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        await asyncio.sleep(max(0.0, begun + duration_s - self.clock()))
        await asyncio.gather(*self._calls)

    async def _have_spoken(self, turn: Turn, records: list[Record]) -> None:
        """A turn, asked again when its server or worker was lost."""
        rng = random.Random(turn.seed)
        for attempt in range(MAX_ATTEMPTS):
            kind = Kind.HONEST if attempt else turn.kind
            record = Record(turn.index, attempt, kind, self.clock())
            records.append(record)
            url = self._server.stream_url
            await Caller(url, turn, record, self._history, self.clock, plain=attempt > 0).call()
            if not record.may_ask_again:
                return
            await asyncio.sleep(rng.uniform(1.0, 2.0) * 2**attempt)
