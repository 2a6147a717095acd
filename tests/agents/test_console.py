"""The voice agent at a console, at whose loudspeaker a file listens."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from server_environment import ROOT

RATE_HZ = 24_000


class Console:
    """A terminal with the agent in it."""

    def __init__(self, tts_url: str, directory: Path) -> None:
        self.played_path = directory / "played"
        self.shown = b""
        self._terminal, inside = pty.openpty()
        stand_in = ROOT / "tests/support/no_sound_card"
        environment = {**os.environ, "PLAYED_FILE": str(self.played_path), "TERM": "xterm", "COLUMNS": "200"}
        environment["PYTHONPATH"] = os.pathsep.join([str(stand_in), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, str(ROOT / "agents/voice_agent.py"), "--tts-url", tts_url, "--vad", "loudness"]
        self.process = subprocess.Popen(
            [*command, "--greeting", "Good morning to you.", "console"],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
        os.close(inside)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone with the last process in it
            while data := os.read(self._terminal, 1 << 14):
                self.shown += data

    def played(self) -> np.ndarray:
        """Int16 samples that were not silence."""
        samples = np.frombuffer(self.played_path.read_bytes() if self.played_path.exists() else b"", np.int16)
        return samples[np.abs(samples.astype(np.int32)) > 500]

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reading.join(10)
        os.close(self._terminal)


@pytest.fixture
def console(fake_gateway: str, tmp_path: Path) -> Iterator[Console]:
    one = Console(fake_gateway, tmp_path)
    yield one
    one.close()


@pytest.mark.timeout(120)
def test_a_greeting_is_heard_and_the_agent_ends_when_it_is_told_to(console: Console) -> None:
    end = time.monotonic() + 60
    while len(console.played()) < 0.5 * RATE_HZ:
        assert console.process.poll() is None, console.shown.decode(errors="replace")[-2000:]
        assert time.monotonic() < end, console.shown.decode(errors="replace")[-2000:]
        time.sleep(0.1)
    while b"Good morning" not in console.shown:
        assert time.monotonic() < end, console.shown.decode(errors="replace")[-2000:]
        time.sleep(0.1)
    console.process.send_signal(signal.SIGINT)  # what Ctrl+C is at a real terminal
    console.process.wait(30)
    shown = console.shown.decode(errors="replace")
    assert "Traceback" not in shown, shown[-4000:]
