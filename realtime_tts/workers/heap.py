"""What a process holds of memory, and giving back what it has freed.

glibc keeps what a program frees. Scratch of some megabytes, which every step of a model and every wave of clients
takes, stays with the process in the measure of its largest moment: resident, but nobody's. On a graph that looks like a
leak for as long as larger moments come.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
GIVE_BACK_EVERY_S = 5.0


def resident_bytes() -> int:
    """Memory of this process; the peak where the system does not tell the present value."""
    try:
        return _pages()[0] * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def anonymous_bytes() -> int:
    """Of that, what is no file's; 0 where the system does not tell."""
    try:
        resident, shared = _pages()
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return free memory to the system; elsewhere than on glibc, nothing.

    Under a tenth of a millisecond where nothing is free, some 5 ms for 60 MiB. Other threads that want memory wait.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _pages() -> tuple[int, int]:
    """Resident ones, and those of them that are a file's or shared."""
    resident, shared = _STATM.read_bytes().split()[1:3]
    return int(resident), int(shared)


class HeapKeeper:
    """Gives free memory back every few seconds. Of one thread, which calls it when its own work has none.

    Attributes:
        kept_bytes: anonymous memory right after the last time: what is in use. Where that grows, something leaks.
    """

    def __init__(self) -> None:
        self.kept_bytes = 0
        self._due_s = float("-inf")

    def keep(self, now: float) -> None:
        """To be called often. now: seconds, monotonic."""
        if now >= self._due_s:
            self._due_s = now + GIVE_BACK_EVERY_S
            give_back()
            self.kept_bytes = anonymous_bytes()
