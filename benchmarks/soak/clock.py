"""Texts that are dear to plan must not stop the clock of others: an honest listener beside four that send such texts.

    python -m benchmarks.soak.clock

A gateway with a fake worker (of the repository's tests). Four sockets send 20,000 characters twice a second, each in a
context of its own; the honest one has sentences spoken, one after the other. Phases with the four and without take
turns, so that what else the machine does meets both. Loopback only; ends by itself. Exit status 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from websockets.exceptions import ConnectionClosed

from benchmarks.soak.figures import MAX_RATIO, Verdict, judge_ratio, p95_ratio
from benchmarks.soak.process import ServerUnderTest
from realtime_tts.bench.native_stream import open_stream, speak
from realtime_tts.bench.texts import SENTENCES

NUM_HOSTILE = 4
EVERY_S = 0.5
TEXT = "5%" * 10_000
OPEN_CONTEXTS = 3  # of each hostile socket; the oldest is cancelled for the next
MAX_LATE_MS = 40.0
PHASE_S = 8.0


@dataclass
class Heard:
    """What the honest listener got in the phases of one sort."""

    first_packets_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)  # each context's latest packet, after its place in the speech


async def listen(url: str, heard: Heard, seconds: float) -> None:
    """Sentence after sentence on one socket."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    socket = await open_stream(url)
    try:
        for number, sentence in enumerate(itertools.cycle(SENTENCES)):
            if loop.time() > end:
                return
            spoken = await asyncio.wait_for(speak(socket, f"c{number}", sentence), 60)
            heard.first_packets_ms.append(spoken.first_packet_ms)
            begin_s = spoken.packets[0].arrived_s
            heard.late_ms.append(max(1000 * (packet.arrived_s - begin_s - packet.pts_s) for packet in spoken.packets))
    finally:
        await socket.close()


async def be_hostile(url: str, seconds: float, seen: Counter[str]) -> None:
    """Send the dear text twice a second; `seen`: what comes back."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    socket = await open_stream(url)

    async def read() -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                frame = await socket.recv()
                seen["audio" if isinstance(frame, bytes) else json.loads(frame)["type"]] += 1

    reading = asyncio.create_task(read())
    try:
        for number in itertools.count():
            await socket.send(json.dumps({"type": "text", "context_id": f"h{number}", "text": TEXT}))
            seen["sent"] += 1
            if number >= OPEN_CONTEXTS:
                await socket.send(json.dumps({"type": "cancel", "context_id": f"h{number - OPEN_CONTEXTS}"}))
            await asyncio.sleep(EVERY_S)
            if loop.time() > end:
                return
    finally:
        await socket.close()
        await reading


@dataclass
class Clock:
    quiet: Heard
    beside: Heard
    seen: Counter[str]

    def verdicts(self) -> list[Verdict]:
        was_late = max(self.beside.late_ms) > MAX_LATE_MS and max(self.quiet.late_ms) <= MAX_LATE_MS
        was_spoken = self.seen["context.started"] == self.seen["sent"] and self.seen["audio"] > 10 * self.seen["sent"]
        return [
            judge_ratio(p95_ratio(self.beside.first_packets_ms, self.quiet.first_packets_ms, seed=1)),
            Verdict.FAIL if was_late else Verdict.PASS,
            Verdict.PASS if was_spoken else Verdict.FAIL,
        ]

    def as_markdown(self) -> str:
        ratio = p95_ratio(self.beside.first_packets_ms, self.quiet.first_packets_ms, seed=1)
        rows = [
            ("", "alone", f"beside {NUM_HOSTILE} × {len(TEXT)} characters, {1 / EVERY_S:g} a second", "wanted"),
            ("---", "---", "---", "---"),
            ("contexts", str(len(self.quiet.late_ms)), str(len(self.beside.late_ms)), ""),
            (
                "first packet, p50 / p95 / max, ms",
                _quantiles(self.quiet.first_packets_ms),
                _quantiles(self.beside.first_packets_ms),
                f"p95 {ratio} × (≤ {MAX_RATIO:g})",
            ),
            (
                "latest packet of a context, p50 / p95 / max, ms",
                _quantiles(self.quiet.late_ms),
                _quantiles(self.beside.late_ms),
                f"≤ {MAX_LATE_MS:g}",
            ),
            (
                "of the hostile",
                "",
                ", ".join(f"{count} × {kind}" for kind, count in self.seen.most_common(5)),
                "spoken",
            ),
        ]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _quantiles(values: list[float]) -> str:
    return " / ".join(f"{np.percentile(values, percent):.0f}" for percent in (50, 95, 100))


async def measure(directory: Path, num_rounds: int) -> Clock:
    # What is wanted here is not that the four are refused.
    server = ServerUnderTest(directory, fake=True, settings={"max_late_ms": 0})
    clock = Clock(Heard(), Heard(), Counter())
    try:
        await server.start()
        await listen(server.stream_url, Heard(), 2.0)  # warm
        for _ in range(num_rounds):
            await listen(server.stream_url, clock.quiet, PHASE_S)
            hostile = [
                asyncio.create_task(be_hostile(server.stream_url, PHASE_S + 2, clock.seen)) for _ in range(NUM_HOSTILE)
            ]
            await asyncio.sleep(1.0)
            await listen(server.stream_url, clock.beside, PHASE_S)
            await asyncio.gather(*hostile)
            await asyncio.sleep(0.5)
    finally:
        server.destroy()
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help=f"phases of {PHASE_S:g} s of each sort (default 6)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as directory:
        found = asyncio.run(measure(Path(directory), given.rounds))
    print(found.as_markdown())
    sys.exit(int(Verdict.FAIL in found.verdicts()))


if __name__ == "__main__":
    main()
