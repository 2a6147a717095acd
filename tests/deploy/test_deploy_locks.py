"""The committed locks: every file that pip may install has a known hash, but for torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HASHED = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("requirements*.lock", "*/requirements*.lock", "deploy/*/*.lock", "tests/clients/vendors/*.lock")
    for path in ROOT.glob(pattern)
    if path.name != "requirements-torch.lock" and not path.parts[-2].startswith(".")
)
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==[^\s;]+( ; [^\\]*)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def entries(lock: str) -> list[str]:
    """Each requirement of a lock with its hashes, in one line."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_all_locks_are_here() -> None:
    assert set(HASHED) >= {
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-docs.lock",
        "agents/requirements.lock",
        "deploy/ray/requirements.lock",
        "tests/clients/vendors/requirements.lock",
    }


@pytest.mark.parametrize("lock", HASHED)
def test_each_requirement_has_one_version_and_its_hashes(lock: str) -> None:
    for entry in entries(lock):
        pinned, *hashes = re.split(r" +(?=--)", entry)
        match = REQUIREMENT.fullmatch(pinned)
        assert match is not None, entry
        assert match["name"] != "torch", "its build depends on the machine: requirements-torch.lock"
        assert hashes, f"{pinned} has no hash: make lock"
        assert all(HASH.fullmatch(item) for item in hashes), pinned


@pytest.mark.parametrize("name", ["numpy", "pydantic-core", "av", "msgpack"])
def test_a_package_with_compiled_files_has_hashes_for_all_systems(name: str) -> None:
    """Eight wheels are four versions of Python on two systems; a lock made for one machine has one."""
    [*found] = [entry for entry in entries("requirements.lock") if entry.startswith(f"{name}==")]
    assert found
    assert all(entry.count("--hash=") >= 8 for entry in found)


def test_torch_has_a_lock_of_its_own() -> None:
    [entry] = entries("requirements-torch.lock")
    assert re.fullmatch(r"torch==[0-9.]+", entry)
    assert f'version = "{entry.removeprefix("torch==")}"' in (ROOT / "lock.toml").read_text(encoding="utf-8")


def test_every_command_of_ours_checks_hashes_and_resolves_nothing() -> None:
    """pip, left to resolve an extra (`coverage[toml]`), takes a newer release than the lock and then refuses it."""
    files = ["Makefile", "deploy/Containerfile", "docs/operate/deploy.md"]
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in files)
    commands = re.findall(r"pip install [^&\n]*-r [^&\n]*\.lock", text)
    assert len(commands) >= 8
    assert all("--require-hashes --no-deps" in command or "requirements-torch.lock" in command for command in commands)
