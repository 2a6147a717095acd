"""Effect of texts that are expensive to plan: an honest listener beside four clients that send such texts.

    python -m benchmarks.soak.clock

A gateway with a fake worker (of the repository's tests). Four sockets with an API key of theirs send 20,000 characters
twice a second, each time in a new context; the honest one, with another key, has sentences spoken, one after the other.
Phases take turns, so that what else the machine does meets all: alone, beside four that send ordinary text (the price
of their speech), and beside four with the dear one. Loopback only; ends by itself. Exit status 1 if a bar was missed.
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
from realtime_tts.server.admission.auth import create_key

NUM_HOSTILE = 4
EVERY_S = 0.5
TEXT = "5%" * 10_000
ORDINARY = ("We called the office on Monday and asked whether our order could be shipped. " * 250)[:20_000]
OPEN_CONTEXTS = 3  # of each hostile socket; the oldest is cancelled for the next
MAX_LATE_MS = 40.0
PHASE_S = 8.0


@dataclass
class Heard:
    """Results of the honest listener in the phases of one sort."""

    first_packets_ms: list[float] = field(default_factory=list)
    num_refused: int = 0
    late_ms: list[float] = field(default_factory=list)  # each context's latest packet, after its place in the speech


async def listen(url: str, key: str, heard: Heard, seconds: float) -> None:
    """Sentence after sentence on one socket."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    socket = await open_stream(url, api_key=key)
    try:
        for number, sentence in enumerate(itertools.cycle(SENTENCES)):
            if loop.time() > end:
                return
            spoken = await asyncio.wait_for(speak(socket, f"c{number}", sentence), 60)
            if spoken.error == "overloaded":
                heard.num_refused += 1
                await asyncio.sleep(1.0)
                continue
            begin_s = spoken.chunks[0][0]
            heard.first_packets_ms.append(1000 * begin_s)
            heard.late_ms.append(max(1000 * (arrived_s - begin_s - pts_s) for arrived_s, pts_s in spoken.chunks))
    finally:
        await socket.close()


async def be_hostile(url: str, key: str, text: str, seconds: float, seen: Counter[str]) -> None:
    """Send the dear text twice a second; `seen`: what comes back."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    socket = await open_stream(url, api_key=key)

    async def read() -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                frame = await socket.recv()
                seen["audio" if isinstance(frame, bytes) else json.loads(frame)["type"]] += 1

    reading = asyncio.create_task(read())
    try:
        for number in itertools.count():
            await socket.send(json.dumps({"type": "text", "context_id": f"h{number}", "text": text}))
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
    ordinary: Heard
    beside: Heard
    seen: Counter[str]  # by the four with the dear text

    def verdicts(self) -> list[Verdict]:
        was_late = max(self.beside.late_ms) > MAX_LATE_MS
        num_started = self.seen["context.started"]  # the others were refused with `overloaded`
        was_spoken = num_started + self.seen["error"] >= self.seen["sent"] and self.seen["audio"] > 10 * num_started > 0
        return [
            judge_ratio(p95_ratio(self.beside.first_packets_ms, self.ordinary.first_packets_ms, seed=1)),
            Verdict.FAIL if was_late else Verdict.PASS,
            Verdict.PASS if was_spoken else Verdict.FAIL,
        ]

    def as_markdown(self) -> str:
        def against(other: Heard) -> str:
            return f"{p95_ratio(self.beside.first_packets_ms, other.first_packets_ms, seed=1)} ×"

        heard = (self.quiet, self.ordinary, self.beside)
        rows = [
            ("", "alone", f"beside {NUM_HOSTILE} with ordinary text", "beside as many with the dear one", "wanted"),
            ("---", "---", "---", "---", "---"),
            ("contexts spoken, refused", *(f"{len(one.late_ms)}, {one.num_refused}" for one in heard), ""),
            (
                "first packet, p50 / p95 / max, ms",
                *(_quantiles(one.first_packets_ms) for one in heard),
                f"p95 ≤ {MAX_RATIO:g} × beside ordinary text",
            ),
            ("p95 of the last column against it", against(self.quiet), against(self.ordinary), "", ""),
            ("latest packet, p50 / p95 / max, ms", *(_quantiles(one.late_ms) for one in heard), f"≤ {MAX_LATE_MS:g}"),
            (
                "of the four",
                "",
                "",
                ", ".join(f"{count} × {kind}" for kind, count in self.seen.most_common(5)),
                "spoken",
            ),
        ]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _quantiles(values: list[float]) -> str:
    return " / ".join(f"{np.percentile(values, percent):.0f}" for percent in (50, 95, 100))


async def measure(directory: Path, num_rounds: int) -> Clock:
    (mine, my_hash), (theirs, their_hash) = create_key(), create_key()
    server = ServerUnderTest(directory, fake=True, settings={"api_key_hashes": [my_hash, their_hash]})
    clock = Clock(Heard(), Heard(), Heard(), Counter())
    try:
        await server.start()
        await listen(server.stream_url, mine, Heard(), 2.0)  # warm
        for _ in range(num_rounds):
            await listen(server.stream_url, mine, clock.quiet, PHASE_S)
            for text, heard, seen in ((ORDINARY, clock.ordinary, Counter[str]()), (TEXT, clock.beside, clock.seen)):
                hostile = [
                    asyncio.create_task(be_hostile(server.stream_url, theirs, text, PHASE_S + 2, seen))
                    for _ in range(NUM_HOSTILE)
                ]
                await asyncio.sleep(1.0)
                await listen(server.stream_url, mine, heard, PHASE_S)
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
