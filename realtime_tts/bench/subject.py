"""The engine that a bench runs in its own process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import torch

from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.heap import resident_bytes
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.stages import StageClock
from realtime_tts.engine.setup import make_engine
from realtime_tts.engine.worker import load_checkpoint
from realtime_tts.model.checkpoint import LoadedModel

_MAX_WAITING = 1_000_000  # no stream is refused; waiting streams count as waiting


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """Checkpoint on its device whose streams have the requested length: its stop head is zero, the guard by characters
    is off, and speech behind the end of the text is not mended. A step takes the same time as with the original
    checkpoint."""

    loaded: LoadedModel
    device: torch.device
    options: EngineOptions
    load_s: float

    @classmethod
    def load(cls, options: EngineOptions) -> Subject:
        """Load a checkpoint. Raises CheckpointError, ConfigError: there is no such checkpoint or device."""
        started_s = time.perf_counter()
        loaded, device = load_checkpoint(options)
        with torch.inference_mode():
            loaded.model.stop_head.weight.zero_()
        loaded = dataclasses.replace(loaded, policy=dataclasses.replace(loaded.policy, max_patches_per_char=None))
        return cls(loaded, device, options, time.perf_counter() - started_s)

    @property
    def patch_s(self) -> float:
        """Audio of one patch, seconds."""
        return self.loaded.config.patch_samples / self.loaded.config.sample_rate

    def engine(
        self, emit: Callable[[frames.Message], None], stages: StageClock | None = None, **limits: float
    ) -> Engine:
        """Return a warm engine; arguments as `make_engine`'s."""
        limits |= {"max_waiting": _MAX_WAITING, "max_mends": 0}
        return make_engine(self.loaded, self.device, self.options, emit, stages, **limits)

    def forget_peak(self) -> None:
        """Restart the peak that `memory` reports."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def memory(self) -> dict[str, float]:
        """Return MiB: peak of all tensors and reserved memory of the device; resident memory of the process."""
        if self.device.type != "cuda":
            return {"rss_mib": resident_bytes() / 2**20}
        peak, reserved = torch.cuda.max_memory_allocated(self.device), torch.cuda.memory_reserved(self.device)
        return {"peak_mib": peak / 2**20, "reserved_mib": reserved / 2**20, "rss_mib": resident_bytes() / 2**20}

    def describe(self) -> dict[str, object]:
        """Return a description of the subject, for the record."""
        model, policy, is_cuda = self.loaded.model, self.loaded.policy, self.device.type == "cuda"
        device_name = torch.cuda.get_device_name(self.device) if is_cuda else "cpu"
        machine = {"device": str(self.device), "device_name": device_name, "threads": torch.get_num_threads()}
        values = {
            "dtype": str(model.dtype).removeprefix("torch."),
            "parameters": sum(p.numel() for p in model.parameters()),
        }
        defaults = {"default_steps": policy.default_steps, "default_cfg": policy.default_cfg}
        times = {"patch_ms": 1000 * self.patch_s, "load_s": self.load_s}
        options = dataclasses.asdict(self.options)
        return {"model": self.loaded.name, **machine, **values, **defaults, **times, "options": options}
