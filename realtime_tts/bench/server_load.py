"""A server under load, over WebSockets with Opus; the clients are processes of their own."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.limits import Usage
from realtime_tts.bench.load_client import Share
from realtime_tts.bench.native_stream import Spoken, open_stream, speak
from realtime_tts.bench.server_process import RunningServer
from realtime_tts.bench.streams import Bar, Heard
from realtime_tts.bench.texts import turn
from realtime_tts.bench.usage import take_sample, usage_between
from realtime_tts.errors import ConfigError, EngineError

_SPARE_CONNECTIONS = 1.3  # of those that are busy on average
_HEAD_START_S = 0.5
_TRIES = 2  # by which a turn's length is found out


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Which server, and how it is asked. server: its processes, if they are ours; None: how busy they are is not known.
    num_clients: processes that listen. num_words: of a turn. start: fields of `session.start`."""

    url: str
    server: RunningServer | None
    num_clients: int
    num_words: int
    start: dict[str, Any]
    api_key: str | None = None


class ServerLoad:
    """Clients of one server; a `capacity.Driver` once `measure_turn` was called."""

    def __init__(self, target: Target) -> None:
        self._target = target
        command = [sys.executable, "-m", "realtime_tts.bench.load_client"]
        self._clients = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(target.num_clients)
        ]
        self.usage = Usage()  # of the last load
        self.turn_s = 0.0

    def close(self) -> None:
        for client in self._clients:
            client.kill()
            client.communicate()

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
        """One caller again and again, who leaves off at the first packet, on one connection: until that packet, ms."""
        return asyncio.run(self._first_packets_ms(num_streams))

    async def _first_packets_ms(self, num_streams: int) -> list[float]:
        socket = await self._open()
        try:
            heard = [
                await speak(socket, f"alone-{number}", self._turn(number), cancel_at_first=True)
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
        """As `capacity.Driver`'s; `usage` is of its time from then on."""
        target, num_clients = self._target, len(self._clients)
        busy = sum(arrival.share for arrival in arrivals) * self.turn_s / max(arrivals[-1].at_s, self.turn_s)
        num_open = 1 + round(_SPARE_CONNECTIONS * busy / num_clients)
        shares = [
            Share(
                target.url,
                target.api_key,
                arrivals[number::num_clients],
                num_open,
                bar,
                expected / num_clients,
                target.num_words,
                target.start,
            )
            for number in range(num_clients)
        ]
        self._tell([share.to_json() for share in shares])
        self._hear()  # all connections are open
        pids = [client.pid for client in self._clients]
        before = take_sample(target.server, pids) if target.server is not None else None
        begins_s = time.monotonic() + _HEAD_START_S
        self._tell([str(begins_s)] * num_clients)
        heard = [Heard(**stream) for share in self._hear() for stream in share]
        after = take_sample(target.server, pids) if target.server is not None else None
        self.usage = usage_between(before, after)
        return heard

    def _tell(self, lines: Sequence[str]) -> None:
        for client, line in zip(self._clients, lines, strict=True):
            assert client.stdin is not None
            client.stdin.write(line + "\n")
            client.stdin.flush()

    def _hear(self) -> list[Any]:
        """What each client says next.

        Raises:
            EngineError: one has failed; none is fit for another load then.
        """
        answers = []
        for client in self._clients:
            assert client.stdout is not None
            line = client.stdout.readline()
            answers.append(json.loads(line) if line else {"failed": "it ended"})
        for answer in answers:
            if isinstance(answer, dict):
                raise EngineError(f"a measuring client failed: {answer['failed']}")
        return answers


def default_clients() -> int:
    """A quarter of the processors, for the clients must not take the server's."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(16, num_cores // 4))
