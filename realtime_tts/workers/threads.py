"""How the threads of a process share its interpreter."""

from __future__ import annotations

import sys

_SWITCH_INTERVAL_S = 0.0005


def switch_quickly() -> None:
    """Have threads hand the interpreter over after half a millisecond, not after five.

    A thread gives it away with every write to a socket, every operation of torch and every wait for a device, and would
    wait so long for each other one that has something to do.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
