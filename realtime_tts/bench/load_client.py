"""One of the client processes of a load: a share of the arrivals, each on a connection that is already open."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.protocol import State

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.native_stream import Spoken, code_of, open_stream, speak
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard, Watch
from realtime_tts.bench.texts import turn

LATE_STEP_S = 1e-4  # to which lateness is counted
_OPENING_AT_ONCE = 16
_LOOK_S = 0.25
_PROBE_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """One process's share. num_open: connections to open before the load begins. expected: judged streams of this
    share, on average. num_words: of a whole turn, which is turn_s of audio. token_gap_s: as `speak`'s. start: fields of
    `session.start`. window: in which speech is counted, seconds since the load began."""

    url: str
    api_key: str | None
    arrivals: Sequence[Arrival]
    num_open: int
    bar: Bar | None
    expected: float
    num_words: int
    turn_s: float
    token_gap_s: float
    start: dict[str, Any]
    window: tuple[float, float]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Share:
        raw = json.loads(line)
        raw["arrivals"] = [Arrival(**arrival) for arrival in raw["arrivals"]]
        raw["window"] = tuple(raw["window"])
        return cls(**{**raw, "bar": None if raw["bar"] is None else Bar(**raw["bar"])})


def main() -> None:
    """The life of one process, a line of JSON at a time: a `Share` comes in, {"open": …} goes out when its connections
    are open, the moment at which the load begins comes in (`time.monotonic`, which all processes of a machine share).
    Then {"now": {…}} goes out again and again, at last {"ended": {…}}, and so on until no more comes in. In place of
    what should go out there may be {"failed": why}.

    ended: `heard`, a list of `Heard`s; `speech_per_s`, received in the window; `late`, how often this process did what
    was due so many `LATE_STEP_S` too late; `busy`, which share of a processor it took in the window.
    """
    for line in sys.stdin:
        _take(line)


def _take(line: str) -> None:
    try:
        asyncio.run(_Client(Share.from_json(line)).run())
    except Exception as error:
        _say("failed", repr(error))


def _say(kind: str, told: object) -> None:
    sys.stdout.write(json.dumps({kind: told}) + "\n")
    sys.stdout.flush()


class _Client:
    def __init__(self, share: Share) -> None:
        self._share = share
        self._begins_s = 0.0
        self._idle: list[ClientConnection] = []
        self._running: dict[int, Spoken] = {}
        self._watch = Watch(share.bar, share.expected) if share.bar is not None else None
        self._num_judged = sum(arrival.judged for arrival in share.arrivals)
        self._num_ended = 0
        self._errors: Counter[str] = Counter()
        self._late: Counter[int] = Counter()
        self._speech_s = 0.0  # of streams that have ended
        self._at_window: list[tuple[float, float, float]] = []  # as `_so_far`, when it opened and closed

    async def run(self) -> None:
        await self._open_all()
        _say("open", len(self._idle))
        self._begins_s = float(await asyncio.to_thread(sys.stdin.readline))
        heard = [Spoken(arrival.at_s, judged=arrival.judged) for arrival in self._share.arrivals]
        beside = [asyncio.create_task(self._probe()), asyncio.create_task(self._watch_window())]
        tasks = [
            asyncio.create_task(self._stream(arrival, spoken))
            for arrival, spoken in zip(self._share.arrivals, heard, strict=True)
        ]
        await self._until_over()
        for task in (*tasks, *beside):
            task.cancel()
        await asyncio.gather(*tasks, *beside, return_exceptions=True)
        await asyncio.gather(*(socket.close() for socket in self._idle))
        for spoken in heard:
            if not spoken.terminal and not spoken.error:
                spoken.error = GAVE_UP
        _say("ended", self._ended(heard))

    def _ended(self, heard: Sequence[Spoken]) -> dict[str, Any]:
        # Plain `Heard`s: what was said at the end of each context need not travel.
        names = [field.name for field in dataclasses.fields(Heard)]
        opened, closed = [*self._at_window, self._so_far(), self._so_far()][:2]
        time_s, speech_s, busy_s = (max(late - early, 1e-9) for early, late in zip(opened, closed, strict=True))
        return {
            "heard": [{name: getattr(spoken, name) for name in names} for spoken in heard],
            "speech_per_s": speech_s / time_s,
            "late": dict(self._late),
            "busy": busy_s / time_s,
        }

    async def _until_over(self) -> None:
        """Wait until the window is over and all judged streams have ended, or the load cannot hold."""
        now_s = time.monotonic() - self._begins_s
        while self._num_judged or now_s < self._share.window[1]:
            await asyncio.sleep(_LOOK_S)
            now_s = time.monotonic() - self._begins_s
            _say("now", {"running": len(self._running), "ended": self._num_ended, "errors": self._errors.total()})
            if self._watch is not None and self._watch.is_lost(self._running.values(), now_s):
                return

    async def _watch_window(self) -> None:
        for at_s in self._share.window:
            await asyncio.sleep(self._begins_s + at_s - time.monotonic())
            self._at_window.append(self._so_far())

    def _so_far(self) -> tuple[float, float, float]:
        """Return the time, the speech received and the processor time used."""
        running_s = sum(stream.position_s for stream in self._running.values())
        return time.monotonic(), self._speech_s + running_s, time.process_time()

    async def _probe(self) -> None:
        """Measure how late this process acts on a timer; it reads arrived data just as late."""
        while True:
            due_s = time.monotonic() + _PROBE_S
            await asyncio.sleep(_PROBE_S)
            self._note_late(time.monotonic() - due_s)

    def _note_late(self, late_s: float) -> None:
        self._late[max(0, round(late_s / LATE_STEP_S))] += 1

    async def _open_all(self) -> None:
        """Open the wanted number of connections, or as many as the server admits; streams open further ones when they
        need them."""
        while (wanted := self._share.num_open - len(self._idle)) > 0:
            some = min(wanted, _OPENING_AT_ONCE)
            opened = await asyncio.gather(*(self._open() for _ in range(some)), return_exceptions=True)
            for one in opened:
                if isinstance(one, ClientConnection):
                    self._idle.append(one)
                elif not isinstance(one, InvalidStatus):
                    raise one
            if any(isinstance(one, InvalidStatus) for one in opened):
                return

    async def _open(self) -> ClientConnection:
        return await open_stream(self._share.url, api_key=self._share.api_key, **self._share.start)

    async def _free_socket(self) -> ClientConnection:
        """Return an idle connection. Without one, open one; the stream then waits longer."""
        while self._idle:
            if (socket := self._idle.pop()).state is State.OPEN:
                return socket
        return await self._open()

    async def _stream(self, arrival: Arrival, spoken: Spoken) -> None:
        share = self._share
        due_s = self._begins_s + arrival.at_s
        await asyncio.sleep(due_s - time.monotonic())
        self._running[arrival.number] = spoken
        socket = None
        try:
            socket = await self._free_socket()
            await speak(
                socket,
                f"turn-{arrival.number}",
                turn(max(1, round(arrival.share * share.num_words)), arrival.number),
                scheduled=due_s,
                token_gap_s=share.token_gap_s,
                cancel_after_s=None if arrival.heard is None else arrival.heard * arrival.share * share.turn_s,
                into=spoken,
                note_late=self._note_late,
            )
            self._idle.append(socket)
        except asyncio.CancelledError:
            if socket is not None:
                self._idle.append(socket)  # to be closed as it should be: then its session ends at once
            raise
        except (OSError, WebSocketException, EOFError) as error:
            spoken.error = code_of(error)
            spoken.ended_s = time.monotonic() - due_s
        finally:
            del self._running[arrival.number]
        self._speech_s += spoken.audio_s or spoken.position_s
        self._num_ended += 1
        if spoken.error:
            self._errors[spoken.error] += 1
        if self._watch is not None:
            self._watch.ended(spoken)
        self._num_judged -= spoken.judged


if __name__ == "__main__":
    main()
