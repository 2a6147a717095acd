"""The clients are there, in the versions that the lock names, and the gateways that they talk to."""

from __future__ import annotations

import importlib.metadata
import json
import urllib.request
from pathlib import Path

import pytest
from vendor_gateways import gateway_figure, run_node

HERE = Path(__file__).parent
NAMED = (
    "cartesia",
    "deepgram-sdk",
    "elevenlabs",
    "livekit-plugins-cartesia",
    "livekit-plugins-deepgram",
    "livekit-plugins-elevenlabs",
    "livekit-plugins-openai",
    "openai",
    "pipecat-ai",
)


@pytest.mark.parametrize("name", NAMED)
def test_a_client_is_installed_as_locked(name: str) -> None:
    lines = (HERE / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert f"{name}=={importlib.metadata.version(name)} \\" in lines, "its hashes follow"


def test_the_javascript_clients_are_installed_as_locked() -> None:
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert run_node(HERE / "versions.mjs", *wanted) == wanted


def test_the_gateways_stand(fake_gateway: str) -> None:
    with urllib.request.urlopen(f"{fake_gateway}/readyz") as answer:
        assert answer.status == 200
    assert gateway_figure(fake_gateway, "engine_workers_ready") == 1
