"""Choice of the worker for a new context. Pure.

A worker that has the prefix of the context's input (voice and instructions) in its KV cache need not compute it. A
worker with fewer listeners finishes a step sooner. Both count as time to the first packet, and the shortest time wins:

    WAIT_STEPS × step(contexts at work + 1)  +  time of a position × positions of the prefix that are not cached

with the step durations that each worker has measured (`engine/core/step_cost.py`). On average a new context waits for
half of the current step, and then for its own. The time of a position is the mean over the workers, since each estimate
is from few steps and varies. So a cached prefix is worth

    positions × time of a position / (WAIT_STEPS × time of a stream)

additional contexts at the worker that has it, and nothing once that worker carries as many as it can in real time.
The step is assumed to hold all contexts at work, as it does when many begin at a time. Contexts that are ahead of their
listeners are not in it, so the cost of queueing is overestimated and load is spread more evenly.

Every gateway of a host decides alone from what the workers report to all of them. Ties are broken by a hash of the
prefix, so that all gateways choose the same worker for a voice that was not used before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import statistics
from collections.abc import Sequence

WAIT_STEPS = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """State of a worker that could take a context.

    Attributes:
        num_working: contexts of all clients that have work there.
        num_streams: number of streams it can carry in real time.
        num_contexts: contexts of this client that are open there, at work or not.
        num_cached: positions of the prefix in its cache.
        fixed_s, stream_s, position_s: parts of a step's duration: fixed, for each stream, for each prefilled position.
        is_suspect: it may hang.
    """

    name: str
    num_working: int = 0
    num_streams: int = 1
    num_contexts: int = 0
    num_cached: int = 0
    fixed_s: float = 0.0
    stream_s: float = 0.0
    position_s: float = 0.0
    is_suspect: bool = False

    @property
    def excess(self) -> float:
        """Return the share of its real-time capacity by which one more context would exceed it; 0 if it fits."""
        return max(0, self.num_working + 1 - self.num_streams) / max(1, self.num_streams)

    def first_packet_s(self, num_prefix: int, position_s: float) -> float:
        """Return the time until the first packet of a context with a prefix of `num_prefix` positions, without the part
        that is equal for all."""
        step_s = self.fixed_s + self.stream_s * (self.num_working + 1)
        return WAIT_STEPS * step_s + position_s * (num_prefix - self.num_cached)


def place(candidates: Sequence[Candidate], prefix: bytes) -> Candidate:
    """Return the worker for a new context; there must be at least one candidate.

    Args:
        prefix: key of its input's prefix, equal for all contexts with that prefix.
    """
    num_prefix = max(candidate.num_cached for candidate in candidates)
    position_s = statistics.fmean(candidate.position_s for candidate in candidates)
    return min(
        candidates,
        key=lambda candidate: (
            candidate.is_suspect,
            candidate.excess,
            candidate.first_packet_s(num_prefix, position_s),
            candidate.num_working,
            candidate.num_contexts,
            _rank(candidate.name, prefix),
        ),
    )


def _rank(name: str, prefix: bytes) -> bytes:
    """Return the rendezvous hash (highest random weight) of worker and prefix, the same in every process."""
    return hashlib.blake2b(prefix + name.encode(), digest_size=8).digest()
