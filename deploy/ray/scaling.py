"""Wanted number of replicas. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def replicas_wanted(streams: Sequence[float], capacities: Sequence[float], target: float) -> int:
    """Return the number of replicas that carry all streams at the share `target` of their capacity; at least one.

    Args:
        streams: of each replica that has reported. capacities: likewise; replicas without capacity yet are ignored.
    """
    known = [capacity for capacity in capacities if capacity > 0]
    if not known:
        return 1
    return max(1, math.ceil(sum(streams) / (target * sum(known) / len(known)) - 1e-9))


class ByStreams:
    """Ray Serve's autoscaling policy: streams in use over capacity, as reported by the replicas.

    Serve itself applies the bounds and delays of the deployment's configuration.
    """

    def __init__(self, target: float) -> None:
        self._target = target

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        told: Mapping[str, Mapping[Any, float]] = context.aggregated_metrics or {}
        streams, capacities = told.get("streams", {}), told.get("capacity", {})
        if not capacities:  # no replica has reported yet
            return context.target_num_replicas, {}
        return replicas_wanted([*streams.values()], [*capacities.values()], self._target), {}
