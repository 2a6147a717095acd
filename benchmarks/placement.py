"""Benefit of placing contexts where their voice's prefix is cached, against least load alone; measured and simulated.

    python -m benchmarks.placement measure --voices 6 --contexts 40 --rounds 4
    python -m benchmarks.placement simulate --devices 2 --streams 200 --cost 7 0.14 0.02

`measure`: CPU workers of their own with the bundled model and voices of random latents, which cost what real ones do;
contexts arrive at random; both placements take turns, each round with voices that were not used before.

`simulate`: steps of `--cost` ms (always, for each stream, for each prefill position; a server's /metrics has its own in
`realtime_tts_engine_step_cost_seconds`), listeners that play in real time, a stream parked at three seconds' lead, the
real placement, block pool and record of held prefixes. The known load of a device is `--stale-ms` old.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import heapq
import random
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from tqdm import tqdm

from realtime_tts.contract import frames
from realtime_tts.engine.core.block_pool import BLOCK_SIZE, BlockPool, chain_hashes, prefix_root
from realtime_tts.engine.core.held_prefixes import HeldPrefixes
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.placement import Candidate, place
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec, worker_command
from realtime_tts.workers.worker_view import WorkerView

WAYS = ("least load", "prefix")
PATCH_S, LEAD_S = 0.16, 3.0
TEXT_POSITIONS = 30


@dataclasses.dataclass
class Figures:
    """Figures of contexts: computed positions, and times to first packet, ms."""

    computed: list[int] = dataclasses.field(default_factory=list)
    first_ms: list[float] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        p95 = statistics.quantiles(self.first_ms, n=20)[-1]
        return (
            f"{len(self.first_ms)} contexts, {statistics.mean(self.computed):.0f} positions each, first packet p50 "
            f"{statistics.median(self.first_ms):.1f} ms, mean {statistics.mean(self.first_ms):.1f}, p95 {p95:.1f}"
        )


# ---- measured --------------------------------------------------------------------------------------------------------


class LeastLoad(EngineClient):
    """Client whose placement can ignore which prefixes are cached where."""

    is_blind = False

    def _place(self, request: frames.Generate) -> WorkerView:
        if not self.is_blind:
            return super()._place(request)
        return min(self._able(request.adapter), key=lambda worker: (worker.num_working, len(worker.contexts)))


async def measure(given: argparse.Namespace) -> dict[str, Figures]:
    command = worker_command("starter-voice", "cpu", threads=1, max_streams=16)
    client = LeastLoad([WorkerSpec(command, name=f"worker-{n}") for n in range(given.devices)], SupervisorConfig())
    await client.start()
    while client.num_ready < given.devices:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.05)
    found = {way: Figures() for way in WAYS}
    try:
        for number in tqdm(range(given.rounds * len(WAYS)), leave=False):
            way = WAYS[number % len(WAYS)]
            client.is_blind = way == WAYS[0]
            await measure_round(client, number, given, found[way])
        for stats in client.stats:
            print(f"cost: {stats.fixed_ms:.1f} ms, {stats.stream_ms:.2f} a stream, {stats.position_ms:.3f} a position")
    finally:
        await client.close()
    return found


async def measure_round(client: EngineClient, number: int, given: argparse.Namespace, figures: Figures) -> None:
    """Run one round; both placements get the same arrivals."""
    draw, shape = random.Random(number // len(WAYS)), (given.patch_size, given.latent_dim)
    values = np.random.default_rng(number)
    voices = [f"voice_{number}_{index}" for index in range(given.voices)]
    for voice in voices:
        latents = values.standard_normal((given.reference, *shape)).astype("<f4")
        client.add_voice(frames.AddVoice(voice, given.reference, 0, *shape, payload=latents.tobytes()))

    async def one(name: str, voice: str) -> None:
        begun = time.monotonic()
        text = "hello there, how are you today?"
        stream = client.submit(frames.Generate(name, name, text, voice=voice, max_patches=6, paced=False))
        first_ms = 0.0
        async for message in stream:
            if isinstance(message, frames.Audio):
                first_ms = first_ms or 1000 * (time.monotonic() - begun)
            if isinstance(message, frames.Done):
                figures.computed.append(message.prefill_positions - message.cached_positions)
                figures.first_ms.append(first_ms)
        client.close_context(name)

    tasks = []
    for index in range(given.contexts):
        tasks.append(asyncio.create_task(one(f"c{number}-{index}", draw.choice(voices))))
        await asyncio.sleep(draw.expovariate(given.rate))
    await asyncio.gather(*tasks)
    for voice in voices:
        client.remove_voice(voice)


# ---- simulated -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Stream:
    voice: str
    arrived_s: float
    patches_left: int
    missing: int  # positions not computed yet
    blocks: tuple[int, ...]
    heard_from_s: float = 0.0
    made_s: float = 0.0

    def ahead_s(self, now: float) -> float:
        return self.made_s - (now - self.heard_from_s) if self.made_s else 0.0


class Device:
    """Simulated engine: all streams that are not parked are in the next step."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.name, self.given = name, given
        self.pool = BlockPool(given.blocks)
        self.prefixes = HeldPrefixes(self.pool)
        self.streams: list[Stream] = []
        self.waiting: list[Stream] = []
        self.held: dict[bytes, int] = {}
        self.told: tuple[float, int] = (0.0, 0)

    def add(self, voice: str, now: float, num_patches: int, hashes: list[bytes]) -> int:
        """Add a context. Return its number of positions to compute."""
        num_prefill = len(hashes) * BLOCK_SIZE + TEXT_POSITIONS
        allocation = self.pool.allocate(num_prefill + num_patches, hashes, num_prefill)
        assert allocation is not None
        missing = num_prefill - allocation.num_cached_positions
        self.prefixes.note(voice.encode(), hashes)
        self.waiting.append(Stream(voice, now, num_patches, missing, allocation.blocks))
        return missing

    def step(self, now: float, hashes_of: Callable[[str], list[bytes]], figures: Figures | None) -> float:
        """Run one step and return its end. Without work, 1 ms passes."""
        self.streams += self.waiting
        self.waiting = []
        part = [stream for stream in self.streams if stream.ahead_s(now) < LEAD_S]
        fixed_ms, stream_ms, position_ms = self.given.cost
        if not part:
            return now + 0.001
        positions = sum(stream.missing for stream in part)
        end = now + (fixed_ms + stream_ms * len(part) + position_ms * positions) / 1000
        for stream in part:
            if not stream.made_s:
                self.pool.remember(stream.blocks, hashes_of(stream.voice))
                stream.heard_from_s, stream.missing = end, 0
                if figures is not None and stream.arrived_s > self.given.seconds / 4:
                    figures.first_ms.append(1000 * (end - stream.arrived_s))
            stream.made_s += PATCH_S
            stream.patches_left -= 1
        for stream in [stream for stream in part if not stream.patches_left]:
            self.pool.release(stream.blocks)
            self.streams.remove(stream)
        if news := self.prefixes.news(end):
            self.held.update(news[0])
            for key in news[1]:
                self.held.pop(key, None)
        return end

    def candidate(self, voice: str, now: float) -> Candidate:
        if now - self.told[0] >= self.given.stale_ms / 1000:
            self.told = now, len(self.streams) + len(self.waiting)
        fixed_ms, stream_ms, position_ms = self.given.cost
        return Candidate(
            self.name,
            num_working=self.told[1],
            num_streams=int((1000 * PATCH_S - fixed_ms) / stream_ms),
            num_held=self.held.get(voice.encode(), 0),
            fixed_s=fixed_ms / 1000,
            stream_s=stream_ms / 1000,
            position_s=position_ms / 1000,
        )


def simulate(way: str, given: argparse.Namespace) -> Figures:
    draw, figures = random.Random(given.seed), Figures()
    lots = random.Random(given.seed)
    devices = [Device(f"worker-{number}", given) for number in range(given.devices)]
    chains: dict[str, list[bytes]] = {}

    def hashes_of(voice: str) -> list[bytes]:
        if voice not in chains:
            content = [f"{voice}{position}".encode() for position in range(given.reference // BLOCK_SIZE * BLOCK_SIZE)]
            chains[voice] = chain_hashes(prefix_root(voice), content)
        return chains[voice]

    events: list[tuple[float, int]] = [(0.0, number) for number in range(given.devices)]
    coming = arrivals(draw, given)
    at_s, voice, num_patches = next(coming)
    while True:
        now, number = heapq.heappop(events)
        if now > given.seconds:
            return figures
        while at_s <= now:
            offered = [device.candidate(voice, at_s) for device in devices]
            if way == WAYS[0]:
                chosen = min(offered, key=lambda candidate: (candidate.num_working, lots.random()))
            else:
                chosen = place(offered, voice.encode())
            device = next(device for device in devices if device.name == chosen.name)
            device.told = device.told[0], device.told[1] + 1
            missing = device.add(voice, at_s, num_patches, hashes_of(voice))
            if at_s > given.seconds / 4:
                figures.computed.append(missing)
            at_s, voice, num_patches = next(coming)
        heapq.heappush(events, (devices[number].step(now, hashes_of, figures), number))


def arrivals(draw: random.Random, given: argparse.Namespace) -> Iterator[tuple[float, str, int]]:
    """Return random contexts of six seconds on average; few voices are used often, many rarely."""
    weights = [1 / (rank + 1) for rank in range(given.voices)]
    names = [f"voice-{rank}" for rank in range(given.voices)]
    now, mean_patches = 0.0, 38
    while True:
        now += draw.expovariate(given.streams / (mean_patches * PATCH_S))
        yield now, draw.choices(names, weights)[0], draw.randint(10, 2 * mean_patches - 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="what", required=True)
    measured, simulated = ways.add_parser("measure"), ways.add_parser("simulate")
    for each, voices, reference in ((measured, 6, 60), (simulated, 200, 64)):
        each.add_argument("--devices", type=int, default=2)
        each.add_argument("--voices", type=int, default=voices)
        each.add_argument("--reference", type=int, default=reference, help="patches of a voice's recording")
    measured.add_argument("--contexts", type=int, default=40, help="of a round")
    measured.add_argument("--rounds", type=int, default=4)
    measured.add_argument("--rate", type=float, default=1.5, help="contexts a second")
    measured.add_argument("--patch-size", type=int, default=4, help="of the model")
    measured.add_argument("--latent-dim", type=int, default=48, help="of the model")
    simulated.add_argument("--streams", type=float, default=200.0, help="listeners at a time, on average")
    simulated.add_argument("--cost", type=float, nargs=3, default=(7.0, 0.14, 0.02), help="of a step, ms")
    simulated.add_argument("--blocks", type=int, default=8192, help="of a device's KV cache")
    simulated.add_argument("--seconds", type=float, default=60.0, help="the first quarter is not counted")
    simulated.add_argument("--stale-ms", type=float, default=10.0)
    simulated.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = asyncio.run(measure(given)) if given.what == "measure" else {way: simulate(way, given) for way in WAYS}
    for way, figures in found.items():
        print(f"{way}: {figures}")


if __name__ == "__main__":
    main()
