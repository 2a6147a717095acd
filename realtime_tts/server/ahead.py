"""Modules that only some clients need, loaded before the server is ready: the first one who needs them would hold up
the event loop, and with it everybody, for up to a fifth of a second."""

from __future__ import annotations

import importlib

import anyio
from starlette.concurrency import run_in_threadpool

# For numbers in a text, other speeds, other volumes.
_MODULES = ("num2words", "realtime_tts.audio.tempo", "realtime_tts.audio.volume")


async def load_ahead() -> None:
    """In a thread of the pool in which Starlette reads forms and files, which itself loads a good deal when it is first
    used."""
    await run_in_threadpool(_load)


def _load() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    assert callable(anyio.open_file)  # for the page's files; a module that is loaded when it is asked for this
