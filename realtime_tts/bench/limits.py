"""Which part of a server under load has no time left. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

_FULL = 0.9  # of what a part can do: more is not had without waiting


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """How busy each part was over a time, as a share of what it can be; None: nobody knows.

    event_loop: the gateway's main thread. gateway_cores, worker_cores, client_cores: processor time a second, of all
    their threads. busiest_client: the busiest measuring process. engine: the share of time that steps take, of the
    workers' mean. machine: all processors.
    """

    event_loop: float | None = None
    gateway_cores: float | None = None
    worker_cores: float | None = None
    client_cores: float | None = None
    busiest_client: float | None = None
    engine: float | None = None
    machine: float | None = None


def name_limit(usage: Usage, errors: Mapping[str, int]) -> str:
    """For a person. The measuring clients come first: where they are full, nothing is known of the server."""
    if _is_full(usage.busiest_client):
        return "the measuring clients: take more of them (--clients)"
    if refused := sum(errors.get(code, 0) for code in ("overloaded", "too_many_sessions", "rate_limited")):
        return f"admission: {refused} streams were refused"
    if _is_full(usage.event_loop):
        return "the gateway's event loop, which has one core"
    if _is_full(usage.engine):
        return "the engine: its steps fill the time"
    if _is_full(usage.machine):
        return "the machine's processors, which all share"
    if all(value is None for value in dataclasses.astuple(usage)):
        return "unknown: the server's processes cannot be seen from here"
    return "none of the parts is full: waiting between them, or too few streams to tell"


def _is_full(share: float | None) -> bool:
    return share is not None and share >= _FULL
