"""Overload: time until clients are refused, and the effect on admitted clients.

    python -m benchmarks.soak.overload --fake
    python -m benchmarks.soak.overload --seconds 60

The load of the soak, honest clients only, at 0.8, 2 and 5 times the server's capacity, which is measured first.
Loopback only; ends by itself. Exit status 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.soak.account import History, Outcome, Record, problem_of
from benchmarks.soak.figures import MAX_RATIO, Estimate, Verdict, judge_ratio, p95, p95_ratio
from benchmarks.soak.load import LOAD, LoadMaker
from benchmarks.soak.plan import QUIET_MIX, plan_turns
from benchmarks.soak.process import ServerUnderTest

LOADS = (LOAD, 2.0, 5.0)  # times the capacity
MAX_REFUSAL_MS = 100.0
CALIBRATE_S = 24.0
PAUSE_S = 2.0  # between two loads


@dataclass
class Phase:
    """Results of one load."""

    load: float
    rate_hz: float
    records: list[Record] = field(default_factory=list)

    @property
    def first_packets_ms(self) -> list[float]:
        """Times to first packet of admitted clients, ms, from the first text."""
        return [
            1000 * (record.first_packet_s - record.text_s)
            for record in self.records
            if record.first_packet_s is not None and record.text_s is not None
        ]

    @property
    def refusals_ms(self) -> list[float]:
        """Times until a client received its refusal, ms, from its attempt to connect or its context's first text."""
        return [
            1000 * (record.refused_s - (record.asked_s if record.text_s is None else record.text_s))
            for record in self.records
            if record.refused_s is not None
        ]

    @property
    def num_spoken(self) -> int:
        return sum(record.outcome is Outcome.DONE for record in self.records)


@dataclass
class Overload:
    capacity: float
    phases: list[Phase]
    problems: list[str]

    def ratio(self, phase: Phase) -> Estimate | None:
        return p95_ratio(phase.first_packets_ms, self.phases[0].first_packets_ms, seed=1)

    def verdicts(self) -> list[Verdict]:
        found = [judge_ratio(self.ratio(phase)) for phase in self.phases[1:]]
        found += [
            Verdict.PASS if not phase.refusals_ms or p95(phase.refusals_ms) < MAX_REFUSAL_MS else Verdict.FAIL
            for phase in self.phases[1:]
        ]
        return [*found, Verdict.FAIL if self.problems else Verdict.PASS]

    def as_markdown(self) -> str:
        title = f"| capacity {self.capacity:.1f} s of audio a second | turns, spoken, refused | "
        lines = [title + "first packet, p50 / p95 | against the first row | refused after, p50 / p95 / max |"]
        lines.append("|---|---|---|---|---|")
        for phase in self.phases:
            ratio = self.ratio(phase) if phase is not self.phases[0] else None
            cells = (
                f"{phase.load:g} ×, {phase.rate_hz:.1f} turns a second",
                f"{len(phase.records)}, {phase.num_spoken}, {len(phase.refusals_ms)}",
                _quantiles(phase.first_packets_ms, 50, 95),
                f"{ratio} × (≤ {MAX_RATIO:g})" if ratio else "",
                _quantiles(phase.refusals_ms, 50, 95, 100) + f" (p95 < {MAX_REFUSAL_MS:.0f} ms)",
            )
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def _quantiles(values: list[float], *percents: float) -> str:
    import numpy as np

    return " / ".join(f"{np.percentile(values, percent):.0f}" for percent in percents) + " ms" if values else "–"


async def measure(directory: Path, *, fake: bool, seconds: float, seed: int) -> Overload:
    """One server, one load after the other."""
    rng, history = random.Random(seed), History()
    server = ServerUnderTest(directory, fake=fake, settings={})
    maker = LoadMaker(server, history, rng, lambda phase, done_s: None)
    try:
        await server.start()
        base_hz = await maker.calibrated_rate(CALIBRATE_S) / LOAD
        phases = [Phase(load, base_hz * load) for load in LOADS]
        for phase in phases:
            turns = plan_turns(rng, phase.rate_hz, seconds, QUIET_MIX)
            await maker.load(f"{phase.load:g} ×", turns, seconds, phase.records)
            await asyncio.sleep(PAUSE_S)
    finally:
        await maker.close()
        server.destroy()
    found = (problem_of(record, history) for phase in phases for record in phase.records)
    problems = [f"{count} × {problem}" for problem, count in Counter(filter(None, found)).items()]
    if maker.num_not_sent:
        problems.append(f"{maker.num_not_sent} turns were not sent")
    return Overload(maker.capacity or 0.0, phases, problems)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", action="store_true", help="a worker without a model (needs the repository's tests)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as directory:
        found = asyncio.run(measure(Path(directory), fake=given.fake, seconds=given.seconds, seed=given.seed))
    print(found.as_markdown())
    print("\n".join(found.problems))
    sys.exit(int(Verdict.FAIL in found.verdicts()))


if __name__ == "__main__":
    main()
