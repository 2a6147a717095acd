"""Scripts that process untrusted input: each runs in a separate interpreter, reads stdin, and has a lower processor
priority than speech.

The scripts import nothing of this package, so their parameters are command-line arguments, the niceness last.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

NICENESS = 10
_NEEDED = frozenset(("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"))


async def run_isolated(script: Path, *arguments: float, data: bytes, wall_s: float) -> tuple[int, bytes, bytes]:
    """Run a script with `data` on stdin and return `(exit status, stdout, stderr)`. Cancelling the task ends the
    process.

    Raises:
        TimeoutError: it took longer than `wall_s`, and was ended.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",  # keeps the script's folder, which has a `codecs.py`, off the module path
        script,
        *map(str, (*arguments, NICENESS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # What an interpreter may need to start. Keys and tokens in our environment stay here.
        env={name: value for name, value in os.environ.items() if name in _NEEDED},
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(data), wall_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, stdout, stderr
