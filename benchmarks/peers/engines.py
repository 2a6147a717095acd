"""The engines that are compared, each behind the same call: a text in, the moments of its audio out.

Each is driven through the interface that it offers to other programs, its model where it likes to have it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

STEPS, CFG = 10, 2.0


class Peer(Protocol):
    """One engine, loaded. at_once: how many streams it can be asked for."""

    at_once: int

    async def start(self, model: Path, max_streams: int) -> None:
        """Load the engine; return when it is ready."""

    def speak(self, text: str, num_patches: int, seed: int) -> AsyncIterator[int]:
        """Yield the number of samples of each piece of audio as it arrives."""

    async def stop(self) -> None: ...


class Ours:
    """A worker process and its client, one request for each text."""

    at_once = 1 << 20

    async def start(self, model: Path, max_streams: int) -> None:
        from realtime_tts.contract.engine_options import EngineOptions
        from realtime_tts.workers.client import EngineClient
        from realtime_tts.workers.supervisor import WorkerSpec

        self._client = EngineClient([WorkerSpec(EngineOptions(str(model), max_streams=max_streams))])
        await self._client.start()
        self._number = 0

    async def speak(self, text: str, num_patches: int, seed: int) -> AsyncIterator[int]:
        from realtime_tts.contract import frames

        self._number += 1
        name = f"peer-{self._number}"
        request = frames.Generate(
            name, name, text, seed=seed, cfg=CFG, steps=STEPS, max_patches=num_patches, paced=False
        )
        async for message in self._client.submit(request):
            if isinstance(message, frames.Audio):
                yield len(message.payload) // 2
            elif isinstance(message, frames.Failed):
                raise RuntimeError(message.message)
        self._client.close_context(name)

    async def stop(self) -> None:
        await self._client.close()


class NanoVLLM:
    """`nano-vllm-voxcpm`. tuned: as many slots and positions as are used, and no pause that collects commands."""

    at_once = 512

    def __init__(self, tuned: bool) -> None:
        self._tuned = tuned

    async def start(self, model: Path, max_streams: int) -> None:
        from nanovllm_voxcpm import VoxCPM

        limits: dict[str, Any] = {}
        if self._tuned:
            os.environ["NANOVLLM_QUEUE_COALESCE_MS"] = "0"
            limits = {"max_num_seqs": max_streams, "max_model_len": 1024, "max_num_batched_tokens": 8192}
        self._pool = VoxCPM.from_pretrained(str(model), inference_timesteps=STEPS, devices=[0], **limits)
        await self._pool.wait_for_ready()

    async def speak(self, text: str, num_patches: int, seed: int) -> AsyncIterator[int]:
        # Without a seed it draws noise for the whole batch at once, which is faster.
        async for samples in self._pool.generate(text, max_generate_length=num_patches, cfg_value=CFG):
            yield len(samples)

    async def stop(self) -> None:
        await self._pool.stop()


class Reference:
    """`voxcpm`, the authors' own; one stream at a time. compiled: with torch.compile, as by default."""

    at_once = 1

    def __init__(self, compiled: bool) -> None:
        self._compiled = compiled

    async def start(self, model: Path, max_streams: int) -> None:
        from voxcpm import VoxCPM

        self._model = VoxCPM(str(model), enable_denoiser=False, optimize=self._compiled)

    async def speak(self, text: str, num_patches: int, seed: int) -> AsyncIterator[int]:
        pieces = self._model.generate_streaming(
            text, cfg_value=CFG, inference_timesteps=STEPS, max_len=num_patches, retry_badcase=False
        )
        for samples in pieces:
            yield len(samples)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        pass


PEERS = {
    "ours": Ours,
    "nano-vllm-voxcpm, defaults": lambda: NanoVLLM(tuned=False),
    "nano-vllm-voxcpm, tuned": lambda: NanoVLLM(tuned=True),
    "voxcpm, compiled (its default)": lambda: Reference(compiled=True),
    "voxcpm, eager": lambda: Reference(compiled=False),
}
