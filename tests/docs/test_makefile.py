"""What `make test` does after a failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from needed_programs import needed_program

ROOT = Path(__file__).parents[2]


def script(path: Path, status: int) -> None:
    """Write a program that notes its arguments and ends with this status."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$@" > "$0.arguments"\nexit {status}\n')
    path.chmod(0o755)


@pytest.mark.parametrize(("of_pytest", "of_node"), [(1, 0), (0, 1), (0, 0)])
def test_the_browser_clients_tests_run_after_a_failure_and_every_failure_counts(
    tmp_path: Path, of_pytest: int, of_node: int
) -> None:
    script(tmp_path / "venv/bin/python", of_pytest)
    script(tmp_path / "node", of_node)
    for stamp in (".runtime", ".dev"):
        (tmp_path / "venv" / stamp).touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    command = [needed_program("make", "apt-get install make"), "test", f"VENV={tmp_path}/venv"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (result.returncode == 0) is (of_pytest == of_node == 0), result.stderr
    assert "not slow" in (tmp_path / "venv/bin/python.arguments").read_text()
    assert (tmp_path / "node.arguments").read_text().split()[0] == "--test"
