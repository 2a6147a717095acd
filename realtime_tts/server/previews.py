"""How voices sound, as far as somebody has asked lately. Forgotten with the process, and with its voice."""

from __future__ import annotations

import collections

MAX_BYTES = 16 * 1024 * 1024


class Previews:
    """WAV files by the engine's id of a voice; the least recently heard go first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._files: collections.OrderedDict[str, bytes] = collections.OrderedDict()

    def get(self, voice_id: str) -> bytes | None:
        if voice_id in self._files:
            self._files.move_to_end(voice_id)
        return self._files.get(voice_id)

    def put(self, voice_id: str, wav: bytes) -> None:
        self._files[voice_id] = wav
        self._files.move_to_end(voice_id)
        while sum(map(len, self._files.values())) > self._max_bytes:
            self._files.popitem(last=False)

    def forget(self, voice_id: str) -> None:
        self._files.pop(voice_id, None)
