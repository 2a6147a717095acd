"""The server as a process of its own, or as a host with several, for tests that send signals to them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "serve_fake.py"


class ServerProcess:
    """`realtime-tts serve` with a fake worker.

    Args:
        worker: options of the worker.
        settings: of the server.
    """

    def __init__(self, log_path: Path, worker: dict[str, Any] | None = None, **settings: Any) -> None:
        self._log_path, self._log = log_path, log_path.open("w")
        command = [sys.executable, str(SCRIPT), json.dumps(settings), json.dumps(worker or {})]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout is not None
        announced = json.loads(self.process.stdout.readline())
        self.url, self.workers = announced["url"], announced["workers"]
        self.gateways: list[int] = announced["gateways"]

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/stream"

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        log = self._log_path.read_text()
        assert "Traceback" not in log
        assert not re.search(r"^\S+ error |\"level\": \"error\"", log, re.MULTILINE), log
