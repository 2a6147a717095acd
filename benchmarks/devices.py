"""Capacity of a host's devices in listeners, over sockets: one server with several gateways for each set of devices.

    realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
    python -m benchmarks.devices --model random-voxcpm2 --devices cuda:0 --devices cuda:0,cuda:1

All servers are started at once, and idle but for the one that is being measured. Each gets loads like those of `bench
load`, rising from `--start` a device until one does not hold (time to first packet ≤ 100 ms at p95, 99.9 % without
underruns, no refusals), then between the two. `--budget-s` is the time for all loads, start-up included: no load begins
that would end later. Gateways and generator processes are chosen from the processors that each set of
devices has a share of. What is not known here is passed on to `realtime-tts serve`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.load_run import load_summary
from realtime_tts.bench.search import CapacitySearch
from realtime_tts.bench.server_load import ServerLoad, Target
from realtime_tts.bench.server_process import RunningServer, free_port
from realtime_tts.bench.streams import Bar
from realtime_tts.errors import RealtimeTTSError

BAR = Bar()
GATEWAY_SHARE, GENERATOR_SHARE = 0.5, 0.25  # of the processors; the rest is the workers' and the system's
STEP = 1.25  # from one load to the next, until one does not hold
AIM = 0.95  # target load of a device beside others, relative to its capacity alone; tried first
NUM_ALONE = 12
_WORKERS = re.compile(r"^realtime_tts_engine_workers_ready ([0-9.]+)$", re.M)
_COST = re.compile(r'^realtime_tts_engine_step_cost_seconds{part="(\w+)",worker="([\w-]+)"} ([0-9.e+-]+)$', re.M)
_ENGINE = re.compile(r"^realtime_tts_engine_(\S+) ([0-9.e+-]+)$", re.M)
_TIMES = ("gap_seconds_total", "busy_seconds_total")
_COMPLAINT = re.compile(r"^.*(?:warning|error).*$", re.M | re.I)
_RUN_OUT_S = 5.0  # for a load's connections and the ends of its last streams


@dataclasses.dataclass(eq=False)
class Candidate:
    """Server over some devices, and the results of its loads."""

    devices: str
    process: subprocess.Popen[bytes]
    port: int
    num_gateways: int
    num_clients: int
    log: Path
    ready_s: float = 0.0
    alone_ms: list[float] = dataclasses.field(default_factory=list)
    trials: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    costs: list[str] = dataclasses.field(default_factory=list)  # step costs, as each worker has estimated

    @property
    def num_devices(self) -> int:
        return self.devices.count(",") + 1

    @property
    def running(self) -> RunningServer:
        return RunningServer(self.port, self.process.pid, self.ready_s)

    def is_ready(self) -> bool:
        """Return whether all workers are ready."""
        if self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"the server over {self.devices} ended with status {self.process.returncode}:\n{tail}")
        with contextlib.suppress(OSError):
            found = _WORKERS.search(self.running.get("/metrics"))
            return found is not None and float(found[1]) == self.num_devices
        return False


def started(devices: str, given: argparse.Namespace, directory: Path, flags: list[str]) -> Candidate:
    num_devices = devices.count(",") + 1
    cores = len(os.sched_getaffinity(0)) * num_devices / max(each.count(",") + 1 for each in given.devices)
    num_gateways = given.gateways * num_devices or max(1, round(GATEWAY_SHARE * cores))
    num_clients = given.processes * num_devices or max(1, round(GENERATOR_SHARE * cores))
    port, log = free_port(), directory / f"server-{num_devices}.log"
    command = [sys.executable, "-m", "realtime_tts", "serve", f"--port={port}", "--log-level=warning"]
    command += [f"--model={given.model}", f"--devices={devices}", f"--gateways={num_gateways}", *flags]
    environment = {**os.environ, "TMPDIR": str(directory)}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    return Candidate(devices, process, port, num_gateways, num_clients, log)


def wait_for_all(candidates: list[Candidate], timeout_s: float) -> None:
    begun = time.monotonic()
    waiting = list(candidates)
    with tqdm(desc="starting", total=len(candidates), leave=False, disable=None) as bar:
        while waiting:
            for candidate in list(waiting):
                if candidate.is_ready():
                    candidate.ready_s = time.monotonic() - begun
                    waiting.remove(candidate)
                    bar.update()
            if time.monotonic() - begun > timeout_s:
                raise SystemExit(f"not ready after {timeout_s:.0f} s: {[each.devices for each in waiting]}")
            time.sleep(0.1)


def measure(candidate: Candidate, start: float, given: argparse.Namespace, end_s: float) -> CapacitySearch:
    """Run loads until `end_s`, rising and falling; print the results of each load."""
    running = candidate.running
    seen: list[str] = []  # /metrics, when a load's judged time began and when it was over

    def watch(path: str) -> str:
        seen.append(running.get(path))
        return seen[-1]

    target = Target(
        running.stream_url,
        dataclasses.replace(running.watched, get=watch),
        candidate.num_clients,
        given.words,
        {"audio": {"codec": given.codec}},
        token_gap_s=1 / given.text_rate if given.text_rate else 0.0,
    )
    search = CapacitySearch(start, given.precision, given.max_loads, factor=STEP)
    with ServerLoad(target) as driver:
        driver.measure_turn()
        candidate.alone_ms = driver.alone(NUM_ALONE)
        while (streams := search.load) is not None:
            load = OpenLoad.steady(streams / driver.turn_s, driver.turn_s, given.window_s, even=True)
            if time.monotonic() + load.end_s + driver.turn_s + _RUN_OUT_S > end_s:
                break
            heard = driver.open_loop(load.arrivals(given.seed))
            assert driver.account is not None
            trial = {"offered": streams, **load_summary(heard, load, driver.account)}
            trial["engine"] = [{name: float(value) for name, value in _ENGINE.findall(text)} for text in seen[-2:]]
            trial["held"] = holds(trial)
            candidate.trials.append(trial)
            tqdm.write(f"{candidate.devices}: {row(trial)}")
            search.tell(trial["held"])
    candidate.costs = [
        f"{worker} {part} {1000 * float(s):.3f} ms" for part, worker, s in _COST.findall(metrics(running))
    ]
    return search


def metrics(running: RunningServer) -> str:
    try:
        return running.get("/metrics")
    except OSError:
        return ""


def holds(trial: dict[str, Any]) -> bool:
    """Return whether a load was carried: packets in time, no underruns, no refusals."""
    return (
        trial["streams"] > 0
        and not trial["void"]
        and not trial["errors"]
        and trial["first_audio_ms"]["p95"] <= 1000 * BAR.first_audio_s
        and trial["stalls"]["0"]["share"] <= 1 - BAR.stall_free + 1e-9
    )


def row(trial: dict[str, Any]) -> str:
    usage, first = trial["usage"], trial["first_audio_ms"]
    shown = [
        f"{trial['offered']:5.0f} offered",
        f"{trial['listening_mean']:5.0f} at once",
        f"first {first['p50']:4.0f}/{first['p95']:4.0f} ms",
        f"dry {100 * trial['stalls']['0']['share']:5.2f} %",
        f"refused {trial['refused']}",
        f"gateway {number(trial['gateway_ms_per_speech_s'], 1)} ms/s",
        f"busiest {number(usage['event_loop'], 2)}",
        f"worker {number(usage['worker_cores'], 1)} cores",
        f"engine {number(usage['engine'], 2)}",
        f"step {1000 * trial['engine'][-1].get('step_seconds', math.nan) if trial['engine'] else math.nan:.1f} ms",
        f"between steps {number(gap_share(trial), 3)}",
        f"machine {number(usage['machine'], 2)}",
        f"generator {trial['latest_p99_ms']:.0f} ms late",
        "held" if trial["held"] else f"not held ({trial['void'] or trial['limit']})",
    ]
    return ", ".join(shown)


def gap_share(trial: dict[str, Any]) -> float | None:
    """Return the share of time in which the device was idle although streams waited for it."""
    if len(trial["engine"]) < 2 or trial["usage"]["engine"] is None:
        return None
    gap_s, busy_s = (trial["engine"][1].get(name, 0.0) - trial["engine"][0].get(name, 0.0) for name in _TIMES)
    return float(trial["usage"]["engine"] * gap_s / busy_s) if busy_s > 0 else None


def number(value: float | None, digits: int) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def table(candidates: list[Candidate]) -> str:
    rows = [("devices", "gateways", "ready s", "alone ms", "held", "first p95", "dry %", "gateway ms/s", "not held")]
    for candidate in candidates:
        held = max((trial for trial in candidate.trials if trial["held"]), key=lambda t: t["offered"], default=None)
        failed = [trial["offered"] for trial in candidate.trials if not trial["held"]]
        alone = [ms for ms in candidate.alone_ms if math.isfinite(ms)]
        rows.append(
            (
                candidate.devices,
                str(candidate.num_gateways),
                f"{candidate.ready_s:.0f}",
                f"{statistics.median(alone):.0f}" if alone else "?",
                f"{held['offered']:.0f}" if held else "none",
                f"{held['first_audio_ms']['p95']:.0f}" if held else "–",
                f"{100 * held['stalls']['0']['share']:.2f}" if held else "–",
                number(held["gateway_ms_per_speech_s"], 1) if held else "–",
                f"{min(failed):.0f}" if failed else "–",
            )
        )
    widths = [max(len(line[column]) for line in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--devices", action="append", required=True, help="of one server; may be given several times")
    parser.add_argument("--start", type=float, default=500.0, help="listeners a device, of the first load")
    parser.add_argument("--gateways", type=int, default=0, help="a device; 0: half of the processors")
    parser.add_argument("--processes", type=int, default=0, help="of the generator, a device; 0: a quarter of them")
    parser.add_argument("--codec", default="opus")
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--text-rate", type=float, default=0.0, help="tokens a second; 0: a turn's whole text at once")
    parser.add_argument("--window-s", type=float, default=8.0)
    parser.add_argument("--precision", type=float, default=0.04)
    parser.add_argument("--max-loads", type=int, default=5, help="of each server")
    parser.add_argument("--budget-s", type=float, default=math.inf)
    parser.add_argument("--ready-s", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given, flags = parser.parse_known_args()
    end_s = time.monotonic() + given.budget_s
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="devices-", ignore_cleanup_errors=True))
        )
        candidates = []
        for devices in given.devices:
            candidate = started(devices, given, directory, flags)
            stack.callback(ended, candidate.process)
            candidates.append(candidate)
            print(
                f"{devices}: {candidate.num_gateways} gateways, {candidate.num_clients} generator processes", flush=True
            )
        wait_for_all(candidates, given.ready_s)
        start = given.start
        try:
            for number_left, candidate in zip(range(len(candidates), 0, -1), candidates, strict=True):
                now = time.monotonic()
                until_s = now + (end_s - now) / number_left
                search = measure(candidate, start * candidate.num_devices, given, until_s)
                start = AIM * search.held / candidate.num_devices if search.held else start
        except RealtimeTTSError as error:
            print(f"broken off: {error}")
        finally:
            for candidate in candidates:
                for line in _COMPLAINT.findall(candidate.log.read_text(errors="replace"))[-20:]:
                    print(f"log of {candidate.devices}: {line}")
                print(f"a step over {candidate.devices}: {', '.join(candidate.costs) or 'unknown'}")
            if given.json:
                told = {each.devices: {"alone_ms": each.alone_ms, "trials": each.trials} for each in candidates}
                given.json.write_text(json.dumps(told))
            print(table(candidates), flush=True)


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.terminate()  # a second signal: at once
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


if __name__ == "__main__":
    main()
