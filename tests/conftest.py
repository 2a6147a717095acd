"""Shared by all tests: what a test opens it must close."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from realtime_tts.contract.cores import usable_cores

# `make test` runs the same examples each time, and none is too slow on a busy machine: it fails for a change only.
# `make test-search` looks for new examples: --hypothesis-profile search.
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")

# Threads that spin while they wait take the cores from what else runs: on a busy machine a test of one second took
# twenty. Read when torch is loaded, here and in the processes that tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Tests already run on all cores, and the products of small models are shorter than handing them to a second thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A machine that is busy with other tests must not have servers refuse what a test asks for.
os.environ.setdefault("REALTIME_TTS_MAX_LATE_MS", "0")

# Nor may it find voices that were added on this machine, or leave some.
os.environ.setdefault("REALTIME_TTS_VOICES_DIR", "none")

SETTLE_S = 10.0
COLLECT_EVERY_S = 0.5
SHORT_FILES = ("dialects", "session")
_FD_DIRECTORY = Path("/proc/self/fd")


def pytest_configure(config: pytest.Config) -> None:
    """A directory for temporary files of our own: other processes of the machine make some too."""
    directory = tempfile.mkdtemp(prefix="tests-")  # short: unix sockets lie in it, and their paths are limited
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    with contextlib.suppress(ImportError):  # httpx is not in every environment
        read_certificates_once()


def read_certificates_once() -> None:
    """Each HTTP client would read all that the system trusts, which takes 30 ms, and there are a thousand of them."""
    import httpx

    httpx._transports.default.create_ssl_context = functools.cache(httpx.create_ssl_context)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: tests often wait, for clocks and other processes."""
    return usable_cores() + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What all tests import leaves the garbage collections for good: each full one would take 0.3 s of it.

    A server that runs in this process would do the same when it starts, and take it back when it ends.
    """
    gc.disable()
    result = yield
    gc.enable()
    gc.freeze()
    gc.freeze = gc.unfreeze = lambda: None
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders whose files take a second or three come last: no process has a long one left when the others end."""
    items.sort(key=lambda item: item.path.parent.name in SHORT_FILES)


def open_files() -> dict[str, str]:
    """Sockets, pipes and files of this process by descriptor; empty where the system does not tell (macOS)."""
    found: dict[str, str] = {}
    if _FD_DIRECTORY.is_dir():
        for entry in os.listdir(_FD_DIRECTORY):
            with contextlib.suppress(OSError):  # the listing's own descriptor is gone again
                found[entry] = os.readlink(_FD_DIRECTORY / entry)
    return found


def temporary_files() -> set[str]:
    """All but pytest's own directories, torch's cache, and the sound server's that a browser may start."""
    kept = ("pytest-", "torchinductor_", "pulse-")
    return {name for name in os.listdir(tempfile.gettempdir()) if not name.startswith(kept)}


def leaked_files(before: dict[str, str]) -> dict[str, str]:
    return {fd: target for fd, target in open_files().items() if before.get(fd) != target and _counts(target)}


def _counts(target: str) -> bool:
    # Libraries are mapped and caches are opened once per process; a leak is a socket, a pipe or a temporary file.
    return target.startswith(("socket:", "pipe:", tempfile.gettempdir()))


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """File descriptors, temporary files and (in async tests) tasks are back at the baseline within ten seconds."""
    files_before, temporary_before = open_files(), temporary_files()
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("no_leaked_tasks")
        files_before = open_files()  # the event loop's own
    yield
    begun = collected = time.monotonic()
    while left := leaked_files(files_before) | dict.fromkeys(temporary_files() - temporary_before, "temporary file"):
        # A connection that a proxy opens for a moment is no leak: what is left is looked at once for each decision.
        assert time.monotonic() < begun + SETTLE_S, left
        time.sleep(0.01)
        if time.monotonic() > collected + COLLECT_EVERY_S:  # most files close by themselves, and a collection is slow
            gc.collect()
            collected = time.monotonic()


@pytest.fixture(scope="session")
def tiny_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a random checkpoint with named voices, for tests that need no understandable speech."""
    from tiny_voice import write_tiny_voice  # loads torch

    return write_tiny_voice(tmp_path_factory.mktemp("checkpoint") / "tiny-voice")


@pytest.fixture(scope="session")
def cuda_context() -> None:
    """The driver opens pipes when it is first used, and keeps them: no leak of the test that happens to be first."""
    import torch

    ones = torch.ones(8, 8, device="cuda")
    torch.cuda.synchronize((ones @ ones).device)


@pytest_asyncio.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Tasks of the test's event loop are gone within ten seconds."""
    before = asyncio.all_tasks()
    yield
    end = time.monotonic() + SETTLE_S
    while (leaked := asyncio.all_tasks() - before - {asyncio.current_task()}) and time.monotonic() < end:
        await asyncio.sleep(0.02)
    assert not leaked
