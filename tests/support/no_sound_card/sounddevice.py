"""Stands in for PortAudio's module where there is no sound card: it is silent, and what is played is kept in a file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

default = SimpleNamespace(device=(0, 1))


def query_devices(device: int | str | None = None, kind: str | None = None) -> Any:
    info = {"name": "none", "max_input_channels": 1, "max_output_channels": 1}
    return info if kind else [info, info]


class _Stream:
    """Calls back once for each block, in real time."""

    def __init__(self, callback: Callable[..., None], samplerate: int, blocksize: int, **others: Any) -> None:
        self._callback = callback
        self._block_s, self._block_size = blocksize / samplerate, blocksize
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closed.wait(max(0.0, due - time.monotonic())):
            due += self._block_s
            block = np.zeros((self._block_size, 1), np.int16)
            now = time.monotonic()
            times = SimpleNamespace(currentTime=now, inputBufferAdcTime=now, outputBufferDacTime=now)
            try:
                self._callback(block, self._block_size, times, None)
            except RuntimeError:  # the program is ending: its event loop is closed
                return
            self._take(block)

    def _take(self, block: np.ndarray) -> None: ...


class InputStream(_Stream): ...


class OutputStream(_Stream):
    def _take(self, block: np.ndarray) -> None:
        with open(os.environ["PLAYED_FILE"], "ab") as file:
            file.write(block.tobytes())
