"""Streams through `Engine.step` in this process, on one thread: texts are posted when they are due, audio is timed when
the engine sends it. What a worker does, without sockets and a gateway.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard, Watch
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import turn
from realtime_tts.contract import frames
from realtime_tts.engine.engine import Engine

_LOUD = 10 ** (-50 / 20)  # −50 dBFS
_MAX_SLEEP_S = 0.05
_LOOK_S = 0.25


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
        """So many callers, each asking again as soon as it has all audio, as fast as it is made. The first turn of each
        is cut short somewhere, so that they do not go in step; `num_streams` whole turns after these are judged, while
        all callers go on."""
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
        heard: list[Heard] = []
        while self._running:
            self.engine.step()
            heard += self._take_ended()
        self._abandon()
        return heard

    def open_loop(
        self,
        arrivals: Sequence[Arrival],
        bar: Bar | None = None,
        expected: float = 0.0,
    ) -> list[Heard]:
        """Run arrivals in real time, independent of how streams are served. Listeners play in real time, and the engine
        stays a little ahead of them.

        Args:
            bar, expected: give up as soon as so many of the `expected` judged streams fail it that it cannot hold;
                those without an end have the error `GAVE_UP` then.
        """
        waiting = collections.deque(arrivals)
        num_judged = sum(arrival.judged for arrival in arrivals)
        heard: list[Heard] = []
        watch = Watch(bar, expected) if bar is not None else None
        looked_s = 0.0
        self._begin()
        while num_judged:
            now_s = self._now_s()
            while waiting and waiting[0].at_s <= now_s:
                arrival = waiting.popleft()
                self._ask(arrival.at_s, arrival.share, arrival.judged, paced=True)
            self._step(waiting[0].at_s if waiting else None)
            for stream in self._take_ended():
                heard.append(stream)
                num_judged -= stream.judged
                if watch is not None:
                    watch.ended(stream)
            if watch is not None and now_s - looked_s > _LOOK_S:
                looked_s = now_s
                if watch.is_lost(self._running.values(), now_s):
                    break
        given_up = [Heard(arrival.at_s, judged=arrival.judged, error=GAVE_UP) for arrival in waiting]
        for stream in self._running.values():
            stream.error = GAVE_UP
        heard += [*self._running.values(), *given_up]
        self._abandon()
        return heard

    # ---- the engine ----------------------------------------------------------------------------------------------

    def _ask(self, scheduled_s: float, share: float, judged: bool, paced: bool) -> None:
        self._number += 1
        name = f"s{self._number}"
        self._running[name] = Heard(scheduled_s, judged=judged)
        num_patches = max(1, round(share * self._num_patches))
        text = turn(None, self._number)
        self.engine.post(
            frames.Generate(
                name,
                name,
                text,
                seed=self._number,
                cfg=self._cfg,
                steps=self._steps,
                max_patches=num_patches,
                paced=paced,
            )
        )

    def _receive(self, message: frames.Message) -> None:
        stream = self._running.get(getattr(message, "request_id", ""))
        if stream is None:  # of the warm-up, or abandoned
            return
        now_s = self._now_s() - stream.scheduled_s
        if isinstance(message, frames.Audio):
            stream.hear(now_s, stream.audio_s)
            if stream.loud_s is None:
                stream.loud_s = self._first_loud_s(message.payload, stream.audio_s)
            stream.audio_s += len(message.payload) / 2 / self._sample_rate
        elif isinstance(message, (frames.Done, frames.Failed)):
            stream.ended_s = now_s
            stream.error = message.code if isinstance(message, frames.Failed) else ""
            self._ended.append(self._running.pop(message.request_id))
            self.engine.post(frames.CloseContext(message.request_id))

    def _first_loud_s(self, payload: bytes, begins_s: float) -> float | None:
        loud = np.abs(np.frombuffer(payload, "<i2").astype(np.int32)) > _LOUD * 32767
        return begins_s + int(loud.argmax()) / self._sample_rate if loud.any() else None

    def _take_ended(self) -> list[Heard]:
        ended, self._ended = self._ended, []
        return ended

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        self._step_times_s = []

    def _step(self, next_s: float | None) -> None:
        """A step, or, if there is nothing to do, the wait until there may be something."""
        started_s = time.perf_counter()
        if self.engine.step():
            self._step_times_s.append(time.perf_counter() - started_s)
        else:
            self._sleep(next_s)

    def steps(self) -> dict[str, Any]:
        """Return figures of the last load: duration of its steps, ms, and the share of its time that they filled."""
        elapsed_s = max(1e-9, self._now_s())
        times_ms = [1000 * seconds for seconds in self._step_times_s]
        return {"step_ms": dataclasses.asdict(Spread.of(times_ms)), "busy": sum(self._step_times_s) / elapsed_s}

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _sleep(self, next_s: float | None) -> None:
        """Wait until there may be something to do."""
        waits_s = [_MAX_SLEEP_S]
        if next_s is not None:
            waits_s.append(next_s - self._now_s())
        if (idle_s := self.engine.idle_s()) is not None:
            waits_s.append(idle_s)
        if (wait_s := min(waits_s)) > 0:
            time.sleep(wait_s)

    def _abandon(self) -> None:
        """End the streams without a listener."""
        for name in self._running:
            self.engine.post(frames.CloseContext(name))
        self._running.clear()
        while self.engine.step() or not self.engine.is_idle:
            pass
        self._ended.clear()
