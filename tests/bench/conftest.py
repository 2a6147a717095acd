from __future__ import annotations

from pathlib import Path

import pytest

from realtime_tts.bench.checkpoint import write_random_checkpoint


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint of the shape "tiny"."""
    directory = tmp_path_factory.mktemp("bench") / "tiny"
    write_random_checkpoint(directory, "tiny")
    return directory
