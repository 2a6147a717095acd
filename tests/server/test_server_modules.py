"""Few modules lie between a socket and its audio: a reader follows a delta, or a request, through so many files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import httpx
import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream

import realtime_tts

ROOT = Path(realtime_tts.__file__).parent
MAX_MODULES_OF_A_DELTA = 60
MAX_MODULES_OF_A_REQUEST = 25
NUM_RUNS = 12
# Their tasks run by the clock: on a slow machine in every run.
BACKGROUND = frozenset(
    str(ROOT / name) for name in ("server/upkeep.py", "server/run.py", "workers/supervisor.py", "workers/pool.py")
)


class ModuleTracer:
    """Records the modules of the package in which code runs, in every thread started after `install`."""

    def __init__(self) -> None:
        self._runs: list[set[str]] = []
        self._recording: set[str] | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextlib.contextmanager
    def one_run(self) -> Iterator[None]:
        self._recording = set()
        try:
            yield
        finally:
            self._runs.append(self._recording)
            self._recording = None

    @property
    def modules(self) -> list[str]:
        """Modules that every run has."""
        files = map(Path, set.intersection(*self._runs))
        return sorted(str(file.relative_to(ROOT)) for file in files if file.is_relative_to(ROOT))

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if (recording := self._recording) is None or event != "call":
            return
        # A probe of lateness runs in an encoder's thread, where the outermost function is the encoder's.
        if BACKGROUND.isdisjoint((task_of(frame), frame.f_code.co_filename)):
            recording.add(frame.f_code.co_filename)


def task_of(frame: FrameType) -> str:
    """File of the outermost function of the package that a call comes from."""
    outermost = ""
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code.co_filename.startswith(str(ROOT)):
            outermost = outer.f_code.co_filename
        outer = outer.f_back
    return outermost


@pytest.fixture
def tracer() -> ModuleTracer:
    return ModuleTracer()


@pytest.fixture
def traced_gateway(tracer: ModuleTracer) -> Iterator[GatewayHarness]:
    with tracer.installed(), GatewayHarness() as harness:
        yield harness


async def test_a_delta_passes_few_modules_on_its_way_to_a_packet(
    traced_gateway: GatewayHarness, tracer: ModuleTracer
) -> None:
    async with open_stream(traced_gateway.ws_url) as client:
        await client.send("session.start", protocol=1)
        await client.until("session.started")
        for number in range(NUM_RUNS):
            with tracer.one_run():
                await client.send("text", context_id=f"c{number}", text="Hello there, this is a sentence. And")
                await client.until("audio")
            await client.send("end", context_id=f"c{number}")
            await client.until_terminal(f"c{number}")
    modules = tracer.modules
    assert len(modules) <= MAX_MODULES_OF_A_DELTA, "\n".join(modules)


def test_a_request_for_speech_passes_few_modules_of_http(traced_gateway: GatewayHarness, tracer: ModuleTracer) -> None:
    with httpx.Client(base_url=traced_gateway.url, trust_env=False, timeout=30) as http:
        for _ in range(NUM_RUNS):
            with tracer.one_run():
                assert http.post("/v1/audio/speech", json={"input": "Hello there.", "voice": "default"}).is_success
    # The others speak the text, as they do for a delta.
    modules = [module for module in tracer.modules if module.startswith(("dialects", "server"))]
    assert len(modules) <= MAX_MODULES_OF_A_REQUEST, "\n".join(modules)
