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
    """All chunks of a folder as one device tensor; `refresh` takes in those that have appeared since."""

    def __init__(self, folder: Path, device: torch.device | str, max_chunks: int | None = None) -> None:
        self.folder, self.device, self.max_chunks = folder, device, max_chunks
        self.chunks: dict[str, AudioChunk] = {}
        self._parts: list[Tensor] = []
        self._audio = torch.zeros(0, dtype=torch.int16, device=device)

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
        if paths:
            self._audio = torch.cat(self._parts)
            self._parts = [self._audio]
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
        """[count, num_samples] float32 in [-1, 1], from anywhere; a crop may span two utterances."""
        last = self._audio.shape[0] - num_samples
        starts = torch.randint(last, (count, 1), device=self.device)
        return self._audio[starts + torch.arange(num_samples, device=self.device)].float() / 32768

    def seconds(self) -> float:
        return float(np.sum([chunk.ends[-1] for chunk in self.chunks.values()])) / SAMPLE_RATE_HZ
