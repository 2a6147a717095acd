"""An older major version of each service's own Python package against this server, in an environment of their own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from server_environment import ROOT
from vendor_gateways import API_KEY

HERE = Path(__file__).parent
PYTHON = os.environ.get("OLDER_CLIENTS_PYTHON", str(ROOT / ".venv-clients-older/bin/python"))
TEXT = "Hello there, this is a turn. And one more."
MIN_BYTES = 2.6 * 48_000  # so long the fake voice speaks TEXT, and at least
NAMES = ["cartesia", "deepgram-sdk", "elevenlabs", "openai"]

pytestmark = pytest.mark.skipif(not Path(PYTHON).is_file(), reason="needs the older clients: make test-clients")


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([PYTHON, "-W", "ignore", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@functools.lru_cache
def drive(name: str, url: str, key: str) -> dict[str, Any]:
    return run(str(HERE / "older_clients.py"), name, url, key)


def test_the_older_clients_are_installed_as_locked() -> None:
    script = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    lines = (HERE / "requirements-older.lock").read_text(encoding="utf-8").splitlines()
    assert {f"{name}=={version} \\" for name, version in run("-c", script, *NAMES).items()} <= set(lines), (
        "hashes follow"
    )


def test_openai_1(keyed_gateway: str) -> None:
    found = drive("openai", keyed_gateway, API_KEY)
    assert min(found["whole"], found["streamed"]) >= MIN_BYTES
    assert found["models"] == ["model"]


def test_cartesia_2(keyed_gateway: str) -> None:
    found = drive("cartesia", keyed_gateway, API_KEY)
    assert min(found["whole"], found["socket"], found["deltas"]) >= MIN_BYTES
    assert found["events"] == ["chunk", "done"]
    assert found["words"] == TEXT.split()
    assert (found["voices"], found["voice"]) == (["slt", "rms"], "rms")
    assert found["token"]


def test_elevenlabs_1(keyed_gateway: str) -> None:
    found = drive("elevenlabs", keyed_gateway, API_KEY)
    assert min(found["whole"], found["streamed"], found["deltas"]) >= MIN_BYTES
    assert found["characters"] == TEXT
    assert (found["voices"], found["found"], found["models"]) == (["slt", "rms"], ["rms"], 1)
    assert (found["user"], found["subscription"]) == ("active", "active")


def test_deepgram_4(keyed_gateway: str) -> None:
    found = drive("deepgram-sdk", keyed_gateway, API_KEY)
    assert min(found["whole"], found["deltas"]) >= MIN_BYTES
    assert found["characters"] == len(TEXT)
    assert [found[name] for name in ("model", "open", "flushed", "token")] == [True] * 4


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai", {"status": 401, "code": "unauthorized"}),
        ("cartesia", {"status": 401}),
        ("elevenlabs", {"status": 401, "code": "invalid_api_key"}),
        ("deepgram-sdk", {"refused": "401"}),
    ],
)
def test_a_wrong_key_is_told(keyed_gateway: str, name: str, told: dict[str, Any]) -> None:
    assert drive(name, keyed_gateway, "wrong") == told
