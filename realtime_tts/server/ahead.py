"""What the first clients need, loaded and made before the server is ready: the first one who needs it would hold up the
event loop, and with it everybody, for up to a fifth of a second."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import mimetypes
import sys

import anyio
from starlette.concurrency import run_in_threadpool

from realtime_tts.speech.ahead import load_reader

_MODULES = ("realtime_tts.audio.tempo", "realtime_tts.audio.volume")  # for other speeds, other volumes


async def load_ahead() -> None:
    """In a thread of the pool in which Starlette reads forms and files, which itself loads a good deal when it is first
    used."""
    await run_in_threadpool(_load)


def _load() -> None:
    load_reader()
    for name in _MODULES:
        importlib.import_module(name)
    assert callable(anyio.open_file)  # for the page's files; a module that is loaded when it is asked for this
    mimetypes.guess_type("page.html")  # for them too; reads the system's tables
    _look_up_endpoints()


def _look_up_endpoints() -> None:
    """FastAPI looks up where in the source an endpoint stands when it is first asked: files are read and kept, and the
    patterns of a tokenizer compiled."""
    with contextlib.suppress(OSError):  # installed without its sources
        inspect.getsourcelines(load_ahead)
        for name, module in sys.modules.copy().items():  # a list of them may be interrupted by another thread's import
            if name.startswith("realtime_tts.server.") and {"router", "APIRouter", "FastAPI"} & vars(module).keys():
                inspect.getsourcelines(module)
