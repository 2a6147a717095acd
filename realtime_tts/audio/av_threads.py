"""Keeps libav from starting threads that have nothing to do."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Let this thread see one processor only.

    With an encoder's first frame PyAV makes a filter graph that cuts frames to length, as ours are already. libav gives
    it a thread for each processor, and one more, for nothing; how many can be set for graphs of one's own only.
    """
    if not hasattr(os, "sched_setaffinity"):  # elsewhere than on Linux the threads are there, and sleep
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(tuple(allowed))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
