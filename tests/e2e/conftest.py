"""Whole servers in processes of their own, and the Python API: with the starter voice, or with a random one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.recognition import Recogniser
from realtime_tts import TTS
from realtime_tts.bench.server_process import RunningServer, running_server

QUEUED = ("--max-queued", "16")  # on a slow machine speech waits, and is not refused


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running_server(*QUEUED) as running:
        yield running


@pytest.fixture(scope="session")
def tiny_server(tiny_voice: Path) -> Iterator[RunningServer]:
    with running_server(*QUEUED, "--model", str(tiny_voice)) as running:
        yield running


@pytest.fixture(scope="session")
def tts() -> Iterator[TTS]:
    with TTS() as loaded:
        yield loaded


@pytest.fixture(scope="session")
def tiny_tts(tiny_voice: Path) -> Iterator[TTS]:
    with TTS(model=str(tiny_voice)) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def recogniser() -> Recogniser:
    return Recogniser()
