"""Load on a server over WebSockets; the streams run in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from multiprocessing.connection import Connection, wait

from websockets.exceptions import WebSocketException

from realtime_tts.bench.arrivals import Arrival, OpenLoad
from realtime_tts.bench.load_generator import Share, ShareResult, Target, run_share
from realtime_tts.bench.load_result import LoadResult, load_result
from realtime_tts.bench.native_stream import code_of, speak
from realtime_tts.bench.streams import Heard
from realtime_tts.bench.texts import turn
from realtime_tts.bench.usage import Sample, Usage, get_text, take_sample, usage_between
from realtime_tts.contract.cores import usable_cores
from realtime_tts.errors import ConfigError, EngineError

_SPARE_CONNECTIONS = 1.3  # of those that are busy on average
_HEAD_START_S = 0.5
_TRIES = 2  # by which a turn's length is found out
_NUM_ALONE = 20


def describe_server(target: Target) -> dict[str, object]:
    """Return the description of the server from `/v1/models`, for the record.

    Raises:
        ConfigError: no server answers, or it is another program.
    """
    try:
        model = json.loads(get_text(target.url, "/v1/models", target.api_key))["data"][0]
        about = {name: model[name] for name in ("device", "dtype", "attention_backend", "default_steps", "default_cfg")}
        names = {"model": model["id"], "device_name": model["device"]}
    except OSError as error:
        raise ConfigError(f"no server answers at {target.url}: {error}", field="url") from error
    except (HTTPException, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"no realtime-tts answers at {target.url}", field="url") from error
    return {**names, **about, "session": target.start, "watched": bool(target.pids)}


class ServerLoad:
    """Driver of loads on one server. Call `measure_turn` before `open_loop`.

    Attributes:
        turn_s: audio of a turn; set by `measure_turn`. usage, late_ms: of the last load, the delays of each of its
        generator processes. samples: of the server, at its first judged arrival and the last one. on_now: called
        several times a second with how many streams of a load are `running`, have `ended`, and how many of those with
        `errors`.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.usage = Usage()
        self.late_ms: list[list[float]] = []
        self.samples: list[Sample | None] = []
        self.on_now: Callable[[Counter[str]], None] = lambda now: None
        self.turn_s = 0.0

    def measure_turn(self) -> None:
        """Find out how long a turn is, which is known afterwards as `turn_s`.

        Raises:
            ConfigError: no server answers, or it refuses the session. EngineError: it does not speak.
        """
        try:
            heard = self._one_by_one(_TRIES)
        except OSError as error:
            raise ConfigError(f"no server answers at {self._target.url}: {error}", field="url") from error
        if failed := [stream.error for stream in heard if stream.error]:
            raise EngineError(f"the server does not speak: {failed[0]}")
        self.turn_s = sum(stream.audio_s for stream in heard) / len(heard)
        if not self.turn_s:
            raise EngineError("the server makes no audio of the bench's texts, which are English")

    def alone(self, num_streams: int = _NUM_ALONE) -> list[float]:
        """Request streams one after another on one connection, each cancelled at its first packet. Return the times to
        these packets, ms."""
        return [1000 * stream.first_s for stream in self._one_by_one(num_streams, cancel_after_s=0.0)]

    def _one_by_one(self, num_streams: int, cancel_after_s: float | None = None) -> list[Heard]:
        async def run() -> list[Heard]:
            texts = [turn(self._target.num_words, seed) for seed in range(num_streams)]
            async with await self._target.open() as socket:
                return [
                    await speak(socket, f"c{n}", text, cancel_after_s=cancel_after_s) for n, text in enumerate(texts)
                ]

        try:
            return asyncio.run(run())
        except WebSocketException as error:
            raise EngineError(f"the server does not speak: {code_of(error)}") from error

    def run(self, load: OpenLoad, seed: int = 0, deadline_s: float = math.inf) -> LoadResult:
        """Run a load, as `open_loop`."""
        return load_result(self.open_loop(load.arrivals(seed), deadline_s), load, self.usage, self.late_ms)

    def open_loop(self, arrivals: Sequence[Arrival], deadline_s: float = math.inf) -> list[Heard]:
        """Run arrivals in real time, independent of how streams are served; `usage` covers the time from the
        first judged arrival to the last one.

        Args:
            deadline_s: give up at this time since the load began; streams without an end have the error `GAVE_UP` then.

        Raises:
            EngineError: a generator process failed.
        """
        target = self._target
        last_s = max((arrival.at_s for arrival in arrivals), default=0.0)
        busy = sum(arrival.share for arrival in arrivals) * self.turn_s / max(last_s, self.turn_s)
        judged_s = [arrival.at_s for arrival in arrivals if arrival.judged]
        window = (min(judged_s, default=0.0), max(judged_s, default=0.0))
        num_open = 1 + round(_SPARE_CONNECTIONS * busy / target.num_clients)
        parts = [arrivals[number :: target.num_clients] for number in range(target.num_clients)]
        shares = [Share(target, part, num_open, self.turn_s, window[1], deadline_s) for part in parts]
        with self._generators(shares) as pipes:
            for pipe in pipes:
                _receive(pipe)
            begins_s = time.monotonic() + _HEAD_START_S
            for pipe in pipes:
                pipe.send(begins_s)
            results, usage = self._collect(pipes, [begins_s + at_s for at_s in window])
        busy_cores = [result.busy for result in results]
        self.usage = dataclasses.replace(usage, client_cores=sum(busy_cores), busiest_client=max(busy_cores))
        self.late_ms = [result.late_ms for result in results]
        return [stream for result in results for stream in result.heard]

    @contextlib.contextmanager
    def _generators(self, shares: Sequence[Share]) -> Iterator[list[Connection]]:
        """Start a process for each share, yield the connections to them, and end them."""
        context = multiprocessing.get_context("spawn")
        with contextlib.ExitStack() as stack:
            pipes = []
            for share in shares:
                here, there = context.Pipe()
                pipes.append(stack.enter_context(here))
                with there:
                    process = context.Process(target=run_share, args=(there, share), daemon=True)
                    process.start()
                for end in (process.close, process.join, process.kill):
                    stack.callback(end)
            yield pipes

    def _collect(self, pipes: Sequence[Connection], moments: Sequence[float]) -> tuple[list[ShareResult], Usage]:
        """Return the results of all processes, and the server's usage between two moments (`time.monotonic`)."""
        samples = self.samples = []
        counts: dict[Connection, Counter[str]] = {}
        results: dict[Connection, ShareResult] = {}
        while len(results) < len(pipes):
            timeout_s = max(0.0, moments[len(samples)] - time.monotonic()) if len(samples) < len(moments) else None
            if timeout_s == 0.0:
                samples.append(self._sample())
            for pipe in wait([pipe for pipe in pipes if pipe not in results], timeout_s):
                assert isinstance(pipe, Connection)
                report = _receive(pipe)
                if isinstance(report, ShareResult):
                    results[pipe] = report
                else:
                    counts[pipe] = report
                    self.on_now(sum(counts.values(), Counter()))
        samples += [self._sample() for _ in moments[len(samples) :]]  # the load was given up
        return [results[pipe] for pipe in pipes], usage_between(*samples)

    def _sample(self) -> Sample | None:
        target = self._target
        return take_sample(target.pids, target.url, target.api_key) if target.pids else None


def _receive(pipe: Connection) -> Counter[str] | ShareResult:
    """Return the next report of a generator process. Raises `EngineError` if it failed."""
    try:
        report: Counter[str] | ShareResult | str = pipe.recv()
    except (EOFError, OSError):
        report = "it ended"
    if isinstance(report, str):
        raise EngineError(f"a load generator failed: {report}")
    return report


def default_clients() -> int:
    """Return a quarter of the processors, since the clients must not take the server's."""
    return max(1, min(16, usable_cores() // 4))
