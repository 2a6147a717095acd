"""Estimated step time: linear in work and prefill positions, fitted to the measured steps. Pure.

The work of a stream is 1, or more with more flow steps than usual. Steps with the usual number are replayed from
graphs. A group with another number is launched kernel by kernel, which costs time for each of its flow steps whatever
the number of its streams.

The mean deviation from that line is measured as well: on a machine with other load, step times vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_RATE = 0.1  # share of each error that is corrected
_MAX_ERROR = 1.0  # times the estimate; limits the effect of a page fault or a garbage collection
_ERROR_RATE = 1 / 32
_UPPER_ERRORS = 4.0  # mean errors added to a cautious estimate, as in TCP's retransmission timers
_LOWER_ERRORS = 2.0  # mean errors by which a step may be shorter


class StepSize(NamedTuple):
    """Quantities that determine a step's duration. work: sum over its streams; own_flow_steps: as in `StepPlan`."""

    work: float
    num_positions: int = 0
    own_flow_steps: int = 0


class StepCost:
    """``fixed + per_stream * work + per_position * positions + per_own_flow_step * own_flow_steps``, in seconds.

    weights: these four factors.
    typical_work: work of a step at load. It scales the corrections, so that the error of a step of few streams corrects
        the fixed time and hardly the time per stream, from which the capacity is extrapolated.
    """

    def __init__(
        self,
        fixed_s: float = 0.005,
        per_stream_s: float = 0.0005,
        per_position_s: float = 0.00002,
        per_own_flow_step_s: float = 0.003,  # for kernels launched one by one; refined by measurements
        *,
        typical_work: float = 1.0,
    ) -> None:
        self._typical_work = typical_work
        self.weights: Sequence[float] = (fixed_s, per_stream_s, per_position_s, per_own_flow_step_s)
        self._mean_error = 0.0  # mean error, relative to the estimate

    @classmethod
    def on_cpu(cls, step_s: float, typical_work: float) -> StepCost:
        """Return the estimate for a CPU from the duration of one stream's step. About half of it comes again with each
        further stream: 21 ms for one and 38 for three were measured. On a GPU it is a tenth."""
        return cls(step_s / 2, step_s / 2, step_s / 64, typical_work=typical_work)

    def restarted(self) -> StepCost:
        """Return a copy without the mean error."""
        return StepCost(*self.weights, typical_work=self._typical_work)

    @property
    def upper_factor(self) -> float:
        """Factor on the estimate that a step rarely exceeds."""
        return 1 + _UPPER_ERRORS * self._mean_error

    def step_s(self, work: float, num_positions: int, own_flow_steps: int = 0) -> float:
        """Return the estimated duration of a step."""
        fixed_s, per_stream_s, per_position_s, per_own_flow_step_s = self.weights
        return fixed_s + per_stream_s * work + per_position_s * num_positions + per_own_flow_step_s * own_flow_steps

    def upper_bound_s(self, work: float) -> float:
        """Return a duration that a step without prefill rarely exceeds."""
        return self.step_s(work, 0) * self.upper_factor

    def lower_bound_s(self, size: StepSize) -> float:
        """Return a duration that the step rarely falls below."""
        return self.step_s(*size) * max(0.0, 1 - _LOWER_ERRORS * self._mean_error)

    def affordable_streams(self, time_s: float) -> int:
        """Return how many streams with the usual flow steps a step without prefill can advance within `time_s`."""
        fixed_s, per_stream_s = self.weights[:2]
        return int(min(max(0.0, time_s - fixed_s) / max(per_stream_s, 1e-9), 1e9))

    def affordable_positions(self, work: float, time_s: float, own_flow_steps: int = 0) -> int:
        """Return how many prefill positions a step with that much work can hold within `time_s`."""
        spare_s = max(0.0, time_s - self.step_s(work, 0, own_flow_steps))
        return int(min(spare_s / max(self.weights[2], 1e-9), 1e9))

    def observe(self, work: float, num_positions: int, elapsed_s: float, own_flow_steps: int = 0) -> None:
        """Correct the estimate with a measured step (normalised least mean squares)."""
        estimate_s = self.step_s(work, num_positions, own_flow_steps)
        bound_s = _MAX_ERROR * estimate_s
        error_s = max(-bound_s, min(bound_s, elapsed_s - estimate_s))
        self._mean_error += _ERROR_RATE * (abs(error_s) / estimate_s - self._mean_error)
        sizes = (1.0, float(work), float(num_positions), float(own_flow_steps))
        scales = (1.0, self._typical_work, self._typical_work, 1.0)
        inputs = [size / scale for size, scale in zip(sizes, scales, strict=True)]
        norm = sum(value * value for value in inputs)
        self.weights = [
            max(1e-7, weight + _RATE * error_s * value / (norm * scale))
            for weight, value, scale in zip(self.weights, inputs, scales, strict=True)
        ]
