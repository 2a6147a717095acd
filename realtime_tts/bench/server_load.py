"""Load on a server over WebSockets; the clients are separate processes."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.limits import Usage
from realtime_tts.bench.load_client import LATE_STEP_S, Share
from realtime_tts.bench.native_stream import Spoken, open_stream, speak
from realtime_tts.bench.streams import Bar, Heard
from realtime_tts.bench.texts import turn
from realtime_tts.bench.usage import Sample, Watched, take_sample, usage_between
from realtime_tts.contract.cores import usable_cores
from realtime_tts.errors import ConfigError, EngineError

_SPARE_CONNECTIONS = 1.3  # of those that are busy on average
_HEAD_START_S = 0.5
_TRIES = 2  # by which a turn's length is found out


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Which server, and how it is asked. watched: its processes; None: how busy they are is not known.
    num_clients: processes that listen. num_words: of a turn. start: fields of `session.start`. token_gap_s: between two
    tokens of a turn's text; 0: all of it at once."""

    url: str
    watched: Watched | None
    num_clients: int
    num_words: int
    start: dict[str, Any]
    api_key: str | None = None
    token_gap_s: float = 0.0


class ServerLoad:
    """Clients of one server; a `capacity.Driver` once `measure_turn` was called.

    Attributes:
        on_now: told several times a second how many streams of a load are `running`, have `ended`, and how many of
            those with `errors`.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._clients = _Clients(target.num_clients)
        self.account: Account | None = None  # of the last load
        self.on_now: Callable[[dict[str, int]], None] = lambda now: None
        self.turn_s = 0.0

    @property
    def pids(self) -> list[int]:
        """Ids of the client processes."""
        return self._clients.pids

    def close(self) -> None:
        self._clients.close()

    def __enter__(self) -> ServerLoad:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def measure_turn(self) -> None:
        """Find out how long a turn is, which is known afterwards as `turn_s`.

        Raises:
            ConfigError: no server answers. EngineError: it does not speak.
        """
        try:
            heard = asyncio.run(self._tries(_TRIES))
        except OSError as error:
            raise ConfigError(f"no server answers at {self._target.url}: {error}", field="url") from error
        if failed := [stream.error for stream in heard if stream.error]:
            raise EngineError(f"the server does not speak: {failed[0]}")
        self.turn_s = sum(stream.audio_s for stream in heard) / len(heard)

    async def _tries(self, num_streams: int) -> list[Spoken]:
        socket = await self._open()
        try:
            return [await speak(socket, f"try-{number}", self._turn(number)) for number in range(num_streams)]
        finally:
            await socket.close()

    def alone(self, num_streams: int) -> list[float]:
        """Request streams one after another on one connection, each cancelled at its first packet. Return the times to
        these packets, ms."""
        return asyncio.run(self._first_packets_ms(num_streams))

    async def _first_packets_ms(self, num_streams: int) -> list[float]:
        socket = await self._open()
        try:
            heard = [
                await speak(socket, f"alone-{number}", self._turn(number), cancel_after_s=0.0)
                for number in range(num_streams)
            ]
        finally:
            await socket.close()
        return [1000 * stream.first_s for stream in heard]

    def _turn(self, seed: int) -> str:
        return turn(self._target.num_words, seed)

    async def _open(self) -> ClientConnection:
        return await open_stream(self._target.url, api_key=self._target.api_key, **self._target.start)

    def open_loop(self, arrivals: Sequence[Arrival], bar: Bar | None = None, expected: float = 0.0) -> list[Heard]:
        """Run a load as `capacity.Driver` does; `account` covers the time from the first judged arrival to the last
        one."""
        target, num_clients = self._target, len(self._clients)
        busy = sum(arrival.share for arrival in arrivals) * self.turn_s / max(arrivals[-1].at_s, self.turn_s)
        judged_s = [arrival.at_s for arrival in arrivals if arrival.judged]
        window = (min(judged_s, default=0.0), max(judged_s, default=0.0))
        shares = [
            Share(
                url=target.url,
                api_key=target.api_key,
                arrivals=arrivals[number::num_clients],
                num_open=1 + round(_SPARE_CONNECTIONS * busy / num_clients),
                bar=bar,
                expected=expected / num_clients,
                num_words=target.num_words,
                turn_s=self.turn_s,
                token_gap_s=target.token_gap_s,
                start=target.start,
                window=window,
            )
            for number in range(num_clients)
        ]
        self._clients.tell([share.to_json() for share in shares])
        self._clients.hear("open")
        begins_s = time.monotonic() + _HEAD_START_S
        self._clients.tell([str(begins_s)] * num_clients)
        samples: list[Sample | None] = []
        moments = [begins_s + at_s for at_s in window]
        told = self._clients.hear("ended", moments, lambda: samples.append(self._sample()), self._note)
        samples += [self._sample() for _ in moments[len(samples) :]]  # the load was given up
        self.account = Account.of(told, usage_between(*samples))
        return [Heard(**stream) for share in told for stream in share["heard"]]

    def _sample(self) -> Sample | None:
        return None if self._target.watched is None else take_sample(self._target.watched)

    def _note(self, now: Sequence[dict[str, int]]) -> None:
        self.on_now({name: sum(one[name] for one in now) for name in now[0]})


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """Cost of a load, and whether its generator was in time. speech_per_s: seconds of speech received a second.
    late_ms: delays of everything that the generator processes had to do at a time; latest_p99_ms: of the latest
    process."""

    usage: Usage
    speech_per_s: float
    late_ms: Spread
    latest_p99_ms: float

    @classmethod
    def of(cls, told: Sequence[dict[str, Any]], usage: Usage) -> Account:
        """Make an account from the reports of the client processes and the usage of the server."""
        late_ms = [
            Counter({1000 * LATE_STEP_S * int(step): count for step, count in one["late"].items()}) for one in told
        ]
        busy = [one["busy"] for one in told]
        return cls(
            dataclasses.replace(usage, client_cores=sum(busy), busiest_client=max(busy)),
            sum(one["speech_per_s"] for one in told),
            Spread.counted(sum(late_ms, Counter())),
            max(Spread.counted(one).p99 for one in late_ms),
        )


class _Clients:
    """Client processes (`load_client`) and their reports."""

    def __init__(self, number: int) -> None:
        command = [sys.executable, "-m", "realtime_tts.bench.load_client"]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(number)
        ]
        self._said: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self._readers = [threading.Thread(target=self._read, args=(number,), daemon=True) for number in range(number)]
        for reader in self._readers:
            reader.start()

    def __len__(self) -> int:
        return len(self._processes)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def close(self) -> None:
        for process, reader in zip(self._processes, self._readers, strict=True):
            process.kill()
            reader.join()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
            process.wait()

    def _read(self, number: int) -> None:
        pipe = self._processes[number].stdout
        assert pipe is not None
        for line in pipe:
            self._said.put((number, json.loads(line)))
        self._said.put((number, {"failed": "it ended"}))

    def tell(self, lines: Sequence[str]) -> None:
        """Send one line to each.

        Raises:
            EngineError: one has ended.
        """
        try:
            for process, line in zip(self._processes, lines, strict=True):
                assert process.stdin is not None
                process.stdin.write(line + "\n")
                process.stdin.flush()
        except OSError as error:
            raise EngineError("a measuring client has ended") from error

    def hear(
        self,
        kind: str,
        moments: Sequence[float] = (),
        at_moment: Callable[[], None] = lambda: None,
        note: Callable[[Sequence[dict[str, int]]], None] = lambda now: None,
    ) -> list[Any]:
        """Return each process's next report of this kind, in their order.

        Args:
            moments: call `at_moment` at each (`time.monotonic`), if they are not through by then.
            note: called with what each says meanwhile, once all have said something.

        Raises:
            EngineError: one has failed; none is fit for another load then.
        """
        waiting = collections.deque(moments)
        answers: dict[int, Any] = {}
        now: dict[int, dict[str, int]] = {}
        while len(answers) < len(self):
            try:
                wait_s = max(0.0, waiting[0] - time.monotonic()) if waiting else None
                number, said = self._said.get(timeout=wait_s)
            except queue.Empty:
                waiting.popleft()
                at_moment()
                continue
            if "failed" in said:
                raise EngineError(f"a measuring client failed: {said['failed']}")
            if kind in said:
                answers[number] = said[kind]
            elif "now" in said:
                now[number] = said["now"]
                if len(now) == len(self):
                    note(list(now.values()))
        return [answers[number] for number in range(len(self))]


def default_clients() -> int:
    """Return a quarter of the processors, since the clients must not take the server's."""
    return max(1, min(16, usable_cores() // 4))
