"""Common parts of the benchmarks that compare the time to first audio of several interfaces with the native one."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence

from realtime_tts.bench.report import table
from realtime_tts.bench.server_process import running_server

Times = Mapping[str, Sequence[float]]  # milliseconds of every round, by way; of all ways in the same order


def measured(description: str | None, measure: Callable[[str, int], Awaitable[Times]]) -> Times:
    """Return the result of `measure` for the server address and number of rounds on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--url", help="of a server that runs; without one, the bundled voice is started")
    options = parser.parse_args()

    async def run(url: str) -> Times:
        return await measure(url, options.rounds)

    if options.url:
        return asyncio.run(run(options.url))
    with running_server() as server:
        return asyncio.run(run(server.url))


def differences(times: Times, reference: str) -> str:
    """Return a table: each interface's median, and its difference to the reference in the same round."""
    lines = []
    for way, values in times.items():
        apart = sorted(value - other for value, other in zip(values, times[reference], strict=True))
        worst = apart[int(0.9 * (len(apart) - 1))]
        lines.append([way, *(f"{ms:.1f}" for ms in (statistics.median(values), statistics.median(apart), worst))])
    return table(["first audio", "median ms", "difference to native, ms: median", "worst tenth"], lines)
