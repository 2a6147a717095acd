"""Training audio on the device, which grows while the teacher is still generating."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.speakers import SAMPLE_RATE_HZ
from training.teacher import AudioChunk


class AudioPool:
    """All chunks of a folder, each a tensor on the device; `refresh` takes in those that have appeared since.

    Chunks are not joined: that would need their memory twice, beside a teacher that shares the GPU.
    """

    def __init__(self, folder: Path, device: torch.device | str, max_chunks: int | None = None) -> None:
        self.folder, self.device, self.max_chunks = folder, device, max_chunks
        self.chunks: dict[str, AudioChunk] = {}
        self._parts: list[Tensor] = []

    @property
    def is_complete(self) -> bool:
        return (self.folder / "complete").exists()

    def refresh(self) -> int:
        """Load new chunks; returns how many."""
        paths = [path for path in sorted(self.folder.glob("*.npz")) if path.name not in self.chunks]
        if self.max_chunks is not None:
            paths = paths[: self.max_chunks - len(self.chunks)]
        for path in paths:
            chunk = AudioChunk.load(path)
            self.chunks[path.name] = chunk
            self._parts.append(torch.from_numpy(chunk.audio).to(self.device))
        return len(paths)

    def wait(self, num_chunks: int, timeout_s: float = 300) -> None:
        """Wait until `num_chunks` are loaded. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while len(self.chunks) < num_chunks:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder} holds {len(self.chunks)} chunks, not {num_chunks}")
            if not self.refresh():
                time.sleep(1)

    def crops(self, count: int, num_samples: int) -> Tensor:
        """[count, num_samples] float32 in [-1, 1], from anywhere in a chunk; a crop may span two utterances."""
        room = np.array([max(0, len(part) - num_samples) for part in self._parts])
        ends = np.cumsum(room)
        places = torch.randint(int(ends[-1]), (count,)).numpy()
        owners = np.searchsorted(ends, places, side="right")
        starts = places - (ends - room)[owners]
        chosen = [self._parts[n][start : start + num_samples] for n, start in zip(owners, starts, strict=True)]
        return torch.stack(chosen).float() / 32768

    def seconds(self) -> float:
        return float(np.sum([chunk.ends[-1] for chunk in self.chunks.values()])) / SAMPLE_RATE_HZ
