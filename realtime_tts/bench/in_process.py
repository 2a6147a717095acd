"""Streams through `Engine.step` in this process, on one thread: texts are posted when they are due, audio is timed when
the engine sends it. What a worker does, without sockets and a gateway.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Sequence

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.load_result import Cost
from realtime_tts.bench.streams import GAVE_UP, Heard
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import turn
from realtime_tts.bench.usage import Usage
from realtime_tts.contract import frames
from realtime_tts.engine.engine import Engine

_MAX_SLEEP_S = 0.05


class InProcess:
    """One warm engine and the streams that it is asked for.

    Args:
        num_patches: of a whole turn.
        steps, cfg: of the flow; None is the checkpoint's choice.
    """

    def __init__(self, subject: Subject, num_patches: int, steps: int | None, cfg: float | None) -> None:
        self._num_patches, self._steps, self._cfg = num_patches, steps, cfg
        self.turn_s = num_patches * subject.patch_s  # audio of a whole turn
        self.cost = Cost()
        self._sample_rate = subject.loaded.config.sample_rate
        self._running: dict[str, Heard] = {}
        self._ended: list[Heard] = []
        self._number = 0
        self._began_s = time.monotonic()
        self.engine: Engine = subject.engine(self._receive)

    def open_loop(self, arrivals: Sequence[Arrival], deadline_s: float = math.inf) -> list[Heard]:
        """Run arrivals in real time, independent of how streams are served. Listeners play in real time, and the engine
        stays a little ahead of them.

        Args:
            deadline_s: give up at this time since the load began; streams without an end have the error `GAVE_UP` then.
        """
        waiting = collections.deque(arrivals)
        num_judged = sum(arrival.judged for arrival in arrivals)
        heard: list[Heard] = []
        self._began_s, step_times_s = time.monotonic(), []
        while num_judged and (now_s := self._now_s()) < deadline_s:
            while waiting and waiting[0].at_s <= now_s:
                self._ask(waiting.popleft())
            started_s = time.perf_counter()
            if self.engine.step():
                step_times_s.append(time.perf_counter() - started_s)
            else:  # wait until there may be something to do
                idle_s, next_s = self.engine.idle_s(), waiting[0].at_s if waiting else deadline_s
                wait_s = min(_MAX_SLEEP_S, next_s - self._now_s(), math.inf if idle_s is None else idle_s)
                time.sleep(max(0.0, wait_s))
            num_judged -= sum(stream.judged for stream in self._ended)
            heard += self._ended
            self._ended.clear()
        usage = Usage(engine=sum(step_times_s) / max(1e-9, self._now_s()))
        self.cost = Cost(usage=usage, step_ms=Spread.of([1000 * seconds for seconds in step_times_s]))
        given_up = [*self._running.values(), *(Heard(arrival.at_s, judged=arrival.judged) for arrival in waiting)]
        for stream in given_up:
            stream.error = GAVE_UP
        self._abandon()
        return heard + given_up

    # ---- the engine ----------------------------------------------------------------------------------------------

    def _ask(self, arrival: Arrival) -> None:
        self._number += 1
        name = f"s{self._number}"
        self._running[name] = Heard(arrival.at_s, judged=arrival.judged)
        request = frames.Generate(
            name,
            name,
            turn(None, self._number),
            seed=self._number,
            cfg=self._cfg,
            steps=self._steps,
            max_patches=max(1, round(arrival.share * self._num_patches)),
        )
        self.engine.post(request)

    def _receive(self, message: frames.Message) -> None:
        stream = self._running.get(getattr(message, "request_id", ""))
        if stream is None:  # of the warm-up, or abandoned
            return
        now_s = self._now_s() - stream.scheduled_s
        if isinstance(message, frames.Audio):
            stream.hear(now_s, stream.audio_s)
            stream.audio_s += len(message.payload) / 2 / self._sample_rate
        elif isinstance(message, (frames.Done, frames.Failed)):
            stream.ended_s = now_s
            stream.error = message.code if isinstance(message, frames.Failed) else ""
            self._ended.append(self._running.pop(message.request_id))
            self.engine.post(frames.CloseContext(message.request_id))

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _abandon(self) -> None:
        """End the streams without a listener."""
        for name in self._running:
            self.engine.post(frames.CloseContext(name))
        self._running.clear()
        while self.engine.step() or not self.engine.is_idle:
            pass
        self._ended.clear()
