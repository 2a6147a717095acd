"""Creates a ready engine from options and a machine: device, threads, sizes, warm-up."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import torch

from realtime_tts.contract import frames
from realtime_tts.contract.cores import usable_cores
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.core.block_pool import BLOCK_SIZE
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.backends import choose_backend
from realtime_tts.engine.runtime.stages import StageClock
from realtime_tts.errors import ConfigError, EngineStartError
from realtime_tts.model.adapted import AdapterBank, AdapterLimits
from realtime_tts.model.checkpoint import LoadedModel

logger = logging.getLogger(__name__)

_CUDA_MEMORY_SHARE = 0.7  # of the memory free after loading; the rest is for activations
_CUDA_POSITIONS_PER_STREAM, _CPU_POSITIONS_PER_STREAM = 2048, 1024
_CUDA_MAX_STREAMS, _CPU_MAX_STREAMS = 1024, 16
_CUDA_LEAST_POSITIONS = 1024  # per stream: with little memory there are fewer streams, not shorter ones
CUDA_FULL_STREAMS = 128  # on an H200 a step takes 0.20 ms for each of that many, and 0.19 for each of twice as many
_WARM_UP_TEXT = "Hello there."
_WARM_UP_SENTENCE = "Good morning, how can I help you today, and what may I do for you?"


def choose_device(name: str) -> torch.device:
    """Return a device that works. Raises ConfigError: it does not exist here or cannot be used."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} cannot be used: {error}", field="device") from error
    return device


def choose_threads(threads: int) -> int:
    """Return the number of torch threads. For 0: one core is left to the gateway, and more than eight bring no gain."""
    return threads if threads else max(1, min(8, usable_cores() - 1))


def choose_config(loaded: LoadedModel, device: torch.device, options: EngineOptions) -> SchedulerConfig:
    """Return numbers of streams and KV blocks that fit the device.

    Raises:
        EngineStartError: no memory is left for the KV cache.
    """
    config, is_cpu = loaded.config, device.type == "cpu"
    positions = min(config.max_length, _CPU_POSITIONS_PER_STREAM if is_cpu else _CUDA_POSITIONS_PER_STREAM)
    max_streams, room = options.max_streams or _CPU_MAX_STREAMS, 1 << 62
    if not is_cpu:
        values = config.num_kv_layers * 2 * BLOCK_SIZE * config.base.num_kv_heads * config.base.head_dim
        free_bytes, _ = torch.cuda.mem_get_info(device)
        room = int(_CUDA_MEMORY_SHARE * free_bytes / (values * loaded.model.dtype.itemsize))
        least = -(-min(config.max_length, _CUDA_LEAST_POSITIONS) // BLOCK_SIZE)
        max_streams = options.max_streams or max(1, min(_CUDA_MAX_STREAMS, (options.num_blocks or room) // least))
    num_blocks = options.num_blocks or min(room, max_streams * -(-positions // BLOCK_SIZE))
    if num_blocks < 1:
        raise EngineStartError("no device memory is left for the KV cache")
    return SchedulerConfig(
        num_blocks=num_blocks,
        max_streams=max_streams,
        max_positions=config.max_length,
        patch_s=config.patch_samples / config.sample_rate,
        min_patches=config.min_patches,
        **({} if is_cpu else {"full_streams": CUDA_FULL_STREAMS}),
    )


def make_engine(
    loaded: LoadedModel,
    device: torch.device,
    options: EngineOptions,
    emit: Callable[[frames.Message], None] = lambda message: None,
    stages: StageClock | None = None,
    **limits: Any,
) -> Engine:
    """Return a warmed-up engine for a loaded model.

    Args:
        emit, stages: as in `Engine`.
        limits: fields of `SchedulerConfig` that override the chosen values.
    """
    bank = None
    if options.max_adapters:
        limits_of_adapters = AdapterLimits(options.max_adapters, options.max_adapter_rank, options.adapter_mlp)
        bank = AdapterBank(loaded.model, limits_of_adapters)
    is_eager = options.attention == "eager"
    backend = choose_backend("auto" if is_eager else options.attention, loaded.model, fp8=options.fp8)
    config = dataclasses.replace(choose_config(loaded, device, options), **limits)
    engine = Engine(loaded, config, emit, stages=stages, backend=backend, bank=bank)
    if not is_eager:
        capture(engine)
    warm_up(engine)
    return engine


def capture(engine: Engine) -> None:
    """Capture the engine's programs into CUDA graphs where possible, with a progress bar at a terminal.

    Raises:
        EngineStartError: a kernel could not be built or captured, or there is no memory for it.
    """
    started_s = time.monotonic()
    try:
        num_graphs = engine.runner.capture()
    except RuntimeError as error:
        raise EngineStartError(f"no CUDA graphs could be captured; try --attention eager: {error}") from error
    if num_graphs:
        logger.info("captured %d CUDA graphs in %.1f s", num_graphs, time.monotonic() - started_s)


def warm_up(engine: Engine) -> None:
    """Run requests as clients send them, then a few patches at each batch size in use: the first client meets no
    initialization, and the cost of a step is measured. Everything else is reset."""
    _warm_up_context(engine)
    # First runs are not representative of later ones.
    is_cpu, typical_work = engine.runner.device.type == "cpu", engine.config.typical_work
    engine.scheduler.cost = (
        StepCost.on_cpu(engine.quickest_step_s, typical_work) if is_cpu else StepCost(typical_work=typical_work)
    )
    size, largest = 1, min(engine.config.max_streams, 2 if is_cpu else 256)
    while size <= largest:
        for number in range(size):
            name = f"warm-up-{size}-{number}"
            engine.post(frames.Generate(name, name, _WARM_UP_TEXT, seed=number, max_patches=4, paced=False))
        _run_to_end(engine)
        for number in range(size):
            engine.post(frames.CloseContext(f"warm-up-{size}-{number}"))
        size *= 2
    engine.step()
    engine.reset_statistics()
    step_s, patch_s = engine.scheduler.cost.step_s(1, 0), engine.config.patch_s
    if step_s > patch_s:
        logger.warning("the device is too slow for live speech: it needs %.2f s for %.2f s of it", step_s, patch_s)


def _warm_up_context(engine: Engine) -> None:
    """Run a context in the default voice: a text that is extended while it is spoken, and one that continues it."""
    voice = engine.loaded.policy.default_voice
    begun, whole = _WARM_UP_SENTENCE[: len(_WARM_UP_SENTENCE) // 2], _WARM_UP_SENTENCE
    engine.post(frames.Generate("extended", "warm-up", begun, voice=voice, max_patches=4, paced=False, final=False))
    for _ in range(2):
        engine.step()
    engine.post(frames.Extend("extended", whole, final=True))
    _run_to_end(engine)
    engine.post(frames.Generate("continued", "warm-up", whole, voice=voice, max_patches=2, paced=False))
    _run_to_end(engine)
    engine.post(frames.CloseContext("warm-up"))
    engine.step()


def _run_to_end(engine: Engine) -> None:
    while engine.step() or not engine.is_idle:
        pass


def ready_message(engine: Engine, device: torch.device, options: EngineOptions, load_s: float) -> frames.Ready:
    """Return the worker's description for the gateway."""
    loaded, config = engine.loaded, engine.config
    return frames.Ready(
        model=loaded.name,
        device=str(device),
        dtype=str(loaded.model.dtype).removeprefix("torch."),
        backend=engine.runner.backend.name,
        sample_rate=loaded.config.sample_rate,
        patch_samples=loaded.config.patch_samples,
        policy=loaded.policy.to_map(),
        max_streams=config.max_streams,
        takes_instructions=loaded.supports_instructions,
        fp8=options.fp8,
        load_s=load_s,
        revision=options.revision,
    )
