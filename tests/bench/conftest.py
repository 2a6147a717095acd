from __future__ import annotations

from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from realtime_tts.bench.checkpoint import write_random_checkpoint


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of the shape "tiny"."""
    directory = tmp_path_factory.mktemp("bench") / "tiny"
    write_random_checkpoint(directory, "tiny")
    return directory


@pytest.fixture(scope="session", autouse=True)
def tracker() -> None:
    """Start the helper process of `multiprocessing`, which lives until the end, before open files are counted."""
    resource_tracker.ensure_running()
