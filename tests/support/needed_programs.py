"""Programs that tests start. One that a newcomer lacks is skipped with a line that says how to get it; CI has all."""

from __future__ import annotations

import os
import shutil

import pytest

# Where servers lie, which the PATH of a normal user need not have; and this environment's own programs.
_MORE_DIRECTORIES = ("/usr/sbin", "/sbin")


def needed_program(name: str, how: str, *directories: str) -> str:
    """Path of a program; `how` is the command that installs it."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_MORE_DIRECTORIES, *directories]))
    if found is None:
        reason = f"needs {name}: {how}"
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found
