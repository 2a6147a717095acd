"""What `make test` does after a failure, and without Node.js."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from needed_programs import needed_program

ROOT = Path(__file__).parents[2]


def script(path: Path, status: int, status_of_e: int = 0) -> None:
    """Write a program that notes its arguments and ends with this status, or with `status_of_e` for an option `-e`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -e ] && exit {status_of_e}\necho "$@" > "$0.arguments"\nexit {status}\n')
    path.chmod(0o755)


def make_test(folder: Path, path: str, ci: str) -> subprocess.CompletedProcess[str]:
    """Run `make test` with this search path and the environment in `folder`."""
    for stamp in (".runtime", ".dev"):
        (folder / "venv" / stamp).touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = [needed_program("make", "apt-get install make"), "test", f"VENV={folder}/venv"]
    environment |= {"PATH": path, "CI": ci}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("of_pytest", "of_node"), [(1, 0), (0, 1), (0, 0)])
def test_the_browser_clients_tests_run_after_a_failure_and_every_failure_counts(
    tmp_path: Path, of_pytest: int, of_node: int
) -> None:
    script(tmp_path / "venv/bin/python", of_pytest)
    script(tmp_path / "node", of_node)
    result = make_test(tmp_path, f"{tmp_path}:{os.environ['PATH']}", "")
    assert (result.returncode == 0) is (of_pytest == of_node == 0), result.stderr
    assert "not slow" in (tmp_path / "venv/bin/python.arguments").read_text()
    assert (tmp_path / "node.arguments").read_text().split()[0] == "--test"


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("ci", ["", "true"])
def test_without_nodejs_20_the_browser_clients_tests_are_skipped_except_in_ci(
    tmp_path: Path, installed: bool, ci: str
) -> None:
    script(tmp_path / "venv/bin/python", 0)
    if installed:
        script(tmp_path / "node", 0, status_of_e=1)  # an older one
    result = make_test(tmp_path, str(tmp_path), ci)
    assert (result.returncode == 0) is (ci == ""), result.stderr
    assert "Node.js 20" in result.stdout
    assert not (tmp_path / "node.arguments").exists()
