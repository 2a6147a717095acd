"""Processor time of a server's processes and of the clients that measure it (Linux; elsewhere nothing is known)."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from realtime_tts.bench.limits import Usage
from realtime_tts.bench.server_process import RunningServer

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_BUSY = re.compile(r"^realtime_tts_engine_busy_ms ([0-9.e+]+)$", re.M)
_WORKERS = re.compile(r"^realtime_tts_engine_workers_ready ([0-9.e+]+)$", re.M)


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of processor time so far, at a moment."""

    at_s: float
    event_loop_s: float
    gateway_s: float
    workers_s: float
    clients_s: tuple[float, ...]
    engine_busy_s: float | None
    num_workers: int
    machine_busy_s: float
    machine_s: float


def take_sample(server: RunningServer, client_pids: Sequence[int]) -> Sample | None:
    """None where /proc does not tell."""
    try:
        busy_s, all_s = _machine_s()
        metrics = server.get("/metrics")
        return Sample(
            at_s=time.monotonic(),
            event_loop_s=_thread_s(server.pid),
            gateway_s=_process_s(server.pid),
            workers_s=sum(map(_process_s, server.worker_pids)),
            clients_s=tuple(map(_process_s, client_pids)),
            engine_busy_s=_metric(_BUSY, metrics, 1e-3),
            num_workers=int(_metric(_WORKERS, metrics, 1.0) or 1),
            machine_busy_s=busy_s,
            machine_s=all_s,
        )
    except (OSError, ValueError, IndexError):
        return None


def usage_between(before: Sample | None, after: Sample | None) -> Usage:
    """Of the time from one sample to another."""
    if before is None or after is None or after.at_s <= before.at_s:
        return Usage()
    time_s = after.at_s - before.at_s
    clients = [(late - early) / time_s for early, late in zip(before.clients_s, after.clients_s, strict=True)]
    engine = None
    if before.engine_busy_s is not None and after.engine_busy_s is not None:
        engine = max(0.0, after.engine_busy_s - before.engine_busy_s) / time_s / max(1, after.num_workers)
    machine_s = after.machine_s - before.machine_s
    return Usage(
        event_loop=(after.event_loop_s - before.event_loop_s) / time_s,
        gateway_cores=(after.gateway_s - before.gateway_s) / time_s,
        worker_cores=(after.workers_s - before.workers_s) / time_s,
        client_cores=sum(clients),
        busiest_client=max(clients, default=0.0),
        engine=engine,
        machine=(after.machine_busy_s - before.machine_busy_s) / machine_s if machine_s else None,
    )


def _process_s(pid: int) -> float:
    return _stat_s(Path(f"/proc/{pid}/stat"))


def _thread_s(pid: int) -> float:
    """Of a process's main thread."""
    return _stat_s(Path(f"/proc/{pid}/task/{pid}/stat"))


def _stat_s(path: Path) -> float:
    fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # user and system time


def _machine_s() -> tuple[float, float]:
    """Busy, and all, of the processors together."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICKS_PER_S, sum(fields) / _TICKS_PER_S


def _metric(pattern: re.Pattern[str], text: str, scale: float) -> float | None:
    match = pattern.search(text)
    return float(match.group(1)) * scale if match else None
