"""Cache of voice previews that were requested. A preview is removed with its voice, or to make room for others."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from realtime_tts.contract.files import write_whole

MAX_BYTES = 16 * 1024 * 1024
MAX_DISK_BYTES = 256 * 1024 * 1024


class Previews:
    """WAV files by the engine's id of a voice, with eviction of the least recently used.

    Args:
        directory: directory for the previews of added voices; created when needed. None: keep them in memory only.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._files: collections.OrderedDict[str, bytes] = collections.OrderedDict()

    def get(self, voice_id: str) -> bytes | None:
        """Return a preview from memory, or None."""
        if voice_id in self._files:
            self._files.move_to_end(voice_id)
        return self._files.get(voice_id)

    def put(self, voice_id: str, wav: bytes) -> None:
        """Keep a preview in memory."""
        self._files[voice_id] = wav
        self._files.move_to_end(voice_id)
        while sum(map(len, self._files.values())) > MAX_BYTES:
            self._files.popitem(last=False)

    def forget(self, voice_id: str) -> None:
        """Remove a preview from memory and disk."""
        self._files.pop(voice_id, None)
        if self._directory is not None:
            with contextlib.suppress(OSError):
                self._path(voice_id).unlink(missing_ok=True)

    # ---- on disk: these methods block; after a disk error the preview is only synthesised again -----------------

    def load(self, voice_id: str) -> bytes | None:
        if self._directory is None:
            return None
        with contextlib.suppress(OSError):
            wav = self._path(voice_id).read_bytes()
            os.utime(self._path(voice_id))
            return wav
        return None

    def keep(self, voice_id: str, wav: bytes) -> None:
        if self._directory is None:
            return
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path(voice_id), wav)
            self._make_room()

    def drop_others(self, voice_ids: Collection[str]) -> None:
        """Remove the previews of all other voices, which a process that died may have left."""
        if self._directory is None:
            return
        with contextlib.suppress(OSError):
            for path in self._directory.iterdir():
                if path.stem not in voice_ids:
                    path.unlink(missing_ok=True)

    def _make_room(self) -> None:
        assert self._directory is not None
        found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._directory.iterdir())
        surplus = sum(size for _, size, _ in found) - MAX_DISK_BYTES
        for _, size, path in found:
            if surplus <= 0:
                break
            path.unlink(missing_ok=True)
            surplus -= size

    def _path(self, voice_id: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{voice_id}.wav"
