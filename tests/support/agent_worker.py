"""`agents/voice_agent.py` as a worker in a separate process group, and its journal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0


class AgentWorker:
    """Use as a context manager; registered with the LiveKit server inside.

    Args:
        environment: where the LiveKit server is.
        flags: of the agent.
    """

    def __init__(self, environment: dict[str, str], tts_url: str, directory: Path, *flags: str) -> None:
        self.journal_path = directory / "journal"
        self._log_path = directory / "log"
        self._environment = environment
        own = ["--tts-url", tts_url, "--vad", "loudness", "--greeting", "", "--journal", str(self.journal_path), *flags]
        self._command = [sys.executable, str(ROOT / "agents/voice_agent.py"), *own, "--health-port", "0"]
        self._command += ["--load-threshold", "inf", "start"]
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> AgentWorker:
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + START_S
        while "registered worker" not in (log_text := self._log_path.read_text(encoding="utf-8")):
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the worker did not register:\n{log_text[-4000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the worker and all processes of its conversations without warning."""
        if self.process.poll() is None or _has_members(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def ask_to_end(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def resident_bytes(self) -> int:
        """Return the memory of the worker and its conversations' processes, in bytes."""
        return sum(process.memory_info().rss for process in _members(self.process.pid))

    def events(self, event: str, room: str, since: float = 0.0) -> list[dict[str, Any]]:
        lines = self.journal_path.read_text(encoding="utf-8").splitlines() if self.journal_path.exists() else []
        found = [json.loads(line) for line in lines]
        return [one for one in found if one["event"] == event and one["room"] == room and one["at"] >= since]

    async def until(self, event: str, room: str, since: float = 0.0, times: int = 1, **fields: Any) -> dict[str, Any]:
        """Wait for the first event of a kind, or the event of a number, with these fields."""

        async def poll() -> dict[str, Any]:
            while True:
                events = self.events(event, room, since)
                found = [one for one in events if all(one.get(name) == value for name, value in fields.items())]
                if len(found) >= times:
                    return found[times - 1]
                await asyncio.sleep(0.02)

        return await asyncio.wait_for(poll(), 60)


def _members(group: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group:
                yield process


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
