"""How many replicas there should be. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def replicas_wanted(streams: Sequence[float], capacities: Sequence[float], target: float) -> int:
    """As many as hold all streams with the share `target` of each one's capacity taken; one at least.

    Args:
        streams: of each replica that has told them. capacities: likewise; those that have none yet count for nothing.
    """
    known = [capacity for capacity in capacities if capacity > 0]
    if not known:
        return 1
    return max(1, math.ceil(sum(streams) / (target * sum(known) / len(known)) - 1e-9))


class ByStreams:
    """Ray Serve's autoscaling policy: streams in use over capacity, as the replicas tell them.

    Serve itself keeps the bounds and the delays of the deployment's configuration.
    """

    def __init__(self, target: float) -> None:
        self._target = target

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        told: Mapping[str, Mapping[Any, float]] = context.aggregated_metrics or {}
        streams, capacities = told.get("streams", {}), told.get("capacity", {})
        if not capacities:  # nobody has told anything yet
            return context.target_num_replicas, {}
        return replicas_wanted([*streams.values()], [*capacities.values()], self._target), {}
