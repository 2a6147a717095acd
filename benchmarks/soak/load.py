"""Load on a local server: its capacity, and clients that arrive at set times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from tqdm import tqdm

from benchmarks.soak.account import History, Outcome, Record
from benchmarks.soak.caller import Caller, clock
from benchmarks.soak.plan import QUIET_MIX, Kind, Turn, plan_turns

MAX_IN_FLIGHT = 400
MAX_ATTEMPTS = 5
CALIBRATING_CALLERS = 32
RAMP_S, COUNTED_S = 8.0, 20.0  # until all of them are there; from then on it counts
REFUSED_S = 1.0  # delay of a retry after a refusal, as the server asks


async def measure_capacity(url: str, rng: random.Random) -> tuple[float, float]:
    """Return the seconds of audio a second, and those of a turn, of a server that admits as many clients as it can.

    Raises:
        RuntimeError: nothing was spoken.
    """
    turns = iter(tqdm(plan_turns(rng, 50.0, 60.0 + RAMP_S + COUNTED_S, QUIET_MIX), desc="calibrate"))
    counted_from = clock() + RAMP_S
    end = counted_from + COUNTED_S
    spoken: list[float] = []

    async def one_after_another(index: int) -> None:
        await asyncio.sleep(RAMP_S * index / CALIBRATING_CALLERS)
        while clock() < end:
            turn = next(turns)
            record = Record(turn.index, 0, turn.kind, clock())
            await Caller(url, turn, record, History()).call()
            if record.outcome is Outcome.REFUSED:
                await asyncio.sleep(REFUSED_S)
            elif counted_from <= record.ended_s < end:
                spoken.append(record.audio_s)

    await asyncio.gather(*map(one_after_another, range(CALIBRATING_CALLERS)))
    if not spoken:
        raise RuntimeError("nothing was spoken in the calibration")
    return sum(spoken) / COUNTED_S, sum(spoken) / len(spoken)


async def open_loop(
    phase: str, url: str, turns: Sequence[Turn], duration_s: float, records: list[Record], history: History
) -> int:
    """Run each turn at its time, whatever became of those before, until the last one is over.

    Return the number of turns left out since `MAX_IN_FLIGHT` were under way.
    """
    begun, num_left_out = clock(), 0
    in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def run(turn: Turn) -> None:
        async with in_flight:
            await _have_spoken(url, turn, records, history)

    async with asyncio.TaskGroup() as tasks:
        for turn in tqdm(turns, desc=phase):
            await asyncio.sleep(max(0.0, begun + turn.at_s - clock()))
            if in_flight.locked():
                num_left_out += 1
            else:
                tasks.create_task(run(turn))
        await asyncio.sleep(max(0.0, begun + duration_s - clock()))
    return num_left_out


async def _have_spoken(url: str, turn: Turn, records: list[Record], history: History) -> None:
    """Run a turn, and request it again when its server or worker was lost, then without the behaviour of its kind."""
    rng = random.Random(turn.index)
    for attempt in range(MAX_ATTEMPTS):
        record = Record(turn.index, attempt, Kind.HONEST if attempt else turn.kind, clock())
        records.append(record)
        await Caller(url, turn, record, history).call()
        if not record.may_ask_again:
            return
        await asyncio.sleep(rng.uniform(1.0, 2.0) * 2**attempt)
