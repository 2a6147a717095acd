"""Private directory for the sockets of child processes, and removal of the directories of killed owners.

An owner holds a lock on its directory for as long as it runs. The kernel releases the lock however the owner ends, so
that no process id has to be trusted. The file `worker` holds the process ids of the children. Such a process is
recognised as a child by the directory's path in its command line.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time

logger = logging.getLogger(__name__)

_PREFIX = "realtime-tts-"  # name prefix once the owner holds the lock; without a lock the owner is gone
_NEW_PREFIX = ".realtime-tts-"  # name prefix before the lock is taken
_CLIENTS, _WORKER = "clients.sock", "worker"
_OURS = re.compile(r"(clients|gateway-\d+|metrics-\d+)\.sock|worker|token-secret")
_OUR_DIRECTORIES = ("figures", "voices")
_MAX_NOTE_BYTES = 4096
_KILLED_S = 5.0  # longest wait for a killed process; exceeded only if the kernel hangs


class SocketDirectory:
    """Directory owned from now until `remove`: of one worker, or of a host and its gateways.

    Attributes:
        clients_path: path of the socket at which a worker takes clients.

    Raises:
        OSError: no directory can be made now.
    """

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix=_NEW_PREFIX)  # mode 0700: other users cannot connect
        try:
            self._descriptor = _open_directory(self.path)
        except OSError:
            os.rmdir(self.path)
            raise
        # Some file systems have no locks. There, a later start cannot remove this directory; nothing else is affected.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            head, tail = os.path.split(self.path)
            path = os.path.join(head, tail.removeprefix("."))
            os.rename(self.path, path)  # after the lock: under this name a directory without one is a leftover
            self.path = path
        self.clients_path = os.path.join(self.path, _CLIENTS)

    def note_worker(self, *pids: int) -> None:
        """Store the process ids of children, for a later start to end them if this process is killed. Ignored on a full
        disk."""
        with contextlib.suppress(OSError), open(os.path.join(self.path, _WORKER), "w", encoding="ascii") as file:
            file.write("\n".join(map(str, pids)))

    def remove(self) -> None:
        _remove(self.path, self._descriptor)
        os.close(self._descriptor)


def clear_leftovers() -> None:
    """Remove the directories of ended owners, and end the workers that have outlived them.

    Only directories of this user without access for others; those in use stay. May block for some seconds.
    """
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError):  # another user's, in use, or just removed
                _clear(os.path.join(parent, name))


def _clear(path: str) -> None:
    directory = _open_directory(path)
    try:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for pid in _noted_workers(directory):
            _end_worker(pid, os.path.join(path, ""))
        _remove(path, directory)
    finally:
        os.close(directory)
    logger.info("removed the directory of a killed gateway: %s", path)


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(path: str, directory: int) -> None:
    """Remove the known files of a directory, and the directory unless it holds other files.

    Uses its descriptor, as the path may lead elsewhere by now, if others can write to a parent directory.
    """
    with contextlib.suppress(OSError):
        for name in filter(_OURS.fullmatch, os.listdir(directory)):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
    for name in _OUR_DIRECTORIES:
        shutil.rmtree(os.path.join(path, name), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _noted_workers(directory: int) -> list[int]:
    try:
        with open(os.open(_WORKER, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory), encoding="ascii") as file:
            return [int(line) for line in file.read(_MAX_NOTE_BYTES).splitlines()]
    except (OSError, ValueError):  # no file yet, or the disk was full
        return []


def _end_worker(pid: int, directory_path: str) -> None:
    """Kill a process by SIGKILL, which also ends a stopped one. Return when it has ended: its successor needs the
    device's memory."""
    end_s = time.monotonic() + _KILLED_S
    while directory_path in _command_line(pid):
        os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end_s:
            logger.error("the worker of a killed gateway, process %d, does not end", pid)
            return
        time.sleep(0.02)


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if it has ended or is a zombie."""
    if os.path.isdir("/proc/self"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return os.fsdecode(file.read())
        except OSError:
            return ""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
