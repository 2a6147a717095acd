"""The pipeline's handling of its stages, with Python's own small modules standing in for them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from training.pipeline import EXPORT_S, Pipeline


def test_a_background_stage_logs_and_is_waited_for(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("shown", "calendar", 2026, 11)
    pipeline.finish("shown")
    assert "November 2026" in (tmp_path / "shown.log").read_text()
    pipeline.finish("shown")  # nothing is left to wait for
    pipeline.finish("never started")


def test_a_failed_stage_is_reported_with_its_log(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("broken", "no_such_module")
    with pytest.raises(RuntimeError, match=r"broken failed.*broken\.log"):
        pipeline.finish("broken")
    assert "no_such_module" in (tmp_path / "broken.log").read_text()
    with pytest.raises(subprocess.CalledProcessError):
        pipeline.run("no_such_module")


def test_closing_ends_what_still_runs(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("server", "http.server", 0, "--bind", "127.0.0.1")
    process = pipeline._background["server"]
    pipeline.close()
    assert process.poll() is not None


def test_the_export_has_its_time_set_aside(tmp_path: Path) -> None:
    before = time.monotonic()
    left = Pipeline(tmp_path, seconds=100).seconds_left()
    assert 100 - EXPORT_S - (time.monotonic() - before) <= left <= 100 - EXPORT_S
