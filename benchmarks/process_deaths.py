"""Effect on listeners when a process of their host is killed (a worker, or one of several gateways), and when a whole
host dies, one of two behind the shipped front.

    python -m benchmarks.process_deaths --gateways 4 --workers 2 --listeners 24 --rounds 3

A host with workers that have no model; each listener is a session of the Python client with a long text, heard in
real time. After all have received audio for two seconds, a gateway is killed (SIGKILL), and likewise a worker. The
report has, for the affected listeners, the time until the first packet of a new session or until the error, and the
number of repeated words; for all others, the number of failures and lost sessions, and the longest wait for a packet;
for all, the number that received the text as written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import realtime_tts_client as speech
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from front_harness import ADDRESSES, Fleet
from server_processes import ServerProcess

TEXT = "one two three four five six seven eight nine ten. eleven twelve thirteen fourteen fifteen sixteen. "
PCM = speech.AudioFormat("pcm_s16le", sample_rate=16000)
HEARD_S, WATCHED_S = 2.0, 4.0
PATIENT_S = 60.0

Tasks = list[asyncio.Task[None]]


@dataclasses.dataclass
class Listener:
    """One session with one context; arrivals and the end by `time.monotonic`."""

    session: speech.Session
    session_id: str | None = None
    has_begun: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    arrivals: list[float] = dataclasses.field(default_factory=list)
    words: list[str] = dataclasses.field(default_factory=list)
    moved_at: float | None = None  # the first packet of another session
    failed_at: float | None = None
    error: speech.RealtimeTTSError | None = None

    async def listen(self, text: str) -> None:
        self.session_id = self.session.id
        try:
            async for packet in self.session.speak(text, params={"seed": 1}):
                self.has_begun.set()
                self.arrivals.append(time.monotonic())
                if self.moved_at is None and self.session.id != self.session_id:
                    self.moved_at = self.arrivals[-1]
                self.words += [word.text for word in packet.words]
        except speech.RealtimeTTSError as error:
            self.failed_at, self.error = time.monotonic(), error

    def wait_after(self, moment: float) -> float:
        """Return the longest time without a packet from a moment on."""
        times = [moment, *(at for at in self.arrivals if at > moment)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    @property
    def num_twice(self) -> int:
        return sum(word == after for word, after in itertools.pairwise(self.words))

    def is_as_written(self, text: str) -> bool:
        """Return whether the words are those of the text, ignoring repeated words."""
        return [word for word, _ in itertools.groupby(self.words)] == text.split()


@contextlib.asynccontextmanager
async def listening(
    url: str, number: int, text: str, api_key: str | None = None
) -> AsyncIterator[tuple[list[Listener], Tasks]]:
    """Open listeners that all have received audio for a while. Yield them with their tasks."""
    async with contextlib.AsyncExitStack() as stack:
        listeners = [
            Listener(
                await stack.enter_async_context(
                    speech.connect(url, audio=PCM, playback="realtime", api_key=api_key, open_timeout_s=PATIENT_S)
                )
            )
            for _ in range(number)
        ]
        tasks = [asyncio.create_task(listener.listen(text)) for listener in listeners]
        for listener in listeners:
            await asyncio.wait_for(listener.has_begun.wait(), PATIENT_S)
        await asyncio.sleep(HEARD_S)
        yield listeners, tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def kill_worker(server: ServerProcess, args: argparse.Namespace) -> str:
    text = TEXT * 30
    async with listening(server.url, args.listeners, text) as (listeners, _):
        killed_at = time.monotonic()
        os.kill(server.workers[0], signal.SIGKILL)
        await asyncio.sleep(WATCHED_S)
        lost = [each for each in listeners if each.failed_at is not None]
        others = [each for each in listeners if each.failed_at is None]
        told_s = sorted((each.failed_at or 0.0) - killed_at for each in lost)
        kinds = {(each.error.code, each.error.retryable) for each in lost if each.error is not None}
        waits = max((each.wait_after(killed_at) for each in others), default=0.0)
    return (
        f"worker killed: {len(lost)} of {len(listeners)} contexts failed, {kinds}, told after {in_ms(told_s)}; "
        f"the others' longest wait for a packet {in_ms([waits])}"
    )


async def kill_gateway(server: ServerProcess, args: argparse.Namespace) -> str:
    text = TEXT * 8
    async with listening(server.url, args.listeners, text) as (listeners, tasks):
        concerned = [each for each in listeners if (each.session_id or "").startswith("s0_")]
        killed_at = time.monotonic()
        os.kill(server.gateways[0], signal.SIGKILL)
        await asyncio.wait(tasks, timeout=PATIENT_S)
    return "gateway killed: " + told(listeners, concerned, killed_at, text)


async def kill_host(fleet: Fleet, args: argparse.Namespace) -> str:
    text = TEXT * 8
    victim, other = (fleet.hosts[address] for address in ADDRESSES)
    async with listening(f"http://127.0.0.1:{fleet.port}", args.listeners, text, fleet.key) as (listeners, tasks):
        killed_at = time.monotonic()
        victim.process.kill()
        await asyncio.wait(tasks, timeout=PATIENT_S)
        concerned = [each for each in listeners if each.moved_at is not None]
    assert other.process.poll() is None
    return "host killed: " + told(listeners, concerned, killed_at, text)


def told(listeners: list[Listener], concerned: list[Listener], killed_at: float, text: str) -> str:
    others = [each for each in listeners if each not in concerned]
    again = sorted((each.moved_at or math.inf) - killed_at for each in concerned)
    waits = max(each.wait_after(killed_at) for each in others)
    moved = sum(each.moved_at is not None for each in others)
    as_written = sum(each.is_as_written(text) for each in listeners)
    return (
        f"{len(concerned)} of {len(listeners)} sessions, next packet after {in_ms(again)}, words twice "
        f"{max(each.num_twice for each in concerned)} at most; the others: sessions lost {moved}, words twice "
        f"{max(each.num_twice for each in others)}, longest wait for a packet {in_ms([waits])}; "
        f"as written {as_written} of {len(listeners)}"
    )


def in_ms(seconds: list[float]) -> str:
    """The first to the last."""
    first, last = (f"{1000 * value:.0f}" for value in (seconds[0], seconds[-1]))
    return f"{first} ms" if first == last else f"{first} to {last} ms"


async def until_whole(server: ServerProcess, num_workers: int) -> None:
    """Wait until all workers are ready again."""
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=PATIENT_S) as http:
        for _ in range(round(5 * PATIENT_S)):
            if f"realtime_tts_engine_workers_ready {num_workers}.0" in (await http.get("/metrics")).text:
                return
            await asyncio.sleep(0.2)


async def measure(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for number in tqdm(range(args.rounds), disable=None):
            server = ServerProcess(
                Path(directory) / f"log{number}.txt",
                worker={"patch_delay_s": 0.01, "text_lag_ms": 100, "num_workers": args.workers, "max_streams": 256},
                gateways=args.gateways,
                max_late_ms=0,
                voices_dir="none",
                max_sessions=10_000,
            )
            try:
                tqdm.write(await kill_gateway(server, args))
                await until_whole(server, args.workers)
                tqdm.write(await kill_worker(server, args))
                server.process.send_signal(signal.SIGTERM)
                server.process.wait(PATIENT_S)
            finally:
                server.close()
            fleet = Fleet(Path(tempfile.mkdtemp(dir=directory)), 10_000)
            try:
                tqdm.write(await kill_host(fleet, args))
            finally:
                fleet.close()
    tqdm.write(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--listeners", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
