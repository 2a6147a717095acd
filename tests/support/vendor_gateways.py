"""Gateways as processes of the server's own environment, for other services' clients, which have another one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from server_environment import ROOT, server_python

API_KEY = "rtts_a-key-of-the-tests"
# It tells where in the text it is, and makes speech faster than it is heard.
WORKER = {"text_lag_ms": 80.0, "chars_per_patch": 2.5, "patch_delay_s": 0.01}
_START_S = 60.0


def with_key() -> dict[str, object]:
    """Settings of a gateway that asks for `API_KEY`."""
    return {"api_key_hashes": ["sha256:" + hashlib.sha256(API_KEY.encode()).hexdigest()]}


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])}


@contextlib.contextmanager
def running_gateway(settings: dict[str, object], worker: dict[str, object] | None = None) -> Iterator[str]:
    """Address of a gateway with a worker that has no model; for all that sound does not matter to."""
    script = str(ROOT / "tests/support/serve_fake.py")
    command = [server_python(), script, json.dumps(settings), json.dumps({**WORKER, **(worker or {})})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(), text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@contextlib.contextmanager
def running_starter_gateway() -> Iterator[str]:
    """Address of the whole server with the starter voice."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [server_python(), "-m", "realtime_tts", "serve", "--port", str(port), "--log-level", "error"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=_environment()) as process:
        try:
            _wait_until_ready(url, process)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{url}/readyz") as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not get ready")


def gateway_figure(url: str, name: str) -> float:
    """A figure of `/metrics`, summed over its labels; 0 if it was never counted."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    full_name = f"realtime_tts_{name}"
    values = [line.rsplit(" ", 1) for line in lines if line.startswith((full_name + " ", full_name + "{"))]
    return sum(float(value) for _, value in values)


def until_figure(url: str, name: str, wanted: float, timeout_s: float = 20.0) -> float:
    """The figure once it is as wanted, or what it is when the time is over."""
    end = time.monotonic() + timeout_s
    while (value := gateway_figure(url, name)) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return value


def num_at_work(url: str) -> float:
    """Requests that the worker has: spoken, waiting, ahead of their listener or of their text."""
    return sum(gateway_figure(url, f"engine_{state}") for state in ("running", "waiting", "parked", "awaiting_text"))


async def until_working(url: str, wanted: bool, timeout_s: float = 20.0) -> None:
    """Return when the worker says that it has something to do, or has nothing."""
    end = time.monotonic() + timeout_s
    while (await asyncio.to_thread(num_at_work, url) > 0) is not wanted:
        assert time.monotonic() < end, "nothing is spoken" if wanted else "something is still being spoken"
        await asyncio.sleep(0.02)


def run_node(script: Path, *args: str, timeout_s: float = 30.0) -> dict[str, object]:
    """Run a script with the JavaScript clients beside it; it prints one JSON object."""
    if not (script.parent / "node_modules/.package-lock.json").is_file():
        pytest.skip("needs the JavaScript clients: npm ci in tests/clients/vendors")
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        ["node", str(script), *args], capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result
