"""Processor time of a server's processes and of its machine (Linux; unknown elsewhere)."""

from __future__ import annotations

import dataclasses
import os
import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from realtime_tts.bench.limits import ProcessUsage, Usage

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_BUSY = re.compile(r"^realtime_tts_engine_busy_seconds_total ([0-9.e+-]+)$", re.M)
_WORKERS = re.compile(r"^realtime_tts_engine_workers_ready ([0-9.e+]+)$", re.M)


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """Processes to watch. pids: of the server; their descendants are included. get: returns the text of a path of the
    server, or raises OSError."""

    pids: Sequence[int]
    get: Callable[[str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time that a process has taken. loop_s: of its main thread."""

    is_worker: bool
    all_s: float
    loop_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of processor time so far, at a moment. processes: those of the server, by their ids."""

    at_s: float
    processes: dict[int, Spent]
    engine_busy_s: float | None
    num_workers: int
    machine_busy_s: float
    machine_s: float


def text_getter(url: str, api_key: str | None) -> Callable[[str], str]:
    """A `Watched.get` of the server whose stream is at this URL."""
    parts = urlsplit(url)
    base = f"{'https' if parts.scheme in ('https', 'wss') else 'http'}://{parts.netloc}"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def get(path: str) -> str:
        with urllib.request.urlopen(urllib.request.Request(base + path, headers=headers), timeout=5) as response:
            return str(response.read().decode())

    return get


def take_sample(watched: Watched) -> Sample | None:
    """None where /proc does not tell."""
    try:
        metrics = watched.get("/metrics")
    except OSError:
        metrics = ""
    try:
        busy_s, all_s = _machine_s()
        return Sample(
            at_s=time.monotonic(),
            processes={pid: spent for pid in descendants(watched.pids) if (spent := _spent(pid)) is not None},
            engine_busy_s=_metric(_BUSY, metrics),
            num_workers=int(_metric(_WORKERS, metrics) or 1),
            machine_busy_s=busy_s,
            machine_s=all_s,
        )
    except (OSError, ValueError, IndexError):
        return None


def usage_between(before: Sample | None, after: Sample | None) -> Usage:
    """Return the usage between two samples, of the processes that were there all that time."""
    if before is None or after is None or after.at_s <= before.at_s:
        return Usage()
    time_s = after.at_s - before.at_s
    processes = tuple(
        ProcessUsage(pid, late.is_worker, (late.all_s - early.all_s) / time_s, (late.loop_s - early.loop_s) / time_s)
        for pid, late in after.processes.items()
        if (early := before.processes.get(pid)) is not None
    )
    gateways = [process for process in processes if not process.is_worker]
    workers = [process for process in processes if process.is_worker]
    engine = None
    if before.engine_busy_s is not None and after.engine_busy_s is not None:
        engine = max(0.0, after.engine_busy_s - before.engine_busy_s) / time_s / max(1, after.num_workers)
    machine_s = after.machine_s - before.machine_s
    return Usage(
        event_loop=max((process.main_thread for process in gateways), default=None),
        gateway_cores=sum(process.cores for process in gateways) if gateways else None,
        worker_cores=sum(process.cores for process in workers) if workers else None,
        engine=engine,
        machine=(after.machine_busy_s - before.machine_busy_s) / machine_s if machine_s else None,
        processes=processes,
    )


def descendants(pids: Sequence[int]) -> list[int]:
    """Return these processes and all their running descendants."""
    found: list[int] = []
    coming = list(pids)
    while coming:
        pid = coming.pop()
        if pid not in found:
            found.append(pid)
            coming += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    """Return the child processes of all its threads."""
    try:
        lists = [path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for children in lists for child in children.split()]


def _spent(pid: int) -> Spent | None:
    """Return the processor time of a process; None if it has ended."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        all_s, loop_s = _stat_s(Path(f"/proc/{pid}/stat")), _stat_s(Path(f"/proc/{pid}/task/{pid}/stat"))
    except OSError:
        return None
    return Spent(b"--socket" in arguments, all_s, loop_s)  # every worker is told its socket, and no gateway is


def _stat_s(path: Path) -> float:
    fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # user and system time


def _machine_s() -> tuple[float, float]:
    """Return busy and total time of all processors together."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICKS_PER_S, sum(fields) / _TICKS_PER_S


def _metric(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return float(match.group(1)) if match else None
