"""Turns of an agent, spoken by an engine in this process on a simulated clock, independent of the machine's load.

A step takes as long as it is said to, a listener plays in real time, and between two events the clock jumps. Text goes
the way of the server: deltas, planner, `Generate` and `Extend`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from realtime_tts.bench.texts import tokens
from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.core.request import StepPlan
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.setup import choose_config
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.text.planner import PlannerFactory, Segment

STALL_FLUSH_S = 1.0
Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class StepTime:
    """Assumed duration of a step, in seconds: fixed part, and for each position of a prefill."""

    step_s: float = 0.040
    position_s: float = 0.0002

    def of(self, plan: StepPlan) -> float:
        return self.step_s + self.position_s * plan.size.num_positions


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """A text as it was spoken. Times are seconds on the turn's clock, which begins with the first token.

    pcm: [samples] float32. first_audio_s: when the first of them was made. gap_s: what a listener without a buffer
    missed after that; text_wait_s: the part of it for which the text was late. extension_share: of the engine's time.
    """

    pcm: Array
    first_audio_s: float
    gap_s: float
    text_wait_s: float
    num_segments: int
    num_extensions: int
    extension_share: float
    ends: tuple[frames.Done, ...]


class TurnSpeaker:
    """Speaks one turn after another."""

    def __init__(self, loaded: LoadedModel, time: StepTime | None = None) -> None:
        self._loaded, self._time = loaded, time or StepTime()
        self._now = self._begun_s = 0.0
        config = choose_config(loaded, torch.device("cpu"), EngineOptions(max_streams=2))
        self._engine = Engine(loaded, config, self._take, clock=lambda: self._now)
        runner = self._engine.runner
        self._plan = StepPlan()
        self._prepare, runner.prepare = runner.prepare, self._noted_prepare  # type: ignore[method-assign]
        self._launch, runner.launch = runner.launch, self._timed_launch  # type: ignore[method-assign]
        policy = loaded.policy
        self._planners = PlannerFactory(policy.charset, policy.max_segment_chars, STALL_FLUSH_S)
        self._audio: list[frames.Audio] = []
        self._made_s: list[float] = []
        self._done: list[frames.Done] = []
        self._num_turns = 0
        self._extended_s = self._busy_s = 0.0

    def whole(self, text: str, voice: str, seed: int) -> Turn:
        """Speak a text that is complete from the start."""
        return self._speak([(0.0, text)], voice, seed, live=False)

    def live(self, text: str, voice: str, seed: int, tokens_per_s: float) -> Turn:
        """Speak a text that arrives token by token."""
        return self._speak([(n / tokens_per_s, token) for n, token in enumerate(tokens(text))], voice, seed, live=True)

    def _speak(self, deltas: Sequence[tuple[float, str]], voice: str, seed: int, *, live: bool) -> Turn:
        self._begin()
        planner = self._planners.make("en", live=live)
        fields = {"voice": voice, "seed": seed, "encoding": "f32le"}
        opened: dict[int, str] = {}
        coming = [(self._begun_s + after_s, delta) for after_s, delta in deltas]
        is_ended = False
        while coming or not is_ended or len(self._done) < len(opened):
            segments: list[Segment] = []
            while coming and coming[0][0] <= self._now:
                at_s, delta = coming.pop(0)
                segments += planner.push(delta, at_s)
            if not coming and not is_ended:
                segments += planner.end(self._now)
                is_ended = True
            due_s = planner.next_deadline()
            if due_s is not None and due_s <= self._now:
                segments += planner.tick(self._now)
            for segment in segments:
                self._send(segment, opened, fields)
            if not self._engine.step():
                self._wait([at_s for at_s, _ in coming[:1]] + ([] if due_s is None else [due_s]))
        return self._turn()

    def _begin(self) -> None:
        self._engine.post(frames.CloseContext(str(self._num_turns)))
        self._engine.step()
        self._num_turns += 1
        self._now += 60.0
        self._begun_s = self._now
        self._audio, self._made_s, self._done = [], [], []
        self._extended_s = self._busy_s = 0.0

    def _send(self, segment: Segment, opened: dict[int, str], fields: dict[str, Any]) -> None:
        name = f"{self._num_turns}/{segment.index}"
        if segment.index in opened:
            self._engine.post(frames.Extend(name, segment.text, segment.final))
            return
        opened[segment.index] = name
        context = str(self._num_turns)
        request = frames.Generate(name, context, segment.text, segment=segment.index, final=segment.final, **fields)
        self._engine.post(request)

    def _wait(self, times_s: list[float]) -> None:
        """Advance the clock to the next event."""
        idle_s = self._engine.idle_s()
        if idle_s is not None:
            times_s = [*times_s, self._now + idle_s + 1e-6]
        if not times_s:
            if self._engine.is_idle:
                return
            raise RuntimeError("the engine waits for nothing")
        self._now = max(self._now, min(times_s))

    def _noted_prepare(self, plan: StepPlan, utterances: Any, **others: Any) -> Any:
        self._plan = plan
        return self._prepare(plan, utterances, **others)

    def _timed_launch(self, layout: Any) -> Any:
        sent, plan = self._launch(layout), self._plan
        elapsed_s = self._time.of(plan)
        self._now += elapsed_s
        self._busy_s += elapsed_s
        num_extended = sum(item.num_positions for item in plan.prefill if item.patch_index > item.first_patch)
        self._extended_s += self._time.position_s * num_extended
        return sent

    def _take(self, message: frames.Message) -> None:
        if isinstance(message, frames.Audio):
            self._audio.append(message)
            self._made_s.append(self._now - self._begun_s)
        elif isinstance(message, frames.Done):
            self._done.append(message)
        elif isinstance(message, frames.Failed):
            raise RuntimeError(message.message)

    def _turn(self) -> Turn:
        parts = [np.frombuffer(message.payload, "<f4") for message in self._audio]
        playing_s = self._made_s[0] if self._made_s else 0.0
        gap_s = 0.0
        for made_s, part in zip(self._made_s, parts, strict=True):
            late_s = max(0.0, made_s - playing_s)
            gap_s += late_s
            playing_s += late_s + part.size / self._loaded.config.sample_rate
        return Turn(
            pcm=np.concatenate([*parts, np.zeros(0, np.float32)]),
            first_audio_s=self._made_s[0] if self._made_s else 0.0,
            gap_s=gap_s,
            text_wait_s=sum(done.text_wait_ms for done in self._done) / 1000,
            num_segments=len(self._done),
            num_extensions=sum(done.extensions for done in self._done),
            extension_share=self._extended_s / self._busy_s if self._busy_s else 0.0,
            ends=tuple(self._done),
        )
