"""Capacity of a host's devices in listeners, over sockets: one server with several gateways for each set of devices.

    realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
    python -m benchmarks.devices --model random-voxcpm2 --devices cuda:0 --devices cuda:0,cuda:1

The sets are measured one after another. Each gets loads like those of `bench load`, rising from `--start` a device
until one does not hold (time to first packet ≤ 100 ms at p95, 99.9 % without underruns, no refusals), then between the
two. `--loads` names the loads instead. By default gateways take half and generator processes a quarter of the
processors that a device has a share of. Unknown options are passed to `realtime-tts serve`.

With `--text-rate` text comes as an LLM writes it. Time to first packet then counts from the moment when the words that
speech begins with were written ("ours"; ≤ 60 ms at p95). A gap counts as the text's if text that the engine requires
for that place was not written when the gap began; other gaps are ours. Gaps are those of players with the `BUFFERS_MS`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.load_generator import Target
from realtime_tts.bench.load_result import LoadResult
from realtime_tts.bench.report import figure, percent, table, write_json
from realtime_tts.bench.search import highest_load
from realtime_tts.bench.server_load import ServerLoad
from realtime_tts.bench.server_process import RunningServer, running_server
from realtime_tts.bench.streams import Bar, Heard, gaps
from realtime_tts.bench.usage import WORKERS, Sample, metrics
from realtime_tts.contract.cores import usable_cores

STEP = 1.25  # from one load to the next, until one does not hold
PRECISION = 0.04  # of the search
NUM_ALONE = 12
READY_S = 180.0
_GAP, _BUSY = "realtime_tts_engine_gap_seconds_total", "realtime_tts_engine_busy_seconds_total"
_STEP = "realtime_tts_engine_step_seconds"
BUFFERS_MS = (0, 60, 100)
BEGIN_CHARS, AHEAD_CHARS = 8, 14  # in front of the first two patches, and of later ones: `SchedulerConfig`
BEGIN_S = 0.32  # two patches
_GAPS = "/".join(map(str, BUFFERS_MS))
_COLUMNS = ("offered", "at once", "first p50 ms", "p95", "ours p50", "p95", f"our gaps {_GAPS} ms", "longest", "text's")
_COLUMNS += ("refused", "gateway ms/s", "loop", "worker cores", "engine", "steps/s", "step ms", "idle", "machine")
_COLUMNS += ("generator late ms", "held")


def wait_for_workers(server: RunningServer, number: int, timeout_s: float) -> None:
    """Block until `number` workers are ready; the server is ready with the first of them."""
    end_s = time.monotonic() + timeout_s
    while metrics(server.url).get(WORKERS, 0.0) < number:
        if time.monotonic() > end_s:
            raise SystemExit(f"not all {number} workers are ready after {timeout_s:.0f} s")
        time.sleep(0.1)


@dataclasses.dataclass(kw_only=True)
class Trial(LoadResult):
    """One load. metrics: of the server, when the load's judged time began and when it was over. ours_ms: time to first
    packet since its text was written. gaps_ms: of each turn by buffer, the longest that is ours and the text's.
    """

    offered: float
    metrics: list[dict[str, float]]
    ours_ms: Spread
    gaps_ms: dict[int, list[tuple[float, float]]]
    held: bool = False


def written_s(stream: Heard, begins_s: float) -> float:
    """Return when the text was written that the engine requires for speech at this place in the audio."""
    spoken = np.interp(begins_s, *zip(*stream.words, strict=True)) if stream.words else 0.0
    wanted = spoken + (AHEAD_CHARS if begins_s >= BEGIN_S else BEGIN_CHARS)
    end = stream.written[-1][1]
    return next(at_s for at_s, num_chars in stream.written if num_chars >= min(end, wanted))


def longest_gaps_ms(stream: Heard, buffer_ms: float) -> tuple[float, float]:
    """Return a turn's longest gap that is ours, and its longest that is the text's."""
    if stream.error or not stream.chunks:
        return math.inf, 0.0
    found: dict[bool, list[float]] = {False: [0.0], True: [0.0]}
    for began_s, length_s, begins_s in gaps(stream.chunks, buffer_ms / 1000):
        found[written_s(stream, begins_s) > began_s].append(1000 * length_s)
    return max(found[False]), max(found[True])


def trial_of(result: LoadResult, offered: float, samples: list[Sample | None], text_rate: float) -> Trial:
    """Return a load with the shares of text and engine in its times. samples: of the server."""
    trial = Trial(
        **vars(result),
        offered=offered,
        metrics=[sample.metrics for sample in samples if sample is not None],
        ours_ms=Spread.of([1000 * (each.first_s - written_s(each, 0.0)) for each in result.raw if each.chunks]),
        gaps_ms={ms: [longest_gaps_ms(stream, ms) for stream in result.raw] for ms in BUFFERS_MS},
    )
    is_in_time = trial.ours_ms.p95 <= (60.0 if text_rate else Bar().first_audio_ms)
    trial.held = not result.void and not result.errors and is_in_time and shares(trial)[0][0] <= 0.001
    return trial


def shares(trial: Trial) -> list[list[float]]:
    """Return the shares of turns with gaps that are ours, and with gaps that are the text's, by `BUFFERS_MS`."""
    by_buffer = [trial.gaps_ms[ms] for ms in BUFFERS_MS]
    return [[sum(turn[kind] > 0 for turn in turns) / max(1, len(turns)) for turns in by_buffer] for kind in (0, 1)]


def measure(server: RunningServer, num_devices: int, given: argparse.Namespace, num_clients: int) -> dict[str, Any]:
    """Run loads, rising and falling, and print each; return `alone_ms`, `held` and the loads as `trials`."""
    target = Target(
        server.stream_url,
        [server.pid],
        num_clients,
        given.words,
        {"audio": {"codec": "opus"}, **({"voice": given.voice} if given.voice else {})},
        token_gap_s=1 / given.text_rate if given.text_rate else 0.0,
    )
    trials: list[Trial] = []
    driver = ServerLoad(target)
    driver.measure_turn()
    alone_ms = driver.alone(NUM_ALONE)

    def holds(streams: float) -> bool:
        load = OpenLoad(streams / driver.turn_s, driver.turn_s, given.window_s, even=True)
        result = driver.run(load)
        trials.append(trial_of(result, streams, driver.samples, given.text_rate))
        tqdm.write(", ".join(map(" ".join, zip(_COLUMNS, row(trials[-1]), strict=True))))
        return trials[-1].held

    for listeners in given.loads:
        holds(listeners * num_devices)
    if not given.loads:
        highest_load(holds, given.start * num_devices, PRECISION, given.max_loads, factor=STEP)
    held = max((trial.offered for trial in trials if trial.held), default=0.0)
    return {"alone_ms": alone_ms, "held": held, "trials": trials}


def row(trial: Trial) -> list[str]:
    """Return the cells of `_COLUMNS` for a load."""
    usage, first, ours = trial.usage, trial.first_audio_ms, trial.ours_ms
    step_ms = 1000 * trial.metrics[-1].get(_STEP, math.nan) if trial.metrics else None
    ours_shares, text_shares = shares(trial)
    steps_per_s = 1000 * usage.engine / step_ms if usage.engine and step_ms else None
    return [
        *map(figure, (trial.offered, trial.listening_mean, first.p50, first.p95, ours.p50, ours.p95)),
        "/".join(map(percent, ours_shares)),
        figure(max((ours_ms for ours_ms, _ in trial.gaps_ms[0]), default=math.nan)),
        "/".join(map(percent, text_shares)),
        str(trial.refused),
        *map(figure, (trial.gateway_ms_per_speech_s, usage.event_loop, usage.worker_cores, usage.engine)),
        *map(figure, (steps_per_s, step_ms)),
        percent(idle_share(trial)),
        *map(figure, (usage.machine, trial.latest_p99_ms)),
        "yes" if trial.held else f"no ({trial.void or trial.limit})",
    ]


def idle_share(trial: Trial) -> float | None:
    """Return the share of time in which the device was idle although streams waited for it."""
    if len(trial.metrics) < 2 or trial.usage.engine is None:
        return None
    before, after = trial.metrics
    gap_s, busy_s = (after.get(name, 0.0) - before.get(name, 0.0) for name in (_GAP, _BUSY))
    return trial.usage.engine * gap_s / busy_s if busy_s > 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--devices", action="append", required=True, help="devices of one server; repeatable")
    parser.add_argument("--start", type=float, default=500.0, help="listeners for each device in the first load")
    parser.add_argument("--loads", type=float, nargs="+", default=[], help="listeners a device, instead of a search")
    parser.add_argument("--gateways", type=int, help="for each device (default: half of its share of the processors)")
    parser.add_argument("--processes", type=int, help="generator processes for each device (default: a quarter of it)")
    parser.add_argument("--voice", help="steady: of a random checkpoint, whose text head then follows the text")
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--text-rate", type=float, default=0.0, help="tokens a second; 0: a turn's whole text at once")
    parser.add_argument("--window-s", type=float, default=8.0)
    parser.add_argument("--max-loads", type=int, default=5, help="of each server")
    parser.add_argument("--json", type=Path)
    given, flags = parser.parse_known_args()
    share = usable_cores() // max(devices.count(",") + 1 for devices in given.devices)  # processors for each device
    results = {}
    for devices in given.devices:
        num_devices = devices.count(",") + 1
        num_gateways = num_devices * (given.gateways or max(1, share // 2))
        num_clients = num_devices * (given.processes or max(1, share // 4))
        command = [f"--model={given.model}", f"--devices={devices}", f"--gateways={num_gateways}", *flags]
        with running_server(*command, timeout_s=READY_S) as server:
            wait_for_workers(server, num_devices, READY_S)
            results[devices] = measure(server, num_devices, given, num_clients)
        if given.json:
            write_json(given.json, results)
    header = ["devices", "held", "alone ms", *_COLUMNS]
    lines = [
        [devices, figure(result["held"]), figure(statistics.median(result["alone_ms"])), *row(trial)]
        for devices, result in results.items()
        for trial in sorted(result["trials"], key=lambda trial: trial.offered)
    ]
    print(table(header, lines))


if __name__ == "__main__":
    main()
