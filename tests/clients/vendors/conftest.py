"""Other services' clients have an environment of their own (`make test-clients`); elsewhere nothing is collected."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from vendor_gateways import running_gateway, running_starter_gateway, with_key

CLIENTS = ("cartesia", "deepgram", "elevenlabs", "livekit", "openai", "pipecat")
if any(importlib.util.find_spec(name) is None for name in CLIENTS):
    collect_ignore_glob = ["test_*.py"]

# The clients warn of what they themselves, or what they stand on, will have to change.
THEIR_WARNINGS = ("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning", "ignore::FutureWarning")


def pytest_configure(config: pytest.Config) -> None:
    if "collect_ignore_glob" not in globals():
        for warning in THEIR_WARNINGS:
            config.addinivalue_line("filterwarnings", warning)


@pytest.fixture(scope="session")
def fake_gateway() -> Iterator[str]:
    """A gateway without keys."""
    with running_gateway({}) as url:
        yield url


@pytest.fixture(scope="session")
def keyed_gateway() -> Iterator[str]:
    """One that asks for `vendor_gateways.API_KEY`."""
    with running_gateway(with_key()) as url:
        yield url


@pytest.fixture(scope="session")
def full_gateway() -> Iterator[str]:
    """One whose only place is taken."""
    from websockets.sync.client import connect

    with (
        running_gateway({"max_sessions": 1}) as url,
        connect(url.replace("http", "ws", 1) + "/v1/stream", proxy=None),
    ):
        yield url


@pytest.fixture(scope="session")
def starter_gateway() -> Iterator[str]:
    """The whole server with the starter voice, for tests that listen."""
    with running_starter_gateway() as url:
        yield url
