"""The real thing: `realtime-tts serve` with the starter voice in a process of its own, and the Python API beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.recognition import Recogniser
from realtime_tts import TTS
from realtime_tts.bench.server_process import RunningServer, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running_server("--max-queued", "16") as running:  # on a slow machine speech waits, and is not refused
        yield running


@pytest.fixture(scope="session")
def tts() -> Iterator[TTS]:
    with TTS() as loaded:
        yield loaded


@pytest.fixture(scope="session")
def recogniser() -> Recogniser:
    return Recogniser()
