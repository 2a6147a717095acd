"""Imports point one way; the gateway never loads torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "realtime_tts"

# What each part may import of the others. `errors` and `wire` are for everybody.
ALLOWED = {
    "text": set(),
    "audio": set(),
    "session": {"text", "audio"},
    "model": set(),
    "engine": {"model", "config"},
    "engine_supervisor": set(),
    "request_stream": set(),
    "engine_client": {"config", "model.serving", "engine_supervisor", "request_stream"},
    "server": {"session", "text", "audio", "config", "engine_client", "engine_supervisor", "model.serving"},
}
EVERYBODY = {"errors", "wire", "__version__"}
PURE = [
    *sorted((PACKAGE / "text").rglob("*.py")),
    *sorted((PACKAGE / "session").rglob("*.py")),
    PACKAGE / "audio/packetizer.py",
    PACKAGE / "engine/request.py",
    PACKAGE / "engine/block_pool.py",
    PACKAGE / "engine/scheduler.py",
    PACKAGE / "engine/context.py",
    PACKAGE / "engine/step_cost.py",
    PACKAGE / "engine/step_draft.py",
    PACKAGE / "errors.py",
    PACKAGE / "wire.py",
    PACKAGE / "config.py",
]
IMPURE_MODULES = {"torch", "asyncio", "threading", "socket", "subprocess", "time"}


def imported_modules(path: Path) -> set[str]:
    """Absolute names of all that a file imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    files = list((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]
    allowed = ALLOWED[part] | EVERYBODY | {part}
    for path in files:
        for name in imported_modules(path):
            if name.startswith("realtime_tts."):
                inner = name.removeprefix("realtime_tts.")
                assert any(inner == a or inner.startswith(a + ".") for a in allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", PURE, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_pure_module_reaches_no_clock_thread_socket_or_tensor(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported_modules(path)}
    assert not roots & IMPURE_MODULES


def test_the_gateway_does_not_load_torch() -> None:
    code = "import sys, realtime_tts.server.app; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_package_inits_are_empty() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE:
            assert path.read_text(encoding="utf-8").strip() == "", path
