"""The worker processes of an engine, for tests that end them."""

from __future__ import annotations

from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import Supervisor


def supervisors(client: EngineClient) -> list[Supervisor]:
    assert isinstance(client.keeper, WorkerPool)
    return client.keeper.supervisors


def worker_pids(client: EngineClient) -> list[int]:
    return [supervisor.pid for supervisor in supervisors(client) if supervisor.pid is not None]
