"""Plan of a campaign, drawn from a seed before it begins: clients, their times and behaviour, and faults."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

from realtime_tts.bench.texts import SENTENCES

FAULTS_UNTIL = 0.45  # of the campaign; later the processes live on, so that leaks show


class Kind(enum.StrEnum):
    """Behaviour of a simulated client."""

    HONEST = "honest"
    CANCEL = "cancels"
    RESUME = "drops, resumes"
    LEAVE = "drops for good"
    SLOW = "reads slowly"
    BAD = "sends bad messages"


MIX = {Kind.HONEST: 60, Kind.CANCEL: 12, Kind.RESUME: 9, Kind.LEAVE: 6, Kind.SLOW: 5, Kind.BAD: 8}
QUIET_MIX = {Kind.HONEST: 1}


class FaultKind(enum.StrEnum):
    """Fault injected into a process."""

    KILL_WORKER = "worker killed"
    PAUSE_WORKER = "worker stopped 2 s"
    STOP_WORKER = "worker stopped"
    DRAIN_GATEWAY = "gateway drained"
    KILL_GATEWAY = "gateway killed"
    KILL_BOTH = "gateway killed over a stopped worker"


GATEWAY_KILLS = (FaultKind.KILL_GATEWAY, FaultKind.KILL_BOTH)
GATEWAY_FAULTS = (FaultKind.DRAIN_GATEWAY, *GATEWAY_KILLS)


@dataclass(frozen=True)
class Turn:
    """One client with one text.

    at_s: time of its connection, from the start of the phase.
    acts_after_s: from its first text until the action of its kind.
    away_s: time without connection, or without reading.
    num_bad: bad messages in a row.
    """

    index: int
    at_s: float
    kind: Kind
    text: str
    acts_after_s: float
    away_s: float
    num_bad: int


@dataclass(frozen=True)
class Fault:
    at_s: float
    kind: FaultKind


def plan_turns(rng: random.Random, rate_hz: float, duration_s: float, mix: dict[Kind, int]) -> list[Turn]:
    """Return Poisson arrivals, independent of all answers. Their number is bounded by the duration."""
    turns: list[Turn] = []
    at_s = rng.expovariate(rate_hz)
    while at_s < duration_s:
        kind = rng.choices(list(mix), weights=list(mix.values()))[0]
        text = " ".join(rng.choices(SENTENCES, k=rng.choice((1, 1, 2, 2, 3))))
        away_s = rng.uniform(2.0, 14.0) if kind is Kind.SLOW else rng.uniform(0.1, 4.0)
        num_bad = 25 if rng.random() < 0.2 else rng.randint(1, 6)
        turns.append(Turn(len(turns), at_s, kind, text, rng.uniform(0.0, 4.0), away_s, num_bad))
        at_s += rng.expovariate(rate_hz)
    return turns


def plan_faults(rng: random.Random, duration_s: float) -> list[Fault]:
    """Return faults in the first half, about one a minute: each kind once before any comes again.

    Shorter campaigns have nine of them, as long as these are 12 s apart.
    """
    every_s = min(60.0, max(12.0, duration_s * FAULTS_UNTIL / 9))
    kinds = rng.sample(list(FaultKind), len(FaultKind))
    return [
        Fault(every_s * (number + rng.uniform(0.4, 0.6)), kinds[number % len(kinds)])
        for number in range(int(duration_s * FAULTS_UNTIL / every_s))
    ]
