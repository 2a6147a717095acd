"""Training on several GPUs: a process each, started by torchrun, with the whole model and its own batches.

Gradients are averaged. Decisions that depend on a clock (rates, the end) are made by the first process. Without
torchrun there is one replica, and these calls have no effect.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True, slots=True)
class Replicas:
    """This process's number and how many there are."""

    rank: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> Replicas:
        """Return the replicas from torchrun's environment variables; uses no device yet."""
        return cls(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def rate_scale(self) -> float:
        """For the learning rate: larger batches bear larger steps. Cautious: the square root is usual for Adam."""
        return self.count**0.25

    def join(self, device: str) -> None:
        """Join the process group; on CUDA each process takes the GPU of its number."""
        if self.count == 1:
            return
        on_gpu = torch.device(device).type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.rank)
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")

    def wait(self) -> None:
        """Wait until all processes have reached this call."""
        if self.count > 1:
            dist.all_reduce(torch.zeros(1))

    def end(self) -> None:
        """The last call: ends this process when all have come so far. Destroying the group instead was seen to hang for
        good on GPUs: a captured step holds on to its communicator."""
        if self.count > 1:
            self.wait()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def share(self, module: nn.Module) -> None:
        """Copy the first process's weights to all processes."""
        if self.count > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, 0)

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """In place. May be part of a captured step."""
        if self.count == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients]) / self.count
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def agreed(self, *values: float) -> tuple[float, ...]:
        """The first process's values, on the host; waits for it."""
        if self.count == 1:
            return values
        shared = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(shared, 0)
        return tuple(shared.tolist())
