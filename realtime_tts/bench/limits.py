"""Search for the part of a server under load that has no time left. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

REFUSALS = frozenset({"overloaded", "too_many_sessions", "rate_limited", "draining"})
MAX_LATE_MS = 20.0  # a packet: a generator that is later than that, in one of a hundred cases, measures itself
_FULL = 0.9  # utilisation from which a part counts as saturated


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessUsage:
    """cores: processor time a second, of all its threads; main_thread: of that one."""

    pid: int
    is_worker: bool
    cores: float
    main_thread: float


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Utilisation of each part over a time, as a share of its maximum; None: unknown.

    event_loop: the gateway's main thread; of several gateways the busiest one. gateway_cores, worker_cores,
    client_cores: processor time a second, of all their threads. busiest_client: the busiest measuring process. engine:
    the share of time that steps take, of the workers' mean. machine: all processors. processes: those of the server.
    """

    event_loop: float | None = None
    gateway_cores: float | None = None
    worker_cores: float | None = None
    client_cores: float | None = None
    busiest_client: float | None = None
    engine: float | None = None
    machine: float | None = None
    processes: tuple[ProcessUsage, ...] = ()


def name_limit(usage: Usage, errors: Mapping[str, int]) -> str:
    """Return the limiting part, for people. The measuring clients come first: if they are saturated, nothing is known
    of the server."""
    if _is_full(usage.busiest_client):
        return "the measuring clients: take more of them (--clients)"
    if refused := sum(errors.get(code, 0) for code in REFUSALS):
        return f"admission: {refused} streams were refused"
    if _is_full(usage.event_loop):
        return "the gateway's event loop, which has one core"
    if _is_full(usage.engine):
        return "the engine: its steps fill the time"
    if _is_full(usage.machine):
        return "the machine's processors, which all share"
    if usage.event_loop is None and usage.engine is None and usage.machine is None:
        return "unknown: the server's processes cannot be seen from here"
    return "none of the parts is full: waiting between them, or too few streams to tell"


def _is_full(share: float | None) -> bool:
    return share is not None and share >= _FULL


def why_void(late_ms_p99: float, busiest_client: float) -> str:
    """Return why a load says nothing of the server (its generator was late), or "".

    Args:
        late_ms_p99: of the latest generator process. busiest_client: share of a processor.
    """
    if _is_full(busiest_client):
        return f"a generator process had {busiest_client:.0%} of a processor to do: take more of them (--processes)"
    if late_ms_p99 > MAX_LATE_MS:
        return f"the generator itself was {late_ms_p99:.0f} ms late (p99; {MAX_LATE_MS:.0f} are allowed)"
    return ""
