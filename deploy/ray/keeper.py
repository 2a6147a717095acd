"""Keeper of a server: when the starting process dies, it ends the server after its running speech.

    python keeper.py DRAIN_S COMMAND…

The end of standard input is the signal, which the kernel gives exactly once, for any cause of death. (A parent-death
signal comes once for each thread of the parent, and a second one makes a server end at once.) The keeper exits with the
server's status. Linux.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

_LOOK_S = 0.2
_SPARE_S = 10.0  # added to the server's drain time


def main() -> None:
    drain_s, command = float(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # not ignored, which the child would inherit
    # If the keeper itself is killed, the server must not outlive it.
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command], stdin=subprocess.DEVNULL)
    kill_at_s: float | None = None
    while (status := child.poll()) is None:
        if kill_at_s is not None:
            time.sleep(_LOOK_S)
            if time.monotonic() > kill_at_s:
                child.kill()
        elif select.select([0], [], [], _LOOK_S)[0] and not os.read(0, 1):
            child.terminate()
            kill_at_s = time.monotonic() + drain_s + _SPARE_S
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
