"""Adapters that a worker has loaded: name and index in the model's bank."""

from __future__ import annotations

import dataclasses

from realtime_tts.errors import AdapterError, AdapterExists, AdapterNotFound, TooManyAdapters
from realtime_tts.model.adapted import AdapterBank, AdapterLimits
from realtime_tts.model.adapter_file import AdapterWeights


@dataclasses.dataclass(frozen=True, slots=True)
class EngineAdapter:
    """index: place in the bank and value in its rows. digest: hash of the content; it separates KV blocks."""

    name: str
    index: int
    digest: str


class AdapterStore:
    """Loaded adapters by name. Not thread-safe: belongs to the engine's thread.

    Args:
        bank: None: the worker was started without room for adapters.
    """

    def __init__(self, bank: AdapterBank | None) -> None:
        self._bank = bank
        self._loaded: dict[str, EngineAdapter] = {}

    @property
    def limits(self) -> AdapterLimits:
        """Limits of the bank. Raises AdapterError: the worker was started without room for adapters."""
        return self._room.limits

    @property
    def _room(self) -> AdapterBank:
        if self._bank is None:
            raise AdapterError("this server was started without room for adapters; see --adapters-dir")
        return self._bank

    def get(self, name: str | None) -> EngineAdapter | None:
        """Return a loaded adapter; None for None. Raises AdapterNotFound: it is not loaded."""
        if name is None:
            return None
        if name not in self._loaded:
            raise AdapterNotFound(f"the adapter {name!r} is not loaded", field="adapter")
        return self._loaded[name]

    def add(self, adapter: AdapterWeights) -> EngineAdapter:
        """Put an adapter that was read into the model.

        Raises:
            AdapterError: the worker has no room for adapters. AdapterExists: the name is taken. TooManyAdapters: full.
        """
        bank = self._room
        if adapter.name in self._loaded:
            raise AdapterExists(f"an adapter {adapter.name!r} is loaded", field="adapter")
        limit = bank.limits.max_adapters
        free = set(range(limit)) - {known.index for known in self._loaded.values()}
        if not free:
            raise TooManyAdapters(f"{limit} adapters are loaded, which is as many as can be; unload one first")
        loaded = EngineAdapter(adapter.name, min(free), adapter.digest)
        bank.put(loaded.index, adapter.updates)
        self._loaded[adapter.name] = loaded
        return loaded

    def remove(self, name: str) -> None:
        """Remove an adapter, if it is loaded; no running request uses it."""
        if (loaded := self._loaded.pop(name, None)) is not None:
            self._room.put(loaded.index, {})
