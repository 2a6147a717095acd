"""What the process as a whole is told, so that the event loop is prompt and memory small."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

_M_ARENA_MAX = -8  # of glibc's malloc.h
_MAX_ARENAS = 2
_SWITCH_INTERVAL_S = 0.0005


def limit_arenas() -> None:
    """Let threads share what codecs allocate. Call it before threads are started; elsewhere than on glibc, nothing.

    glibc gives each thread a heap of its own, eight for each core, and none ever gives back what another has freed:
    contexts that come and go, encoded by a pool of threads, cost a third more memory without this.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MAX_ARENAS)


def switch_quickly() -> None:
    """Have threads hand the interpreter over after half a millisecond, not after five.

    The loop gives it away with every write to a socket, and would wait so long for each thread that encodes.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def settle_heap() -> None:
    """Leave all that was loaded out of garbage collections: a full one held everything up for 50 ms and more."""
    gc.collect()
    gc.freeze()


def unsettle_heap() -> None:
    gc.unfreeze()
