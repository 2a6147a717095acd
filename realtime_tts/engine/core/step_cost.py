"""How long a step will take: a line over streams and prefill positions, learned from the steps that were run. Pure.

How far steps stray from that line is learned, too: on a machine that has other work they do.
"""

from __future__ import annotations

import math

_RATE = 0.1  # of each error that is corrected
_MAX_ERROR = 1.0  # times the estimate; a page fault or a collection must not teach more than that
_STRAY_RATE = 1 / 32
_CAUTION = 4.0  # mean errors that are allowed for, as by the timers of TCP
_HASTE = 2.0  # mean errors by which a step may be shorter


class StepCost:
    """``fixed + per_stream * streams + per_position * positions``, in seconds."""

    def __init__(self, fixed_s: float = 0.005, per_stream_s: float = 0.0005, per_position_s: float = 0.00002) -> None:
        self._weights = [fixed_s, per_stream_s, per_position_s]
        self._stray = 0.0  # mean error of the estimate, a share of it

    @property
    def weights(self) -> tuple[float, float, float]:
        """fixed, per_stream, per_position."""
        fixed_s, per_stream_s, per_position_s = self._weights
        return fixed_s, per_stream_s, per_position_s

    @property
    def caution(self) -> float:
        """So many times its estimate a step will hardly take longer than."""
        return 1 + _CAUTION * self._stray

    def step_s(self, num_streams: int, num_positions: int) -> float:
        """The estimate for a step."""
        fixed_s, per_stream_s, per_position_s = self._weights
        return fixed_s + per_stream_s * num_streams + per_position_s * num_positions

    def cautious_s(self, num_streams: int, num_positions: int) -> float:
        """What a step will hardly take longer than."""
        return self.step_s(num_streams, num_positions) * self.caution

    def hasty_s(self, num_streams: int, num_positions: int) -> float:
        """What a step will hardly take less than."""
        return self.step_s(num_streams, num_positions) * max(0.0, 1 - _HASTE * self._stray)

    def affordable_streams(self, time_s: float) -> int:
        """How many streams a step without prefill can advance within `time_s`."""
        fixed_s, per_stream_s, _ = self._weights
        return int(min(max(0.0, time_s - fixed_s) / max(per_stream_s, 1e-9), 1e9))

    def positions_s(self, num_positions: int) -> float:
        """What prefill positions add to a step."""
        return self._weights[2] * num_positions

    def affordable_positions(self, num_streams: int, time_s: float) -> int:
        """How many prefill positions a step over so many streams can hold within `time_s`."""
        spare_s = time_s - self.step_s(num_streams, 0)
        if spare_s <= 0:
            return 0
        return int(min(spare_s / max(self._weights[2], 1e-9), 1e9)) if math.isfinite(spare_s) else 10**9

    def observe(self, num_streams: int, num_positions: int, elapsed_s: float) -> None:
        """Correct the estimate by a step (normalised least mean squares)."""
        estimate_s = self.step_s(num_streams, num_positions)
        bound_s = _MAX_ERROR * estimate_s
        error_s = max(-bound_s, min(bound_s, elapsed_s - estimate_s))
        self._stray += _STRAY_RATE * (abs(error_s) / estimate_s - self._stray)
        inputs = (1.0, float(num_streams), float(num_positions))
        norm = sum(value * value for value in inputs)
        self._weights = [
            max(1e-7, weight + _RATE * error_s * value / norm)
            for weight, value in zip(self._weights, inputs, strict=True)
        ]
