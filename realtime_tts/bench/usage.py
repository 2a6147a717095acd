"""Processor time of a server's processes and of its machine (Linux; unknown elsewhere), and which of its parts is
saturated."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

REFUSALS = frozenset({"overloaded", "too_many_sessions", "rate_limited", "draining"})
MAX_LATE_MS = 20.0  # a packet: a generator that is later than that, in one of a hundred cases, measures itself
_FULL = 0.9  # utilisation from which a part counts as saturated
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
WORKERS, _BUSY = "realtime_tts_engine_workers_ready", "realtime_tts_engine_busy_seconds_total"
_METRIC = re.compile(r"^(\w+) (\S+)$", re.M)


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessTime:
    """Seconds of processor time that a process has taken: all of its threads, and the main one."""

    is_worker: bool
    all_s: float
    main_thread_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Utilisation of each part over a time, as a share of its maximum; None: unknown.

    event_loop: the gateway's main thread; of several gateways the busiest one. gateway_cores, worker_cores,
    client_cores: processor time a second, of all their threads. busiest_client: the busiest measuring process. engine:
    the share of time that steps take, of the workers' mean. machine: all processors.
    """

    event_loop: float | None = None
    gateway_cores: float | None = None
    worker_cores: float | None = None
    client_cores: float | None = None
    busiest_client: float | None = None
    engine: float | None = None
    machine: float | None = None

    def shares(self) -> dict[str, float]:
        """Return the known utilisations by name."""
        return {name: share for name, share in dataclasses.asdict(self).items() if isinstance(share, float)}


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of processor time so far, at a moment. processes: those of the server, by their ids. metrics: of the
    server; empty if it did not answer."""

    at_s: float
    processes: dict[int, ProcessTime]
    metrics: dict[str, float]
    machine_busy_s: float
    machine_s: float


def get_text(url: str, path: str, api_key: str | None = None) -> str:
    """Return the text of a path of the server whose stream is at this URL. Raises OSError: it does not answer."""
    parts = urlsplit(url)
    base = f"{'https' if parts.scheme in ('https', 'wss') else 'http'}://{parts.netloc}"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with urllib.request.urlopen(urllib.request.Request(base + path, headers=headers), timeout=5) as response:
        return str(response.read().decode())


def metrics(url: str, api_key: str | None = None) -> dict[str, float]:
    """Return a server's metrics without labels. Raises OSError: it does not answer."""
    return {name: float(value) for name, value in _METRIC.findall(get_text(url, "/metrics", api_key))}


def take_sample(pids: Sequence[int], url: str, api_key: str | None = None) -> Sample | None:
    """Return a sample of a server's processes and their descendants; None without the figures of /proc."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError):
        found = metrics(url, api_key)
    try:
        processes = {pid: spent for pid in descendants(pids) if (spent := _spent(pid)) is not None}
        return Sample(time.monotonic(), processes, found, *_machine_s())
    except (OSError, ValueError, IndexError):
        return None


def usage_between(before: Sample | None, after: Sample | None) -> Usage:
    """Return the usage between two samples, of the processes that were there all that time."""
    if before is None or after is None or after.at_s <= before.at_s:
        return Usage()
    time_s = after.at_s - before.at_s
    stayed = [(before.processes[pid], late) for pid, late in after.processes.items() if pid in before.processes]
    cores: dict[bool, float | None] = {False: None, True: None}  # by `is_worker`
    for early, late in stayed:
        cores[late.is_worker] = (cores[late.is_worker] or 0.0) + (late.all_s - early.all_s) / time_s
    loops = [(late.main_thread_s - early.main_thread_s) / time_s for early, late in stayed if not late.is_worker]
    engine = None
    if _BUSY in before.metrics and _BUSY in after.metrics:
        busy_s = max(0.0, after.metrics[_BUSY] - before.metrics[_BUSY])
        engine = busy_s / time_s / max(1.0, after.metrics.get(WORKERS, 1.0))
    machine_s = after.machine_s - before.machine_s
    machine = (after.machine_busy_s - before.machine_busy_s) / machine_s if machine_s else None
    return Usage(max(loops, default=None), cores[False], cores[True], engine=engine, machine=machine)


def descendants(pids: Sequence[int]) -> list[int]:
    """Return these processes and all their running descendants."""
    found = list(dict.fromkeys(pids))
    for pid in found:  # which grows
        found += [child for child in children(pid) if child not in found]
    return found


def children(pid: int) -> list[int]:
    """Return the child processes of all its threads."""
    try:
        lists = [path.read_text(encoding="ascii") for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for children in lists for child in children.split()]


def _spent(pid: int) -> ProcessTime | None:
    """Return the processor time of a process; None if it has ended."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        all_s, loop_s = _stat_s(Path(f"/proc/{pid}/stat")), _stat_s(Path(f"/proc/{pid}/task/{pid}/stat"))
    except OSError:
        return None
    return ProcessTime(b"--clients" in arguments, all_s, loop_s)  # an argument of every worker and of no gateway


def _stat_s(path: Path) -> float:
    fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # user and system time


def _machine_s() -> tuple[float, float]:
    """Return busy and total time of all processors together."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICKS_PER_S, sum(fields) / _TICKS_PER_S


def name_limit(usage: Usage, errors: Mapping[str, int]) -> str:
    """Return the limiting part, for people. The measuring clients come first: if they are saturated, nothing is known
    of the server."""
    refused = sum(errors.get(code, 0) for code in REFUSALS)
    parts = (
        (usage.busiest_client, "the measuring clients: take more of them (--clients)"),
        (float(refused), f"admission: {refused} streams were refused"),
        (usage.event_loop, "the gateway's event loop, which has one core"),
        (usage.engine, "the engine: its steps fill the time"),
        (usage.machine, "the machine's processors, which all share"),
    )
    if full := [limit for share, limit in parts if _is_full(share)]:
        return full[0]
    if usage.event_loop is None and usage.engine is None and usage.machine is None:
        return "unknown: the server's processes cannot be seen from here"
    return "none of the parts is full: waiting between them, or too few streams to tell"


def _is_full(share: float | None) -> bool:
    return share is not None and share >= _FULL


def why_void(num_asked: int, late_ms_p99: float, busiest_client: float) -> str:
    """Return why a load says nothing of the server (it had no streams, or its generator was late), or "".

    Args:
        num_asked: judged streams. late_ms_p99: of the latest generator process. busiest_client: share of a processor.
    """
    if not num_asked:
        return "no turn began in the measured time: take a longer one"
    if _is_full(busiest_client):
        more = "take more of them (--processes, in bench server --clients)"
        return f"a generator process had {busiest_client:.0%} of a processor to do: {more}"
    if late_ms_p99 > MAX_LATE_MS:
        return f"the generator itself was {late_ms_p99:.0f} ms late (p99; {MAX_LATE_MS:.0f} are allowed)"
    return ""
