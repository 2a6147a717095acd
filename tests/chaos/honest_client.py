"""An honest client beside an attack: its turns are measured alone and beside the attack, in alternating rounds.

Usage in a drive::

    with attacked_server(tmp_path) as server:
        comparison = await compare(server, my_attack)
    comparison.check()

`my_attack` is a coroutine function at the top of a module of this folder. It runs in a process of its own, so that its
work does not delay the honest client's measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import importlib
import json
import math
import os
import secrets
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from server_processes import ServerProcess
from websockets.exceptions import WebSocketException

from realtime_tts.bench.native_stream import code_of, open_stream, speak
from realtime_tts.bench.streams import Heard

MAX_TTFA_RATIO = 3.0
NOTICED_S = 0.1  # a time to first audio up to this is no harm, whatever the ratio
MAX_STALLS, MAX_STALL_S = 2, 0.1  # in a round
MAX_DISTURBED = 0.25  # of all turns
TEXT = "Here is a sentence that takes a while."
NUM_CLIENTS = 3  # honest clients at a time, each in turns of about 1.5 s
AUDIO = {"codec": "pcm_s16le", "sample_rate": 48_000}
TURN_TIMEOUT_S = 30.0
STOP_S = 60.0
# Patches of 160 ms are made within 10 ms, and sent 200 ms ahead: a longer pause of the server is a stall.
WORKER: dict[str, object] = {"patch_delay_s": 0.01, "max_streams": 16}
SETTINGS: dict[str, object] = {"max_lead_s": 0.2, "max_late_ms": 40, "voices_dir": "none"}


@dataclasses.dataclass(frozen=True)
class Site:
    """What an attack is told. `key` is the API key of the attacker, which is not the honest client's."""

    url: str
    ws_url: str
    key: str


# Runs until `end` (`time.monotonic`) and returns how often it did what it does.
Attack = Callable[[Site, float], Awaitable[int]]


@dataclasses.dataclass
class AttackedServer:
    site: Site
    honest_key: str
    process: ServerProcess


@contextlib.contextmanager
def attacked_server(
    directory: Path, *, gateways: int = 1, worker: dict[str, object] | None = None, **settings: object
) -> Iterator[AttackedServer]:
    """A server with the keys of an honest client and of an attacker; more settings and worker options as given.

    Raises:
        AssertionError: at the end, if a gateway has ended, an error was logged, or the log has a key in it.
    """
    honest, attacker = ("rtts_" + secrets.token_urlsafe(32) for _ in range(2))
    hashes = ["sha256:" + hashlib.sha256(key.encode()).hexdigest() for key in (honest, attacker)]
    log = directory / "log.txt"
    process = ServerProcess(
        log, {**WORKER, **(worker or {})}, **{**SETTINGS, "gateways": gateways, "api_key_hashes": hashes, **settings}
    )
    try:
        yield AttackedServer(Site(process.url, process.ws_url, attacker), honest, process)
        assert process.process.poll() is None, "the server has ended"
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(STOP_S) == 0
    finally:
        process.close()
    text = log.read_text()
    assert "gateway_ended" not in text
    assert honest not in text
    assert attacker not in text


@dataclasses.dataclass
class Turns:
    """Turns of the honest client, as they were heard without a pre-buffer."""

    heard: list[Heard] = dataclasses.field(default_factory=list)

    @property
    def errors(self) -> list[str]:
        return [turn.error for turn in self.heard if turn.error]

    @property
    def first_s(self) -> list[float]:
        """Time to first audio of each turn, its connecting included; infinite where no audio came."""
        return sorted(turn.first_s for turn in self.heard)

    @property
    def median_s(self) -> float:
        return statistics.median(self.first_s)

    @property
    def num_stalls(self) -> int:
        return sum(len(turn.stalls_s(0.0)) for turn in self.heard)

    @property
    def longest_stall_s(self) -> float:
        return max((stall_s for turn in self.heard for stall_s in turn.stalls_s(0.0)), default=0.0)

    @property
    def disturbed_share(self) -> float:
        """Share of the turns that were refused, or had a stall that is too long."""
        too_long = [max(turn.stalls_s(0.0), default=0.0) > MAX_STALL_S for turn in self.heard]
        return sum(bool(turn.error) or long for turn, long in zip(self.heard, too_long, strict=True)) / len(self.heard)

    @property
    def is_undisturbed(self) -> bool:
        """Every turn was served, and at most a few short stalls were heard."""
        return not self.errors and self.num_stalls <= MAX_STALLS and self.longest_stall_s <= MAX_STALL_S

    def describe(self) -> str:
        first_ms = [1000 * first_s for first_s in self.first_s]
        p95_ms = first_ms[math.ceil(0.95 * len(first_ms)) - 1]
        return (
            f"{len(self.heard)} turns; time to first audio {statistics.median(first_ms):.0f} ms (median), "
            f"{p95_ms:.0f} (p95), {first_ms[-1]:.0f} (longest); {self.num_stalls} stalls, the longest "
            f"{1000 * self.longest_stall_s:.0f} ms; errors: {', '.join(self.errors) or 'none'}"
        )


@dataclasses.dataclass
class Comparison:
    """The same client alone and beside an attack, of which `rounds` has each round. `num_attacks` is what the attack
    returned, summed over the rounds."""

    alone: Turns = dataclasses.field(default_factory=Turns)
    rounds: list[Turns] = dataclasses.field(default_factory=list)
    num_attacks: int = 0

    @property
    def beside(self) -> Turns:
        return Turns([turn for turns in self.rounds for turn in turns.heard])

    def check(self) -> None:
        """The bar for every attack. What else runs on the machine disturbs some turns more, and none less: so in the
        best round there is nothing to be noticed of an attack that does not work. One that works disturbs most turns.

        Raises:
            AssertionError: the attack did nothing, or the honest client suffered more than it may.
        """
        assert self.num_attacks > 0
        max_s = max(NOTICED_S, MAX_TTFA_RATIO * self.alone.median_s)
        assert any(turns.is_undisturbed and turns.median_s <= max_s for turns in self.rounds), self.describe()
        assert self.beside.disturbed_share <= self.alone.disturbed_share + MAX_DISTURBED, self.describe()

    def describe(self) -> str:
        return f"alone: {self.alone.describe()}\nbeside {self.num_attacks} attacks: {self.beside.describe()}"


async def compare(server: AttackedServer, attack: Attack, rounds: int = 3, round_s: float = 6.0) -> Comparison:
    """Measure in turns, so that what else runs on this machine hits both alike. Prints the result."""
    comparison = Comparison()
    await _turns_until(server, time.monotonic() + 1.0)  # what is done for the first time takes longer
    for _ in range(rounds):
        comparison.alone.heard += await _turns_until(server, time.monotonic() + round_s)
        async with _attack_in_process(attack, server.site, round_s) as count:
            comparison.rounds.append(Turns(await _turns_until(server, time.monotonic() + round_s)))
            comparison.num_attacks += await count()
    sys.stdout.write(f"\n{attack.__name__}\n{comparison.describe()}\n")
    return comparison


async def _turns_until(server: AttackedServer, end: float) -> list[Heard]:
    async def client(index: int) -> list[Heard]:
        await asyncio.sleep(0.2 * index)
        turns = []
        while time.monotonic() < end:
            turns.append(await _turn(server))
        return turns

    return [turn for turns in await asyncio.gather(*map(client, range(NUM_CLIENTS))) for turn in turns]


async def _turn(server: AttackedServer) -> Heard:
    """One turn on a connection of its own, as of a new caller."""
    spoken, begun_s = Heard(), time.monotonic()

    async def speak_once() -> None:
        async with await open_stream(server.site.ws_url, api_key=server.honest_key, audio=AUDIO) as socket:
            await speak(socket, "honest", TEXT, scheduled=begun_s, into=spoken)

    try:
        await asyncio.wait_for(speak_once(), TURN_TIMEOUT_S)
    except (OSError, WebSocketException) as error:
        spoken.error = code_of(error)
        await asyncio.sleep(0.2)  # a refused client does not come back at once
    return spoken


# ---- the attack's process ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _attack_in_process(attack: Attack, site: Site, seconds: float) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Start an attack; give a function that waits for its end and returns its count."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", "10"),  # an attacker has a machine of its own, and takes no processor from the server
        *(sys.executable, __file__, f"{attack.__module__}:{attack.__name__}"),
        *(json.dumps(dataclasses.asdict(site)), str(seconds)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None

    async def count() -> int:
        answer, _ = await asyncio.wait_for(process.communicate(), seconds + STOP_S)
        assert process.returncode == 0, "the attack itself has failed"
        return int(answer)

    try:
        assert await asyncio.wait_for(process.stdout.readline(), STOP_S), "the attack did not begin"
        yield count
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main() -> None:
    """Run one attack: its name, the site as JSON, and how long it lasts, seconds. Write a line when it begins."""
    module, _, name = sys.argv[1].partition(":")
    attack: Attack = getattr(importlib.import_module(module), name)

    async def run() -> int:
        return await attack(Site(**json.loads(sys.argv[2])), time.monotonic() + float(sys.argv[3]))

    print("begins", flush=True)  # noqa: T201
    print(asyncio.run(run()))  # noqa: T201


if __name__ == "__main__":
    main()
