"""Which worker a new context goes to. Pure.

A worker that has the beginning of the context's input, its voice's and its manner's, in its KV cache need not compute
it; one with fewer listeners makes a step sooner. Both are time until the first packet, and the shortest one wins:

    WAIT_STEPS × step(contexts at work + 1)  +  time of a position × positions of the prefix that are not there

by what each worker has learned of its steps (`engine/core/step_cost.py`): a new context waits for half of the step that
is being computed, on average, and then for its own. A position's time is the mean of what the workers say: it is
learned from few steps, and strays. So a prefix is worth

    positions × time of a position / (WAIT_STEPS × time of a stream)

contexts more at the worker that has it, and nothing any more once that one has as many as it can carry in real time.
The step is taken to hold all contexts at work, which is what it comes to when many begin at a time; those that are
ahead of their listeners are not in it, so that queueing costs rather less, and load is spread the more evenly.

Every gateway of a host decides by itself from what the workers tell all of them, and where nothing speaks for one
worker by a hash of the prefix: so they agree where a voice belongs that nobody has spoken with yet.
"""

from __future__ import annotations

import dataclasses
import hashlib
import statistics
from collections.abc import Sequence

WAIT_STEPS = 1.5


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that could take a context.

    Attributes:
        num_working: contexts that have work there, of all clients.
        num_streams: as many it can carry in real time.
        num_contexts: contexts of this client that are open there, at work or not.
        num_held: positions of the prefix that lie in its cache.
        fixed_s, stream_s, position_s: what a step takes: always, for each stream, for each position of a prefill.
        is_suspect: it may stand still.
    """

    name: str
    num_working: int = 0
    num_streams: int = 1
    num_contexts: int = 0
    num_held: int = 0
    fixed_s: float = 0.0
    stream_s: float = 0.0
    position_s: float = 0.0
    is_suspect: bool = False

    @property
    def excess(self) -> float:
        """By which share of what it can carry in real time one more would be too many."""
        return max(0, self.num_working + 1 - self.num_streams) / max(1, self.num_streams)

    def first_packet_s(self, num_prefix: int, position_s: float) -> float:
        """Until a context with a prefix of so many positions is heard; what all would need is left out."""
        step_s = self.fixed_s + self.stream_s * (self.num_working + 1)
        return WAIT_STEPS * step_s + position_s * (num_prefix - self.num_held)


def place(candidates: Sequence[Candidate], prefix: bytes) -> Candidate:
    """The worker for a new context; there must be one.

    Args:
        prefix: a name of what its input begins with, the same for all that begin with that.
    """
    num_prefix = max(candidate.num_held for candidate in candidates)
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
    """Draws lots, the same everywhere: the highest random weight (rendezvous hashing) of worker and prefix."""
    return hashlib.blake2b(prefix + name.encode(), digest_size=8).digest()
