"""Training progress that survives an interruption: state saved every minute, a time limit, a log of the losses."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Ema:
    """Exponential moving average of a module's parameters, kept in float32."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = list(module.parameters())
        self.shadow = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """`step` from 0: early averages are short, so that the random start is forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.shadow, self.parameters, 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange averages and parameters; call again to undo."""
        for average, parameter in zip(self.shadow, self.parameters, strict=True):
            kept = parameter.data.clone()
            parameter.data.copy_(average)
            average.copy_(kept)


class Run:
    """A training run's schedule, state file and log.

    A run lasts `num_steps` steps or `seconds` of training time, whichever is given and ends first; both count on over
    restarts. `more_seconds`, instead of `seconds`, are from now on, whatever was trained before. `session_seconds` ends
    this process early, saved and ready to be resumed.
    folder: holds state.pt (everything to resume) and log.jsonl (one object a line).
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_steps: int | None,
        seconds: float | None,
        more_seconds: float | None = None,
        session_seconds: float | None = None,
        save_every_s: float = 60,
    ) -> None:
        if num_steps is None and seconds is None and more_seconds is None:
            raise ValueError("a run needs an end: steps or seconds")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.step = 0
        self._num_steps, self._session_seconds = num_steps, session_seconds
        self._more_seconds = more_seconds
        self._seconds = seconds if more_seconds is None else more_seconds
        self._start = self._saved = time.monotonic()
        self._earlier_s = 0.0
        self._save_every_s = save_every_s

    @property
    def state_path(self) -> Path:
        return self.folder / "state.pt"

    def elapsed(self) -> float:
        """Training seconds, those of earlier processes included."""
        return self._earlier_s + time.monotonic() - self._start

    def start_clock(self) -> None:
        """Start the schedules after the preparations, whose time counts in the run's seconds, too."""
        if self._seconds is not None:
            self._seconds -= min(time.monotonic() - self._start, 0.9 * self._seconds)
        self._start = time.monotonic()

    @property
    def progress(self) -> float:
        """0 at the start, 1 at the end."""
        by_steps = self.step / self._num_steps if self._num_steps else 0.0
        by_time = self.elapsed() / self._seconds if self._seconds else 0.0
        return min(1.0, max(by_steps, by_time))

    @property
    def is_paused(self) -> bool:
        """True if this process's time is used up."""
        return self._session_seconds is not None and time.monotonic() - self._start > self._session_seconds

    @property
    def goes_on(self) -> bool:
        return self.progress < 1.0 and not self.is_paused

    def load(self, map_location: torch.device | str) -> dict[str, Any] | None:
        """The last saved state, with step and clock set to it, or None at a fresh start."""
        if not self.state_path.exists():
            return None
        state = torch.load(self.state_path, map_location=map_location, weights_only=True)
        self.step, self._earlier_s = state["step"], state["elapsed_s"]
        if self._more_seconds is not None:
            self._seconds = self._earlier_s + self._more_seconds
        self._start = time.monotonic()
        return state

    def save_due(self) -> bool:
        return time.monotonic() - self._saved > self._save_every_s

    def save(self, **state: Any) -> None:
        """Replace the state file atomically: an interruption leaves the old file intact."""
        partial = self.state_path.with_suffix(".partial")
        torch.save({**state, "step": self.step, "elapsed_s": self.elapsed()}, partial)
        os.replace(partial, self.state_path)
        self._saved = time.monotonic()

    def log(self, **values: float) -> None:
        values = {"step": self.step, "seconds": self.elapsed(), **values}
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps({key: round(float(value), 5) for key, value in values.items()}) + "\n")


def cosine_rate(step: int, progress: float, peak: float, warmup: int = 300, floor: float = 0.03) -> float:
    """Linear warm-up over `warmup` steps, then half a cosine over the run down to `floor` × `peak`."""
    return peak * min(1.0, (step + 1) / warmup) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def adam_w(groups: Any, device: torch.device, betas: tuple[float, float]) -> torch.optim.AdamW:
    """AdamW with its rate in a tensor (see `set_rate`), so that a captured step can be told another one."""
    on_gpu = device.type == "cuda"
    rate = torch.zeros((), device=device)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, weight_decay=0.0, fused=on_gpu, capturable=on_gpu)


def restore_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any], device: torch.device) -> None:
    """Loads a state of `adam_w`'s, wherever it was read to: torch moves the moments to the device, but not the rate."""
    optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"].to(device)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"].fill_(rate)


def clip(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Clips gradients in place; returns their norm."""
    return nn.utils.clip_grad_norm_(list(parameters), max_norm, foreach=True)
