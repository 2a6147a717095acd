"""Scripts that process untrusted input: each runs in a separate interpreter, reads stdin, and has a lower processor
priority than speech.

The scripts import nothing of this package, so their parameters are command-line arguments, the niceness last.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
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
        *_command(script, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(data), wall_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, stdout, stderr


def run_isolated_blocking(script: Path, *arguments: float, data: bytes, wall_s: float) -> tuple[int, bytes, bytes]:
    """`run_isolated` for callers without an event loop.

    Raises:
        subprocess.TimeoutExpired: it took longer than `wall_s`, and was ended.
    """
    command, env = _command(script, arguments), _environment()
    done = subprocess.run(command, input=data, capture_output=True, timeout=wall_s, check=False, env=env)
    return done.returncode, done.stdout, done.stderr


def _environment() -> dict[str, str]:
    """Return what an interpreter may need to start. Keys and tokens in our environment stay here."""
    return {name: value for name, value in os.environ.items() if name in _NEEDED}


def _command(script: Path, arguments: tuple[float, ...]) -> list[str]:
    # -I keeps the script's folder, where a `codecs.py` lies, off the module path.
    return [sys.executable, "-I", str(script), *map(str, (*arguments, NICENESS))]
