"""Where a step's time goes: the runner says which stage begins, a clock notes when. The bench has such a clock."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

LOC_ENC: Final = "locenc"  # the patches that are fed back, and what recordings a prefill holds
BASE: Final = "base"
RESIDUAL: Final = "residual"
FLOW: Final = "flow"
VAE: Final = "vae"
REST: Final = "rest"  # packing, finiteness, the state's commit: what belongs to none of the others
STAGES: Final = (LOC_ENC, BASE, RESIDUAL, FLOW, VAE, REST)


class StageClock(Protocol):
    """What a runner tells of its steps, on the thread and the stream that it runs them on."""

    def begin(self, program: Hashable) -> None:
        """A step begins. `program`: None for an eager step, else which captured one is replayed (or captured now).

        A replay is told by this call alone: the marks are part of what was captured.
        """

    def mark(self, stage: str) -> None:
        """From here on the device works for `stage`, until the next mark; stages may come back within a step."""

    def end(self) -> None:
        """The step's work is all given to the device."""


class NoClock:
    """What a runner that nobody measures tells it to: nothing."""

    def begin(self, program: Hashable) -> None:
        pass

    def mark(self, stage: str) -> None:
        pass

    def end(self) -> None:
        pass
