"""One engine, in a process of its own: its name, the model, the file of the result, and `measure`'s options as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.engines import PEERS, Peer
from realtime_tts.bench.figures import Spread, percentile
from realtime_tts.bench.report import installed_version
from realtime_tts.bench.texts import turn

_WARM_UP_PATCHES = 8


@dataclasses.dataclass(slots=True)
class Stream:
    """Seconds since its text was sent."""

    arrivals_s: list[float] = dataclasses.field(default_factory=list)
    num_samples: int = 0


async def burst(peer: Peer, num_streams: int, num_patches: int, first_seed: int) -> tuple[list[Stream], float]:
    """All at once; the streams, and how long all of them took."""
    begun_s = time.perf_counter()

    async def one(seed: int) -> Stream:
        stream = Stream()
        async for num_samples in peer.speak(turn(None, seed), num_patches, seed):
            stream.arrivals_s.append(time.perf_counter() - begun_s)
            stream.num_samples += num_samples
        return stream

    streams = await asyncio.gather(*(one(first_seed + number) for number in range(num_streams)))
    return list(streams), time.perf_counter() - begun_s


async def measure(peer: Peer, model: Path, callers: Sequence[int], patches: int, runs: int) -> dict[str, Any]:
    """Return the figures of each number of callers; `patches` of a stream, `runs` after the one that warms up."""
    begun_s = time.perf_counter()
    callers = [number for number in callers if number <= peer.at_once]
    await peer.start(model, max(callers))
    ready_s = time.perf_counter() - begun_s
    rows = []
    seed = 0
    for number in callers:
        figures: list[dict[str, Any]] = []
        for run in range(runs + 1):
            is_warm = run > 0  # before that: whatever is compiled or captured when it is first needed
            num_patches = patches if is_warm else min(_WARM_UP_PATCHES, patches)
            streams, took_s = await burst(peer, number, num_patches, seed)
            seed += number
            if not is_warm:
                continue
            steps_ms = [1000 * (s.arrivals_s[-1] - s.arrivals_s[0]) / max(1, len(s.arrivals_s) - 1) for s in streams]
            figures.append(
                {
                    "first_ms": [1000 * stream.arrivals_s[0] for stream in streams],
                    "step_ms": percentile(steps_ms, 50),
                    "took_s": took_s,
                    "pieces": [len(stream.arrivals_s) for stream in streams],
                    "samples": [stream.num_samples for stream in streams],
                }
            )
        rows.append({"streams": number, "runs": figures, **_summary(figures)})
    await peer.stop()
    return {"ready_s": ready_s, "rows": rows, "versions": _versions()}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    firsts_ms = [value for run in runs for value in run["first_ms"]]
    return {
        "first_audio_ms": dataclasses.asdict(Spread.of(firsts_ms)),
        "step_ms": percentile([run["step_ms"] for run in runs], 50),
        "step_ms_of_runs": [run["step_ms"] for run in runs],
        "samples_per_s": percentile([sum(run["samples"]) / run["took_s"] for run in runs], 50),
        "pieces": percentile([count for run in runs for count in run["pieces"]], 50),
    }


def _versions() -> dict[str, str]:
    names = ("nano-vllm-voxcpm", "voxcpm", "flash-attn", "torch", "triton", "transformers")
    return {name: version for name in names if (version := installed_version(name))}


def main() -> None:
    peer, model, out, options = sys.argv[1:]
    result = asyncio.run(measure(PEERS[peer](), Path(model), **json.loads(options)))
    Path(out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
