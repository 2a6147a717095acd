"""The worker processes of an engine, for tests that end them."""

from __future__ import annotations

from realtime_tts.workers.client import EngineClient


def worker_pids(client: EngineClient) -> list[int]:
    return [worker.supervisor.pid for worker in client._workers if worker.supervisor.pid is not None]
