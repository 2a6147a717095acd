"""Prefetch of modules and tables before the server is ready.

Made on first use, they would block the event loop, and with it all streams, for up to 0.3 s.
"""

from __future__ import annotations

import contextlib
import inspect
import mimetypes
import sys

import anyio
from starlette.concurrency import run_in_threadpool

from realtime_tts.speech.defaults import load_reader


async def prefetch() -> None:
    """Prefetch in a thread of Starlette's pool, which itself loads many modules when first used."""
    await run_in_threadpool(_load)


def _load() -> None:
    load_reader()
    assert callable(anyio.open_file)  # for the page's files; anyio loads a module on this access
    mimetypes.guess_type("page.html")  # for them too; reads the system's tables
    _look_up_endpoints()


def _look_up_endpoints() -> None:
    """Fill the caches of `inspect`: on the first request of an endpoint, FastAPI looks up its source lines."""
    with contextlib.suppress(OSError):  # installed without its sources
        inspect.getsourcelines(prefetch)
        for name, module in sys.modules.copy().items():  # a copy: another thread's import may change the dict
            if name.startswith("realtime_tts.server.") and {"router", "APIRouter", "FastAPI"} & vars(module).keys():
                inspect.getsourcelines(module)
