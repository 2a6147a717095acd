"""Streams through `Engine.step` in this process, on one thread: texts are posted when they are due, audio is timed when
the engine sends it. What a worker does, without sockets and a gateway.
"""

from __future__ import annotations

import collections
import math
import random
import time
from collections.abc import Sequence

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.capacity import Cost
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.streams import GAVE_UP, Heard
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import turn
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
        self._patch_s = subject.patch_s
        self._sample_rate = subject.loaded.config.sample_rate
        self._running: dict[str, Heard] = {}
        self._ended: list[Heard] = []
        self._number = 0
        self._step_times_s: list[float] = []
        self._began_s = time.monotonic()
        self.engine: Engine = subject.engine(self._receive)

    @property
    def turn_s(self) -> float:
        """Audio of a whole turn, seconds."""
        return self._num_patches * self._patch_s

    def closed_loop(self, num_callers: int, num_streams: int, seed: int) -> list[Heard]:
        """Run `num_callers` callers, each of which requests its next turn as soon as the last one is complete. The
        first turn of each has a random length, so that callers are out of phase. `num_streams` whole turns after these
        are judged, under the load of all callers."""
        draw = random.Random(seed)
        self._begin()
        for _ in range(num_callers):
            self._ask(self._now_s(), 1.0 - draw.random(), judged=False, paced=False)
        num_asked = num_judged = 0
        heard: list[Heard] = []
        while num_judged < num_streams:
            self.engine.step()
            for ended in self._take_ended():
                heard.append(ended)
                num_judged += ended.judged
                self._ask(self._now_s(), 1.0, judged=num_asked < num_streams, paced=False)
                num_asked += 1
        self._abandon()
        return heard

    def burst(self, num_streams: int) -> list[Heard]:
        """Run `num_streams` streams that all begin at once."""
        self._begin()
        for _ in range(num_streams):
            self._ask(0.0, 1.0, judged=True, paced=False)
        while self._running:
            self.engine.step()
        heard = self._take_ended()
        self._abandon()
        return heard

    def open_loop(self, arrivals: Sequence[Arrival], deadline_s: float = math.inf) -> list[Heard]:
        """Run arrivals in real time, independent of how streams are served. Listeners play in real time, and the engine
        stays a little ahead of them.

        Args:
            deadline_s: give up at this time since the load began; streams without an end have the error `GAVE_UP` then.
        """
        waiting = collections.deque(arrivals)
        num_judged = sum(arrival.judged for arrival in arrivals)
        heard: list[Heard] = []
        self._begin()
        while num_judged and (now_s := self._now_s()) < deadline_s:
            while waiting and waiting[0].at_s <= now_s:
                arrival = waiting.popleft()
                self._ask(arrival.at_s, arrival.share, arrival.judged, paced=True)
            self._step(waiting[0].at_s if waiting else deadline_s)
            for stream in self._take_ended():
                heard.append(stream)
                num_judged -= stream.judged
        given_up = [*self._running.values(), *(Heard(arrival.at_s, judged=arrival.judged) for arrival in waiting)]
        for stream in given_up:
            stream.error = GAVE_UP
        self._abandon()
        return heard + given_up

    # ---- the engine ----------------------------------------------------------------------------------------------

    def _ask(self, scheduled_s: float, share: float, judged: bool, paced: bool) -> None:
        self._number += 1
        name = f"s{self._number}"
        self._running[name] = Heard(scheduled_s, judged=judged)
        request = frames.Generate(
            name,
            name,
            turn(None, self._number),
            seed=self._number,
            cfg=self._cfg,
            steps=self._steps,
            paced=paced,
            max_patches=max(1, round(share * self._num_patches)),
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

    def _take_ended(self) -> list[Heard]:
        ended, self._ended = self._ended, []
        return ended

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        self._step_times_s = []

    def _step(self, next_s: float) -> None:
        """Run a step. If there is nothing to do, wait until there may be something, at `next_s` at the latest."""
        started_s = time.perf_counter()
        if self.engine.step():
            self._step_times_s.append(time.perf_counter() - started_s)
            return
        idle_s = self.engine.idle_s()
        wait_s = min(_MAX_SLEEP_S, next_s - self._now_s(), math.inf if idle_s is None else idle_s)
        time.sleep(max(0.0, wait_s))

    def cost(self) -> Cost:
        """Return the cost of the last load."""
        step_ms = Spread.of([1000 * seconds for seconds in self._step_times_s])
        return Cost(step_ms=step_ms, busy=sum(self._step_times_s) / max(1e-9, self._now_s()))

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
