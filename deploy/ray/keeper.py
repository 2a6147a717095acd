"""Keeps a server for as long as whoever started it lives: then speech may end, and the server with it.

    python keeper.py DRAIN_S COMMAND…

The end of its standard input is the sign, which the kernel gives once and for any death. (A parent-death signal comes
once for each thread of the parent, and a second one tells a server to end at once.) It ends as the server does. Linux.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

_LOOK_S = 0.2
_SPARE_S = 10.0  # beyond the time that the server has to drain


def main() -> None:
    drain_s, command = float(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # not ignored, which the child would inherit
    # Should the keeper itself be killed, nobody would look after the server any more.
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
