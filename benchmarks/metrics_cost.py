"""Cost of a gateway's metrics: for a single gateway, which keeps them in memory, and for several gateways, which keep
them in files that all of them read.

    python -m benchmarks.metrics_cost --gateways 1 4 16

Processor time, in a process of its own for each case: to count the packets of a patch (160 ms of speech), to set a
gauge, and to answer a scrape, when that many gateways have counted something of every kind.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

PACKETS, SCRAPES, ROUNDS = 20_000, 50, 5


def cost_us(job: Callable[[], object], times: int) -> float:
    """Return the µs of a call, in the fastest of some rounds."""

    def one_round() -> float:
        begun = time.process_time()
        for _ in range(times):
            job()
        return (time.process_time() - begun) / times * 1e6

    return min(one_round() for _ in range(ROUNDS))


def gateway(index: int | None, told: Any) -> None:
    """Update a metric of each kind; report the cost if a pipe for it is given."""
    from realtime_tts.server import metrics

    if index is not None:
        metrics.count_as(index)
    figures = metrics.Metrics()
    for number in range(20):
        figures.errors.labels(f"code_{number}").inc()
        figures.refused.labels(f"code_{number}").inc()
    for outcome in ("done", "cancelled", "failed"):
        figures.contexts.labels(outcome).inc()
    figures.ttfa.observe(0.1)
    if told is None:
        return
    engine: Any = SimpleNamespace(num_ready=1, num_restarts=0, ready=None, stats=[], totals=defaultdict(int))
    told.send(
        (
            cost_us(lambda: figures.sent_packets("opus", 8, 0.16, late=False), PACKETS),
            cost_us(lambda: figures.lateness.set(0.01), PACKETS),
            cost_us(lambda: figures.exposition(engine), SCRAPES),
        )
    )


def measure(num_gateways: int) -> tuple[float, float, float]:
    """µs of a patch's packets, a gauge and a scrape, in the last of so many gateways; of one that is alone for 1."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        if num_gateways > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        for index in range(num_gateways):
            is_last = index == num_gateways - 1
            arguments = (index if num_gateways > 1 else None, theirs if is_last else None)
            process = spawn.Process(target=gateway, args=arguments)
            process.start()
            process.join()
        os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
        result: tuple[float, float, float] = ours.recv()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, nargs="+", default=[1, 4, 16])
    print("gateways  a patch's packets  a gauge   a scrape")
    for number in parser.parse_args().gateways:
        packets_us, gauge_us, scrape_us = measure(number)
        print(f"{number:>8}  {packets_us:>14.1f} µs  {gauge_us:>4.2f} µs  {scrape_us / 1000:>5.1f} ms")


if __name__ == "__main__":
    main()
