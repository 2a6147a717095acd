"""Plugins and agents have an environment of their own (`make test-agents`); elsewhere their tests are not collected."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
from server_environment import ROOT, server_python

if importlib.util.find_spec("livekit") is None or importlib.util.find_spec("pipecat") is None:
    collect_ignore_glob = ["test_*.py"]

# LiveKit and Pipecat warn of what they themselves, or what they stand on, will have to change.
THEIR_WARNINGS = ("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning", "ignore::FutureWarning")


def pytest_configure(config: pytest.Config) -> None:
    if "collect_ignore_glob" not in globals():
        for warning in THEIR_WARNINGS:
            config.addinivalue_line("filterwarnings", warning)


@pytest.fixture(scope="session")
def fake_gateway() -> Iterator[str]:
    """Address of a gateway whose worker tells where in the text it is, and makes speech faster than it is heard."""
    options = {"text_lag_ms": 80.0, "chars_per_patch": 2.5, "patch_delay_s": 0.01}
    with subprocess.Popen(
        [server_python(), str(ROOT / "tests/support/serve_fake.py"), "{}", json.dumps(options)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])},
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@pytest.fixture(scope="session")
def speech_url() -> Iterator[str]:
    """A server with the starter voice, in the server's own environment."""
    from livekit_room import wait_for_http
    from ports import free_port

    port = free_port()
    command = [server_python(), "-m", "realtime_tts", "serve", "--port", str(port), "--log-level", "error"]
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": directory}
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            try:
                wait_for_http(f"http://127.0.0.1:{port}/readyz", process)
                yield f"ws://127.0.0.1:{port}"
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(20)
