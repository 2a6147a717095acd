"""Solves a patch's flow from noise with Euler steps and classifier-free guidance (CFG-zero-star).

The loop has no host synchronisation and no data-dependent control flow: with a schedule made beforehand it can be
captured into a CUDA graph. Noise is an input.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import torch
from torch import Tensor, nn

from realtime_tts.model.local_transformers import LocDiT


@dataclasses.dataclass(frozen=True, slots=True)
class FlowSchedule:
    """A step grid: one Euler step of size `deltas[i]` for each time, with its embedding `embeddings[i]` ([num_evals,
    hidden]). guided: if false, velocities are those with the condition, and `cfg` is not used."""

    deltas: tuple[float, ...]
    embeddings: Tensor
    guided: bool = True


def step_grid(num_steps: int) -> list[tuple[float, float]]:
    """Return (time, step size) of each evaluation, from 1 to 0, with a sway that places more steps near the noise.

    The first max(1, 4 % of the points) steps have zero velocity by definition and are left out.
    """
    grid = torch.linspace(1, 0, num_steps + 1, device="cpu")
    grid = grid + (torch.cos(torch.pi / 2 * grid) - 1 + grid)
    num_skipped = max(1, int(len(grid) * 0.04))
    steps = []
    t, dt = grid[0], grid[0] - grid[1]
    for index in range(1, len(grid)):
        if index > num_skipped:
            steps.append((t.item(), dt.item()))
        t = t - dt
        if index < num_steps:
            dt = t - grid[index + 1]
    return steps


class FusedSolver(Protocol):
    """Replacement for `FlowMatching.forward`: see `fused`."""

    def forward(self, mu: Tensor, prefix: Tensor, noise: Tensor, schedule: FlowSchedule, cfg: Tensor) -> Tensor: ...


class FlowMatching(nn.Module):
    """Flow of a patch and its solver. estimator: the velocity field; mean_mode: it also receives the step size."""

    fused: FusedSolver | None = None

    def __init__(self, estimator: LocDiT, *, mean_mode: bool) -> None:
        super().__init__()
        self.estimator = estimator
        self.mean_mode = mean_mode

    def schedule(self, num_steps: int) -> FlowSchedule:
        """Return a schedule with time embeddings for a number of steps (≥ 2). Call it once, outside a capture."""
        if num_steps < 2:
            raise ValueError("at least 2 flow steps are needed: the first one does not evaluate the model")
        steps = step_grid(num_steps)
        device = self.estimator.in_proj.weight.device
        times, deltas = zip(*steps, strict=True)
        t, dt = (torch.tensor(column, device=device) for column in (times, deltas))
        embeddings = self.estimator.embed_time(t, dt if self.mean_mode else torch.zeros_like(dt))
        return FlowSchedule(deltas, embeddings)

    def forward(self, mu: Tensor, prefix: Tensor, noise: Tensor, schedule: FlowSchedule, cfg: Tensor) -> Tensor:
        """Solve the flow: mu [S, num_mu, hidden], prefix and noise [S, patch_size, latent_dim], cfg [S] → patch like
        noise, float32.

        The state stays float32 between steps, whatever the weights are.
        """
        if self.fused is not None:
            return self.fused.forward(mu, prefix, noise, schedule, cfg)
        dit = self.estimator
        dtype = dit.in_proj.weight.dtype
        num_streams = noise.shape[0]
        x = noise.float()
        cfg = cfg.float()[:, None, None]
        copies = 2 if schedule.guided else 1  # with the condition and without it
        mu = torch.cat((mu, torch.zeros_like(mu))) if schedule.guided else mu
        prefix = dit.cond_proj(prefix.to(dtype)).repeat(copies, 1, 1)
        for delta, time in zip(schedule.deltas, schedule.embeddings.split(1), strict=True):
            tokens = dit.in_proj(x.to(dtype)).repeat(copies, 1, 1)
            velocity = dit.velocity(tokens, mu, time, prefix).float()
            if schedule.guided:
                velocity = guide(velocity[:num_streams], velocity[num_streams:], cfg)
            x = x - delta * velocity
        return x


def guide(positive: Tensor, negative: Tensor, cfg: Tensor) -> Tensor:
    """Return the CFG-zero-star velocity: extrapolated from the unconditional one after scaling to its projection."""
    dot = (positive * negative).sum((1, 2), keepdim=True)
    scaled = negative * (dot / (negative.square().sum((1, 2), keepdim=True) + 1e-8))
    return scaled + cfg * (positive - scaled)
