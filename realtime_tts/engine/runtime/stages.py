"""Time of a step by stage: the runner reports the beginning of each stage to a clock, such as that of the bench."""

from __future__ import annotations

from typing import Final

LOC_ENC: Final = "locenc"  # the patches that are fed back, and the recordings in a prefill
BASE: Final = "base"
RESIDUAL: Final = "residual"
FLOW: Final = "flow"
VAE: Final = "vae"
REST: Final = "rest"  # packing, finiteness, storing the state: everything else
STAGES: Final = (LOC_ENC, BASE, RESIDUAL, FLOW, VAE, REST)


class StageClock:
    """Receiver of a runner's stages, called on the thread and the CUDA stream that the steps run on. This one measures
    nothing."""

    def mark(self, stage: str) -> None:
        """Begin `stage`, which lasts until the next mark. A stage may occur several times in a step."""

    def end(self) -> None:
        """End a step: all its work is launched. The next mark begins another one."""
