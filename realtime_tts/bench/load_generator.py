"""One process of a load: a share of the arrivals, each on a connection that is already open."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.protocol import State

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.native_stream import code_of, open_stream, speak
from realtime_tts.bench.streams import GAVE_UP, Heard
from realtime_tts.bench.texts import turn
from realtime_tts.contract.watch import end_tasks

_OPENING_AT_ONCE = 16
_LOOK_S = 0.25
_PROBE_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Which server, and how it is asked. pids: its processes; without them it is not known how busy they are.
    num_clients: processes that listen. num_words: of a turn. start: fields of `session.start`. token_gap_s: between two
    tokens of a turn's text; 0: all of it at once."""

    url: str
    pids: Sequence[int]
    num_clients: int
    num_words: int
    start: Mapping[str, object]
    api_key: str | None = None
    token_gap_s: float = 0.0

    async def open(self) -> ClientConnection:
        """Connect and start a session."""
        return await open_stream(self.url, api_key=self.api_key, **self.start)


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """One process's share of a load. num_open: connections to open before the load begins. turn_s: audio of a whole
    turn. lasts_s: least duration of the load; deadline_s: at which it is given up, both since it began."""

    target: Target
    arrivals: Sequence[Arrival]
    num_open: int
    turn_s: float
    lasts_s: float
    deadline_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class ShareResult:
    """Result of a share. late_ms: delay of everything that the process had to do at a time. busy: the share of a
    processor that it took."""

    heard: list[Heard]
    late_ms: list[float]
    busy: float


def run_share(pipe: Connection, share: Share) -> None:
    """Run one share in this process.

    Sends a first count when the connections are open, receives the start of the load (`time.monotonic`, which all
    processes of a machine share), then sends counts of `running` and `ended` streams and of their `errors`, and at last
    the `ShareResult`. After a failure it sends the reason.
    """
    try:
        asyncio.run(_Generator(pipe, share).run())
    except Exception as error:
        pipe.send(repr(error))


class _Generator:
    def __init__(self, pipe: Connection, share: Share) -> None:
        self._pipe = pipe
        self._share = share
        self._begins_s = 0.0
        self._idle: list[ClientConnection] = []
        self._running: dict[int, Heard] = {}
        self._counts: Counter[str] = Counter()
        self._late_ms: list[float] = []

    async def run(self) -> None:
        await self._open_all()
        self._pipe.send(self._counts)
        self._begins_s = float(await asyncio.to_thread(self._pipe.recv))
        arrivals = self._share.arrivals
        heard = [Heard(arrival.at_s, judged=arrival.judged) for arrival in arrivals]
        spent_s = time.process_time()
        probe = asyncio.create_task(self._probe())
        streams = [asyncio.create_task(self._stream(*one)) for one in zip(arrivals, heard, strict=True)]
        await self._until_over([task for task, arrival in zip(streams, arrivals, strict=True) if arrival.judged])
        busy = (time.process_time() - spent_s) / max(1e-9, time.monotonic() - self._begins_s)
        await end_tasks(*streams, probe)
        await asyncio.gather(*(socket.close() for socket in self._idle))
        for stream in heard:
            if not stream.terminal and not stream.error:
                stream.error = GAVE_UP
        self._pipe.send(ShareResult(heard, self._late_ms, busy))

    async def _until_over(self, judged: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the last judged stream has begun and all of them have ended, or until the deadline."""
        now_s = 0.0
        while now_s < self._share.deadline_s and (
            now_s < self._share.lasts_s or not all(map(asyncio.Task.done, judged))
        ):
            await asyncio.sleep(_LOOK_S)
            now_s = time.monotonic() - self._begins_s
            self._counts["running"] = len(self._running)
            self._pipe.send(self._counts)

    async def _probe(self) -> None:
        """Measure how late this process acts on a timer; it reads arrived data just as late."""
        while True:
            due_s = time.monotonic() + _PROBE_S
            await asyncio.sleep(_PROBE_S)
            self._note_late(time.monotonic() - due_s)

    def _note_late(self, late_s: float) -> None:
        self._late_ms.append(max(0.0, 1000 * late_s))

    async def _open_all(self) -> None:
        """Open the wanted number of connections, or as many as the server admits; streams open further ones when they
        need them."""
        while (wanted := self._share.num_open - len(self._idle)) > 0:
            some = min(wanted, _OPENING_AT_ONCE)
            opened = await asyncio.gather(*(self._share.target.open() for _ in range(some)), return_exceptions=True)
            for one in opened:
                if isinstance(one, ClientConnection):
                    self._idle.append(one)
                elif not isinstance(one, InvalidStatus):
                    raise one
            if any(isinstance(one, InvalidStatus) for one in opened):
                return

    async def _free_socket(self) -> ClientConnection:
        """Return an idle connection. Without one, open one; the stream then waits longer."""
        while self._idle:
            if (socket := self._idle.pop()).state is State.OPEN:
                return socket
        return await self._share.target.open()

    async def _stream(self, arrival: Arrival, heard: Heard) -> None:
        share = self._share
        due_s = self._begins_s + arrival.at_s
        await asyncio.sleep(due_s - time.monotonic())
        self._running[arrival.number] = heard
        socket = None
        try:
            socket = await self._free_socket()
            await speak(
                socket,
                f"turn-{arrival.number}",
                turn(max(1, round(arrival.share * share.target.num_words)), arrival.number),
                scheduled=due_s,
                token_gap_s=share.target.token_gap_s,
                cancel_after_s=None if arrival.heard is None else arrival.heard * arrival.share * share.turn_s,
                into=heard,
                note_late=self._note_late,
            )
            self._idle.append(socket)
        except asyncio.CancelledError:
            if socket is not None:
                self._idle.append(socket)  # to be closed as it should be: then its session ends at once
            raise
        except (OSError, WebSocketException, EOFError) as error:
            heard.error = code_of(error)
            heard.ended_s = time.monotonic() - due_s
        finally:
            del self._running[arrival.number]
        self._counts["ended"] += 1
        self._counts["errors"] += bool(heard.error)
