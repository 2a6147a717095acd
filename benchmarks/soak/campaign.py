"""Campaign: measure the capacity, run without faults, inject faults, count leaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from benchmarks.soak.account import History, Outage, Record, problems
from benchmarks.soak.client import SoakClient, clock
from benchmarks.soak.plan import MIX, QUIET_MIX, Fault, FaultKind, Kind, Turn, plan_faults, plan_turns
from benchmarks.soak.process import Sample, ServerUnderTest

OVERLOAD_HZ = 12.0  # turns a second, of which a server admits as many as it can
RAMP_S, COUNTED_S = 8.0, 20.0  # until it is full; from then on speech counts
LOAD = 0.8  # of the capacity
MAX_STREAMS = 24  # spoken at once on average, whatever the capacity
MAX_IN_FLIGHT = 400
MAX_ATTEMPTS = 5
SAMPLE_S = 1.0
SETTLE_S = 25.0  # longer than the 10 s that a session waits for its client
POOLED_THREADS = 40  # pools start their threads when they are first needed, and keep them
RECOVERY_S = 4.0  # between an outage's end and the next fault
PAUSE_S = 2.0  # shorter than the 5 s after which a worker counts as hung
_FAILURES = (RuntimeError, OSError, subprocess.SubprocessError)  # of a gateway that does not start, answer or end


@dataclass(frozen=True)
class Options:
    """Options of a campaign.

    minutes: duration of the load with faults. quiet_s: of the load before it.
    rate_hz: turns a second; None: from the measured capacity.
    faults: instead of those drawn.
    """

    minutes: float = 30.0
    quiet_s: float = 180.0
    fake: bool = False
    rate_hz: float | None = None
    faults: tuple[Fault, ...] | None = None
    seed: int = 1

    @property
    def duration_s(self) -> float:
        return 60 * self.minutes


@dataclass
class Result:
    """Result of a campaign."""

    rate_hz: float = 0.0
    capacity: float | None = None  # seconds of audio a second
    quiet_records: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    history: History = field(default_factory=History)
    samples: dict[str, list[Sample]] = field(default_factory=lambda: {"gateway": [], "worker": []})
    problems: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    num_not_sent: int = 0


class Campaign:
    """One run. `run` returns when all is over and cleaned away.

    Args:
        directory: empty, short and ours; the server's temporary directory and its log lie in it.
    """

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._rng = random.Random(options.seed)
        self._server = ServerUnderTest(directory, fake=options.fake)
        self.result = Result()

    async def run(self) -> Result:
        """Raises RuntimeError if the server cannot even be started; what goes wrong later is in the result."""
        result = self.result
        try:
            await self._server.start()
            try:
                await self._all_phases()
            except _FAILURES as error:
                result.problems.append(f"broken off at {clock():.0f} s: {error}")
        finally:
            self._server.destroy()
        result.problems += problems(result.quiet_records + result.records, result.history)
        if result.num_not_sent:
            result.problems.append(f"{result.num_not_sent} turns were not sent: {MAX_IN_FLIGHT} were in flight")
        if crashes := self._server.log.count("Traceback (most recent call last)"):
            result.problems.append(f"{crashes} tracebacks in the server's log:\n{self._server.log_tail()}")
        return result

    async def _all_phases(self) -> None:
        options, result = self._options, self.result
        result.rate_hz = options.rate_hz or await self._calibrated_rate()
        sampling = asyncio.create_task(self._sample())
        try:
            await self._load("quiet", result.rate_hz, options.quiet_s, QUIET_MIX, result.quiet_records)
            baseline = await self._settled(None)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._break_all(options.faults or plan_faults(self._rng, options.duration_s)))
                await self._load("chaos", result.rate_hz, options.duration_s, MIX, result.records)
            result.leftovers += left_over(baseline, await self._settled(baseline))
        finally:
            sampling.cancel()
        await self._drain()
        if left := self._server.temporary_files():
            result.leftovers.append(f"temporary files {left}")
        if workers := self._server.living_workers():
            result.leftovers.append(f"worker processes {workers}")

    # ---- load ----------------------------------------------------------------------------------------------------

    async def _calibrated_rate(self) -> float:
        """Measure the capacity under overload. Return the turns a second at `LOAD` of it.

        Raises:
            RuntimeError: nothing was spoken.
        """
        records: list[Record] = []
        counted_s = clock() + RAMP_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RAMP_S + COUNTED_S):  # also where this machine is too slow for the load
                await self._load("calibrate", OVERLOAD_HZ, RAMP_S + COUNTED_S, QUIET_MIX, records)
        spoken = [one.audio_s for one in records if one.ended_s >= counted_s and one.audio_s]
        if not spoken:
            raise RuntimeError("nothing was spoken in the calibration")
        self.result.capacity = sum(spoken) / COUNTED_S
        return min(LOAD * self.result.capacity, MAX_STREAMS) * len(spoken) / sum(spoken)

    async def _load(
        self, phase: str, rate_hz: float, duration_s: float, mix: dict[Kind, int], records: list[Record]
    ) -> None:
        """Run each turn at its time, whatever became of those before, until the last one is over."""
        begun = clock()
        in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

        async def run(turn: Turn) -> None:
            async with in_flight:
                await self._run_turn(turn, records)

        async with asyncio.TaskGroup() as tasks:
            for turn in tqdm(plan_turns(self._rng, rate_hz, duration_s, mix), desc=phase):
                await asyncio.sleep(max(0.0, begun + turn.at_s - clock()))
                if in_flight.locked():
                    self.result.num_not_sent += 1
                else:
                    tasks.create_task(run(turn))
            await asyncio.sleep(max(0.0, begun + duration_s - clock()))

    async def _run_turn(self, turn: Turn, records: list[Record]) -> None:
        """Run a turn. After the loss of its server or worker request it again, without the behaviour of its kind."""
        rng = random.Random(turn.index)
        for attempt in range(MAX_ATTEMPTS):
            record = Record(turn.index, attempt, Kind.HONEST if attempt else turn.kind, clock())
            records.append(record)
            await SoakClient(self._server.stream_url, turn, record, self.result.history).run()
            if not record.may_ask_again:
                return
            await asyncio.sleep(rng.uniform(1.0, 2.0) * 2**attempt)

    # ---- faults --------------------------------------------------------------------------------------------------

    async def _break_all(self, faults: Sequence[Fault]) -> None:
        begun = recovered_s = clock()
        for fault in faults:
            await asyncio.sleep(max(begun + fault.at_s, recovered_s) - clock())  # not at all if it is late
            outage = Outage(fault.kind, clock())
            self.result.history.outages.append(outage)
            try:
                await self._break(fault.kind)
            except _FAILURES as error:
                self.result.problems.append(f"{fault.kind} at {outage.start_s:.0f} s: {error}")
                return
            outage.end_s = clock()
            recovered_s = outage.end_s + RECOVERY_S

    async def _break(self, kind: FaultKind) -> None:
        """One fault, and wait until speech can be made again."""
        server, worker = self._server, self._server.worker_pid
        if worker is None:
            raise RuntimeError("there is no worker")
        if kind in (FaultKind.KILL_WORKER, FaultKind.STOP_WORKER):
            os.kill(worker, signal.SIGKILL if kind is FaultKind.KILL_WORKER else signal.SIGSTOP)
            await server.until_ready(other_than=worker)
        elif kind is FaultKind.PAUSE_WORKER:
            os.kill(worker, signal.SIGSTOP)
            await asyncio.sleep(PAUSE_S)
            os.kill(worker, signal.SIGCONT)
            await server.until_ready()
            if server.worker_pid != worker:
                self.result.problems.append(f"a worker that stood still for {PAUSE_S} s was given up")
        elif kind is FaultKind.DRAIN_GATEWAY:
            await self._drain()
            await server.start()
        else:
            if kind is FaultKind.KILL_BOTH:
                os.kill(worker, signal.SIGSTOP)
            await server.end(signal.SIGKILL)
            await server.start()

    async def _drain(self) -> None:
        """Stop the gateway with SIGTERM."""
        if (status := await self._server.end(signal.SIGTERM)) != 0:
            self.result.problems.append(f"a drained gateway ended with {status}")

    # ---- what is left --------------------------------------------------------------------------------------------

    async def _sample(self) -> None:
        result = self.result
        while True:
            for name, one in (await asyncio.to_thread(self._server.samples, clock())).items():
                result.samples[name].append(one)
            await asyncio.sleep(SAMPLE_S)

    async def _settled(self, baseline: dict[str, float] | None) -> dict[str, float]:
        """Return the census once idle: as soon as nothing is left over, else after `SETTLE_S`."""
        end = clock() + SETTLE_S
        while True:
            held = await asyncio.to_thread(self._server.held)
            if clock() > end or not left_over(baseline or held, held):
                return held
            await asyncio.sleep(0.5)


def left_over(baseline: dict[str, float], held: dict[str, float]) -> list[str]:
    """Return resources held beyond the baseline; resources that only speech holds must be zero."""
    found = []
    for name, value in held.items():
        allowed = 0 if name.startswith("busy_") else baseline.get(name, 0)
        allowed += POOLED_THREADS if name.endswith(" threads") else 0
        if value > allowed:
            found.append(f"{name.removeprefix('busy_')}: {value:g} instead of {allowed:g}")
    return found
