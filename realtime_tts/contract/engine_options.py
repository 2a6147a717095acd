"""Options of one engine: the first message that a worker receives, and the table ``[engine]`` of the settings. Pure."""

from __future__ import annotations

import dataclasses
import re

from realtime_tts.contract.location import STARTER_VOICE
from realtime_tts.contract.policy import MAX_STEPS, MIN_STEPS
from realtime_tts.contract.setting import setting
from realtime_tts.errors import ConfigError

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of one engine; 0 and "auto" let the worker choose. Fields without help are not settings.

    device: auto, cpu, cuda or cuda:N.
    num_blocks: KV cache, blocks of 16 positions. The worker fits it to the device's memory.
    max_load: share of real time above which no context is accepted. An operator limits sessions instead.
    log_level: least severe log records to print.

    Raises:
        ConfigError: the device, the number of flow steps or the guidance is invalid.
    """

    model: str = setting(STARTER_VOICE, "Model: a directory, a Hugging Face id, or 'starter-voice' (in the package).")
    device: str = "auto"
    dtype: str = setting(
        "auto",
        "Number format of the weights; auto: bfloat16 on CUDA, float32 on CPU.",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    attention: str = setting(
        "auto",
        "Kernels: sdpa uses plain torch, triton fused kernels on CUDA; auto: triton where it is supported.",
        choices=("auto", "sdpa", "triton"),
    )
    eager: bool = setting(False, "Run without CUDA graphs: slower, but errors show where they occur.")
    fp8: str = setting(
        "off",
        "Matrix products in 8 bits, on Hopper GPUs from 46 streams on. flow: those of the flow, most of a step's work.",
        choices=("off", "flow"),
    )
    steps: int = setting(
        0, "Default number of flow steps for requests that set none; 0: the model's.", minimum=0, maximum=MAX_STEPS
    )
    guidance_from: float = setting(
        1.0, "Flow time, from 1 (noise) to 0 (speech), at which guidance begins.", minimum=0, maximum=1
    )
    guidance_to: float = setting(
        0.0, "Flow time at which guidance ends; a flow step without it takes half the work.", minimum=0, maximum=1
    )
    max_streams: int = setting(0, "Streams that one worker advances at once; 0: chosen from the device.", minimum=0)
    num_blocks: int = setting(
        0, "KV cache of one worker, blocks of 16 positions; 0: chosen from the device.", minimum=0
    )
    threads: int = setting(0, "CPU threads of a worker; 0: chosen from the machine.", minimum=0, maximum=1024)
    max_load: float = setting(
        0.0, "Share of real time beyond which a worker takes no new context; 0: it takes all.", minimum=0, maximum=1
    )
    max_adapters: int = setting(
        0,
        "Adapters loaded at a time, whose memory is held from the start; 0: those of --adapters, and 4 with "
        "--adapters-dir.",
        minimum=0,
        maximum=64,
    )
    max_adapter_rank: int = setting(32, "Largest rank of an adapter.", minimum=1, maximum=256)
    adapter_mlp: bool = setting(False, "Let adapters change the MLPs too, which takes three times their memory.")
    log_level: str = "info"

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise ConfigError(f"device {self.device!r} is unknown: give auto, cpu, cuda or cuda:N", field="devices")
        if self.steps and not MIN_STEPS <= self.steps <= MAX_STEPS:
            raise ConfigError(f"steps must be {MIN_STEPS} to {MAX_STEPS}, got {self.steps}", field="steps")
        if not 0.0 <= self.guidance_to < self.guidance_from <= 1.0:
            raise ConfigError(
                "guidance must go from a flow time to a lower one, both 0 to 1, "
                f"got {self.guidance_from:g} to {self.guidance_to:g}",
                field="guidance_from",
            )
