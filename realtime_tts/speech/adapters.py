"""LoRA adapters by name: those of the configuration, and those loaded while the server runs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from realtime_tts.contract import frames
from realtime_tts.errors import (
    AdapterExists,
    AdapterNotFound,
    ConfigError,
    EngineLost,
    Forbidden,
    InvalidRequest,
    RealtimeTTSError,
)
from realtime_tts.workers.client import EngineClient

logger = logging.getLogger(__name__)

_TRY_AGAIN_S = 0.5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class AdapterRegistry:
    """Adapters loaded on an engine's workers; belongs to the event loop.

    Args:
        directory: holds the adapters that can be loaded later, each in a directory of its name; None: none can.

    Attributes:
        on_changed: called with a name and its directory when an adapter was loaded by its name, and with "" for the
            directory when it was unloaded.
    """

    def __init__(self, engine: EngineClient, directory: Path | None = None) -> None:
        self.on_changed: Callable[[str, str], None] = lambda name, directory: None
        self._engine, self._directory = engine, directory
        self._changing = asyncio.Lock()

    @property
    def loaded(self) -> dict[str, frames.AdapterAdded]:
        """Adapters by name."""
        return self._engine.adapters.loaded

    def split(self, name: str | None) -> tuple[str | None, str | None]:
        """Return (model, adapter) for ``model:adapter`` if that adapter is loaded, (name, None) for any other name.

        This allows clients of other services, which can name only a model, to choose an adapter.
        """
        model, _, adapter = (name or "").rpartition(":")
        return (model or None, adapter) if adapter != name and adapter in self.loaded else (name, None)

    async def load(self, name: str, directory: Path) -> frames.AdapterAdded:
        """Load an adapter from a directory, which every worker must see.

        Raises:
            InvalidRequest: an invalid name. AdapterExists, TooManyAdapters, AdapterError: it cannot be loaded.
            AdapterNotFound: no such directory. EngineLost: no worker could load it.
        """
        if not _NAME.fullmatch(name):
            raise InvalidRequest("an adapter's name has 1 to 64 letters, digits and ._- in it", field="name")
        async with self._changing:
            return await self._engine.adapters.load(frames.AddAdapter(name, _absolute(directory)))

    async def load_all(self, adapters: Mapping[str, str]) -> None:
        """Load the adapters that the configuration names, again after the loss of a worker. For the start of a server.

        Raises:
            ConfigError: one of them cannot be loaded. EngineStartError, CheckpointError: no worker could be started.
        """
        name = directory = ""
        try:
            for name, directory in adapters.items():
                while True:
                    try:
                        await self.load(name, Path(directory))
                        break
                    except EngineLost:
                        await self._engine.until_ready()
        except InvalidRequest as error:
            message = f"the adapter {name!r} cannot be loaded from {_absolute(Path(directory))}: {error.message}"
            raise ConfigError(message, field="adapters") from error

    async def load_by_name(self, name: str) -> frames.AdapterAdded:
        """Load an adapter of the directory by its name. Raises Forbidden: no directory is configured; and as `load`."""
        directory = self._allowed()
        if not _NAME.fullmatch(name):
            raise AdapterNotFound("there is no such adapter", field="name")
        loaded = await self.load(name, directory / name)
        self.on_changed(name, _absolute(directory / name))
        return loaded

    async def unload_by_name(self, name: str) -> None:
        """Unload an adapter for all clients; speech that uses it ends with `adapter_not_found`.

        Raises:
            Forbidden: no directory is configured. AdapterNotFound: the adapter is not loaded.
        """
        self._allowed()
        if name not in self.loaded:
            raise AdapterNotFound("there is no such adapter", field="name")
        self._engine.adapters.unload(name, everywhere=True)
        self.on_changed(name, "")

    async def follow(self, name: str, directory: str) -> None:
        """Repeat a change of another gateway of the host that its `on_changed` reported. Waits for a worker."""
        if directory:
            while not await self._try_load(name, Path(directory)):  # noqa: ASYNC110 - workers come without an event
                await asyncio.sleep(_TRY_AGAIN_S)
            return
        self._engine.adapters.unload(name)

    async def _try_load(self, name: str, directory: Path) -> bool:
        """Load an adapter. Return False if no worker is ready."""
        try:
            await self.load(name, directory)
        except AdapterExists:
            pass
        except EngineLost:
            return False
        except RealtimeTTSError as error:
            logger.error("the adapter %s, loaded at another gateway, cannot be loaded: %s", name, error.message)
        return True

    def _allowed(self) -> Path:
        if self._directory is None:
            raise Forbidden("adapters do not change while this server runs; see --adapters-dir")
        return self._directory


def _absolute(directory: Path) -> str:
    return str(directory.expanduser().absolute())
