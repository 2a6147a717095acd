"""Outcome of every context, and whether it is allowed.

An accepted context must end with exactly one terminal message, unless its server was killed, its client left it, or
its client did not read. What was not accepted must have been refused with a reason, or have met a server that was not
there. Anything else is a problem.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak.plan import GATEWAY_FAULTS, GATEWAY_KILLS, FaultKind, Kind
from realtime_tts.bench.native_stream import TERMINAL

GRACE_S = 2.0  # until a client receives the news of a past fault
SLOW_CLOSE_S = 8.0  # a client that does not read for this time may be closed


class Outcome(enum.StrEnum):
    """End of an attempt, as its client saw it."""

    DONE = "context.done"
    CANCELLED = "context.cancelled"
    FAILED = "context.failed"
    REFUSED = "refused"  # with a code, before it was accepted
    UNREACHED = "no server"
    SERVER_KILLED = "server killed"
    SESSION_GONE = "session gone with its server"
    LEFT = "left by its client"
    CLOSED_SLOW = "closed, its client did not read"
    LOST = "lost"


_OUTAGE_CODES = {"engine_lost", "draining"}  # codes that a client may receive during an outage


@dataclass
class Outage:
    """From a fault until speech can be made again. Seconds of the campaign."""

    kind: FaultKind
    start_s: float
    end_s: float | None = None


@dataclass
class History:
    """Faults injected into the server."""

    outages: list[Outage] = field(default_factory=list)

    def during(self, start_s: float, end_s: float, grace_s: float = 0.0) -> list[Outage]:
        """Return the outages in which any moment of the span lies."""
        return [
            outage
            for outage in self.outages
            if outage.start_s <= end_s and (outage.end_s is None or start_s <= outage.end_s + grace_s)
        ]

    def was_killed(self, start_s: float, end_s: float) -> bool:
        """Return whether the gateway was killed within the span; an outage begins with its fault."""
        outages = self.during(start_s, end_s)
        return any(outage.kind in GATEWAY_KILLS and start_s <= outage.start_s for outage in outages)

    def was_restarted(self, start_s: float, end_s: float) -> bool:
        return any(outage.kind in GATEWAY_FAULTS for outage in self.during(start_s, end_s))


@dataclass
class Record:
    """One attempt to have one text spoken: what its client saw. Seconds of the campaign."""

    turn: int
    attempt: int
    kind: Kind
    asked_s: float
    text_s: float | None = None  # the first text was sent
    accepted_s: float | None = None
    first_packet_s: float | None = None
    ended_s: float = 0.0
    outcome: Outcome = Outcome.LOST
    code: str = ""  # of a failure or a refusal
    detail: str = ""  # close code and reason, or what else was seen at the end
    audio_s: float = 0.0  # of a context that was done
    away_s: float = 0.0
    number: int = -1
    next_sequence: int = 0
    terminals: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # violated guarantees of the protocol

    @property
    def context_id(self) -> str:
        return f"turn-{self.turn}-{self.attempt}"

    @property
    def is_over(self) -> bool:
        return bool(self.terminals)

    def take(self, message: dict[str, Any], now_s: float) -> None:
        """Account for a numbered message; an audio packet comes as type "audio", with its context's number."""
        if self.terminals:
            self.broken.append(f"{message['type']} after {self.terminals[-1]}")
        if message["sequence"] != self.next_sequence:
            self.broken.append(f"sequence {message['sequence']} instead of {self.next_sequence}")
        self.next_sequence = message["sequence"] + 1
        if message["type"] == "context.started":
            self.accepted_s, self.number = now_s, message["number"]
        elif message["type"] == "audio":
            if message["number"] != self.number:
                self.broken.append(f"audio of context {message['number']} instead of {self.number}")
            if self.first_packet_s is None:
                self.first_packet_s = now_s
        elif message["type"] in TERMINAL:
            self.terminals.append(message["type"])
            self.outcome, self.code = Outcome(message["type"]), message.get("code", "")
            self.audio_s = message.get("audio_ms", 0.0) / 1000

    @property
    def may_ask_again(self) -> bool:
        """True if the client retries: after losing its server or worker, not if refused for lack of capacity."""
        if self.outcome in (Outcome.FAILED, Outcome.REFUSED):
            return self.code in _OUTAGE_CODES
        return self.outcome in (Outcome.UNREACHED, Outcome.SERVER_KILLED, Outcome.SESSION_GONE)


def problem_of(record: Record, history: History) -> str | None:
    """Return the problem with the end of an attempt, or None."""
    if record.broken:
        return "; ".join(record.broken[:3])
    if len(record.terminals) > 1:
        return f"{len(record.terminals)} terminal messages"
    is_out = bool(history.during(record.asked_s, record.ended_s, GRACE_S))
    was_slow = record.away_s >= SLOW_CLOSE_S
    is_allowed = {
        Outcome.LOST: False,
        Outcome.CANCELLED: record.kind is not Kind.HONEST,
        Outcome.FAILED: (record.code == "engine_lost" and is_out)
        or (record.code == "slow_consumer" and was_slow)
        or (record.code == "too_many_errors" and record.kind is Kind.BAD),
        Outcome.UNREACHED: is_out,
        Outcome.REFUSED: record.code == "overloaded" or (record.code in _OUTAGE_CODES and is_out),
        Outcome.CLOSED_SLOW: was_slow,
    }.get(record.outcome, True)
    return None if is_allowed else " ".join(filter(None, (record.outcome, record.code, record.detail)))


def problems(records: Iterable[Record], history: History) -> list[str]:
    """Return all problems, one line each."""
    found = ((record, problem_of(record, history)) for record in records)
    return [
        f"{record.context_id} ({record.kind}, {record.asked_s:.1f}–{record.ended_s:.1f} s): {problem}"
        for record, problem in found
        if problem is not None
    ]


def latency_ms(record: Record, history: History) -> float | None:
    """Return the time from first text to first packet; None where it does not count. It counts in an honest client's
    first try if no outage was on meanwhile."""
    if record.kind is not Kind.HONEST or record.attempt or record.text_s is None or record.first_packet_s is None:
        return None
    is_out = history.during(record.text_s, record.first_packet_s)
    return None if is_out else 1000 * (record.first_packet_s - record.text_s)
