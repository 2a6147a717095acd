"""One of the processes that listen to a server: a share of the arrivals, each on a connection that is open already."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.native_stream import Spoken, open_stream, speak
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard, Watch
from realtime_tts.bench.texts import turn

_OPENING_AT_ONCE = 16
_LOOK_S = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """What one process does. num_open: connections to open before the load begins. expected: judged streams of this
    share, on average. num_words: of a whole turn. start: fields of `session.start`."""

    url: str
    api_key: str | None
    arrivals: Sequence[Arrival]
    num_open: int
    bar: Bar | None
    expected: float
    num_words: int
    start: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Share:
        raw = json.loads(line)
        raw["arrivals"] = [Arrival(**arrival) for arrival in raw["arrivals"]]
        return cls(**{**raw, "bar": None if raw["bar"] is None else Bar(**raw["bar"])})


def main() -> None:
    """The life of one process, a line of JSON at a time: a `Share` comes in, "open" goes out when its connections are
    open, the moment at which the load begins comes in (`time.monotonic`, which all processes of a machine share),
    a list of `Heard`s goes out, and so on until there is no more. In place of what should go out there may be
    {"failed": why}."""
    for line in sys.stdin:
        try:
            answer: object = asyncio.run(_Client(Share.from_json(line)).run())
        except Exception as error:
            answer = {"failed": repr(error)}
        _say(answer)


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class _Client:
    def __init__(self, share: Share) -> None:
        self._share = share
        self._begins_s = 0.0
        self._idle: list[ClientConnection] = []
        self._running: dict[int, Spoken] = {}
        self._watch = Watch(share.bar, share.expected) if share.bar is not None else None
        self._num_judged = sum(arrival.judged for arrival in share.arrivals)

    async def run(self) -> list[dict[str, Any]]:
        for first in range(0, self._share.num_open, _OPENING_AT_ONCE):
            number = min(_OPENING_AT_ONCE, self._share.num_open - first)
            self._idle += await asyncio.gather(*(self._open() for _ in range(number)))
        _say("open")
        self._begins_s = float(await asyncio.to_thread(sys.stdin.readline))
        heard = [Spoken(arrival.at_s, judged=arrival.judged) for arrival in self._share.arrivals]
        tasks = [
            asyncio.create_task(self._stream(arrival, spoken))
            for arrival, spoken in zip(self._share.arrivals, heard, strict=True)
        ]
        await self._until_over()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(socket.close() for socket in self._idle))
        for spoken in heard:
            if not spoken.terminal and not spoken.error:
                spoken.error = GAVE_UP
        # Plain `Heard`s: what was said at the end of each context need not travel.
        names = [field.name for field in dataclasses.fields(Heard)]
        return [{name: getattr(spoken, name) for name in names} for spoken in heard]

    async def _until_over(self) -> None:
        """All judged streams have ended, or the load cannot hold."""
        while self._num_judged:
            await asyncio.sleep(_LOOK_S)
            now_s = time.monotonic() - self._begins_s
            if self._watch is not None and self._watch.is_lost(self._running.values(), now_s):
                return

    async def _open(self) -> ClientConnection:
        return await open_stream(self._share.url, api_key=self._share.api_key, **self._share.start)

    async def _stream(self, arrival: Arrival, spoken: Spoken) -> None:
        due_s = self._begins_s + arrival.at_s
        await asyncio.sleep(due_s - time.monotonic())
        self._running[arrival.number] = spoken
        socket = None
        try:
            # Without one that is idle the caller dials first, and waits the longer.
            socket = self._idle.pop() if self._idle else await self._open()
            num_words = max(1, round(arrival.share * self._share.num_words))
            text = turn(num_words, arrival.number)
            await speak(socket, f"turn-{arrival.number}", text, scheduled=due_s, into=spoken)
            self._idle.append(socket)
        except asyncio.CancelledError:
            if socket is not None:
                self._idle.append(socket)  # to be closed as it should be: then its session ends at once
            raise
        except (OSError, WebSocketException) as error:
            spoken.error = type(error).__name__
            spoken.ended_s = time.monotonic() - due_s
        finally:
            del self._running[arrival.number]
        if self._watch is not None:
            self._watch.ended(spoken)
        self._num_judged -= spoken.judged


if __name__ == "__main__":
    main()
