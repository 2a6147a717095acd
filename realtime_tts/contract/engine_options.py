"""Options of one engine: a worker's argument, and the table ``[engine]`` of the settings. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TypeVar

from realtime_tts.contract.location import STARTER_VOICE
from realtime_tts.contract.speech_params import MAX_FLOW_STEPS, MIN_FLOW_STEPS
from realtime_tts.errors import ConfigError

T = TypeVar("T")

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def setting(
    default: T,
    help: str,  # noqa: A002 - the name in every option parser
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Return a dataclass field with its help, bounds and choices as metadata; `realtime_tts.config` collects them."""
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of one engine; 0 and "auto" let the worker choose. Fields without help are not settings.

    device: auto, cpu, cuda or cuda:N. An operator sets `devices`.
    dtype: number format of the weights: float32, bfloat16 or float16; auto: the checkpoint's on CUDA, float32 on the
        CPU. Other formats are for comparisons.
    num_blocks: KV cache, blocks of 16 positions. `max_streams` bounds memory in an operator's terms.
    revision: commit of a model on the hub; "": the newest.
    worker_log_level: least severe log records to print; a server's `log_level`.
    worker_log_format: text or json; a server's `log_format`.

    Raises:
        ConfigError: the device or the number of flow steps is invalid.
    """

    model: str = setting(STARTER_VOICE, "Model: a directory, a Hugging Face id, or 'starter-voice' (in the package).")
    revision: str = ""
    device: str = "auto"
    dtype: str = "auto"
    attention: str = setting(
        "auto",
        "Kernels. sdpa: plain torch; triton: fused kernels on CUDA; auto: triton where it is supported; eager: auto "
        "without CUDA graphs, slower, but errors show where they occur.",
        choices=("auto", "sdpa", "triton", "eager"),
    )
    fp8: str = setting(
        "off",
        "Matrix products in 8 bits, on Hopper GPUs from 46 streams on. flow: those of the flow, most of a step's work.",
        choices=("off", "flow"),
    )
    flow_steps: int = setting(
        0, "Default number of flow steps for requests that set none; 0: the model's.", minimum=0, maximum=MAX_FLOW_STEPS
    )
    max_streams: int = setting(0, "Streams that one worker advances at once; 0: chosen from the device.", minimum=0)
    num_blocks: int = 0
    threads: int = setting(0, "CPU threads of a worker; 0: chosen from the machine.", minimum=0, maximum=1024)
    max_adapters: int = 0  # loaded at a time, whose memory is held from the start
    max_adapter_rank: int = setting(32, "Largest rank of an adapter.", minimum=1, maximum=256)
    adapter_mlp: bool = setting(False, "Let adapters change the MLPs too, which takes three times their memory.")
    worker_log_level: str = "info"
    worker_log_format: str = "text"

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise ConfigError(f"device {self.device!r} is unknown: give auto, cpu, cuda or cuda:N", field="devices")
        if self.flow_steps and not MIN_FLOW_STEPS <= self.flow_steps <= MAX_FLOW_STEPS:
            message = f"flow_steps must be {MIN_FLOW_STEPS} to {MAX_FLOW_STEPS}, got {self.flow_steps}"
            raise ConfigError(message, field="flow_steps")
