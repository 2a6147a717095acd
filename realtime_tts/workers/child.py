"""Management of child processes: start, waiting on several conditions, and termination in any state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Coroutine, Mapping, Sequence

from realtime_tts.contract.watch import end_tasks
from realtime_tts.workers.watchdog import Watchdog

Process = asyncio.subprocess.Process


async def start_child(
    command: Sequence[str], env: Mapping[str, str] | None = None
) -> tuple[Process, asyncio.StreamReader, asyncio.StreamWriter]:
    """Start `command` with ``--control FD`` appended; return the process, and the connection to its descriptor FD.

    Raises:
        OSError: it cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                *("--control", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=env,
                start_new_session=True,  # Ctrl-C signals the parent only, which then drains
            )
        except BaseException:
            writer.transport.abort()
            raise
    return process, reader, writer


async def until_one_ends(*parts: Coroutine[object, None, object]) -> None:
    """Run all as tasks until the first ends, and cancel the others. Raises the first one's exception."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks(*tasks)


async def until_silent(watchdog: Watchdog) -> None:
    """Return when the watchdog gives up."""
    clock = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(watchdog.tick_s)
        if watchdog.tick(clock()):
            return


def signal_child(process: Process, number: signal.Signals) -> None:
    """Send a signal; ignore a process that has ended."""
    # Before Python 3.13.2 `process.send_signal` reaps a process that has just ended, and its exit status is lost.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def end_child(process: Process, number: signal.Signals = signal.SIGKILL, limit_s: float | None = None) -> int:
    """Send a signal, and SIGKILL if the process still runs `limit_s` later. Return its exit status once it has
    ended."""
    signal_child(process, number)
    try:
        return await asyncio.wait_for(process.wait(), limit_s)
    except TimeoutError:
        signal_child(process, signal.SIGKILL)
        return await process.wait()
