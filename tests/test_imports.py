"""Imports point one way; the gateway never loads torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "realtime_tts"

# What each part may import, and does. Every part may import `errors`.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": {"contract"},
    "config_loader": {"config"},
    "text": {"contract.speech_params"},
    "audio": set(),
    "session": {"audio", "contract.speech_params", "text.boundaries", "text.planner", "text.words"},
    "contract": set(),
    "workers": {"contract"},
    "model": {"contract"},
    "engine": {"audio.samples", "contract", "model"},
    "dialects": {"session", "audio", "contract.speech_params"},
    "speech": {"session", "contract", "workers", "text", "audio"},
    "api": {"speech", "session", "text.planner", "contract", "workers"},
    "bench": {"contract", "engine", "model"},
    "server": {
        "dialects",
        "speech",
        "session",
        "text.planner",
        "text.skipped",
        "contract",
        "workers",
        "audio",
        "config",
    },
    "cli": {
        "server",
        "api",
        "bench",
        "engine.calibrate",
        "engine.runtime.backends",
        "engine.setup",
        "speech.lexicons",
        "speech.text_source",
        "text.planner",
        "text.skipped",
        "contract",
        "workers",
        "audio",
        "config",
        "config_loader",
    },
    "__init__": {"api"},
    "__main__": {"cli"},
}
# Likewise for the packages of `server/`. `gateway` owns the state that routes and sockets receive.
SERVER: dict[str, set[str]] = {
    "admission": set(),
    "stream": {"admission", "gateway", "http"},
    "http": {"admission", "gateway", "stream"},
    "voices": {"admission", "gateway", "http", "stream"},
    "vendors": {"admission", "gateway", "http", "stream", "voices"},
    "host": {"admission", "app", "run"},
    "upkeep": {"admission", "gateway", "host"},
    "gateway": {"admission", "host", "http", "stream", "upkeep", "voices"},
    "app": {"admission", "gateway", "http", "stream", "vendors", "voices"},
    "run": {"admission", "app", "gateway", "host", "stream"},
    "logs": set(),
    "metrics": set(),
}
ALWAYS = {"errors", "__version__"}
PURE = [
    *sorted((PACKAGE / "text").rglob("*.py")),
    *sorted((PACKAGE / "session").rglob("*.py")),
    *sorted((PACKAGE / "dialects").rglob("*.py")),
    *sorted((PACKAGE / "engine/core").rglob("*.py")),
    PACKAGE / "audio/packets.py",
    *(PACKAGE / f"bench/{name}.py" for name in ("arrivals", "figures", "search", "shapes", "streams", "texts")),
    PACKAGE / "contract/engine_options.py",
    PACKAGE / "contract/frames.py",
    PACKAGE / "workers/placement.py",
    PACKAGE / "contract/policy.py",
    PACKAGE / "workers/recovery.py",
    PACKAGE / "errors.py",
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


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_in(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def imports_of(part: str) -> set[str]:
    """What the files of a part import of the package's other parts, without the package's name."""
    files = [path for path in PACKAGE.rglob("*.py") if part_of(path) == part]
    names = {name for path in files for name in imported_modules(path) if name.startswith("realtime_tts.")}
    inner = {name.removeprefix("realtime_tts.") for name in names}
    return {name for name in inner if not any(is_in(name, other) for other in (*ALWAYS, part))}


def test_every_module_belongs_to_a_part() -> None:
    assert {part_of(path) for path in PACKAGE.rglob("*.py")} == set(ALLOWED)


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    wrong = {name for name in imports_of(part) if not any(is_in(name, allowed) for allowed in ALLOWED[part])}
    assert not wrong


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_no_part_is_granted_what_it_does_not_use(part: str) -> None:
    imported = imports_of(part)
    unused = {allowed for allowed in ALLOWED[part] if not any(is_in(name, allowed) for name in imported)}
    assert not unused


def server_part_of(path: Path) -> str:
    return path.relative_to(PACKAGE / "server").parts[0].removesuffix(".py")


def test_the_servers_packages_import_what_its_table_says() -> None:
    found: dict[str, set[str]] = {}
    for path in (PACKAGE / "server").rglob("*.py"):
        if (part := server_part_of(path)) != "__init__":
            ours = {name for name in imported_modules(path) if name.startswith("realtime_tts.server.")}
            found.setdefault(part, set()).update(name.split(".")[2] for name in ours)
    assert {part: names - {part, "logs", "metrics"} for part, names in found.items()} == SERVER


def test_the_grants_have_no_cycle() -> None:
    def reach(part: str, path: tuple[str, ...]) -> None:
        assert part not in path, " → ".join((*path, part))
        for allowed in ALLOWED[part]:
            reach(allowed.split(".")[0], (*path, part))

    for part in ALLOWED:
        reach(part, ())


@pytest.mark.parametrize("path", PURE, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_pure_module_reaches_no_clock_thread_socket_or_tensor(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported_modules(path)}
    assert not roots & IMPURE_MODULES


def test_the_engines_core_knows_nothing_but_itself() -> None:
    names = {name for path in (PACKAGE / "engine/core").rglob("*.py") for name in imported_modules(path)}
    ours = {name.removeprefix("realtime_tts.") for name in names if name.startswith("realtime_tts.")}
    assert not {name for name in ours if not any(is_in(name, part) for part in ("engine.core", "errors"))}


def test_the_gateway_does_not_load_torch() -> None:
    code = "import sys, realtime_tts.server.app; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_only_the_command_line_knows_the_client_package() -> None:
    """It is a distribution of its own, installed beside this one or not at all."""
    client = "realtime_tts_client"
    paths = [path for path in PACKAGE.rglob("*.py") if any(is_in(name, client) for name in imported_modules(path))]
    assert paths == [PACKAGE / "cli/say.py"]


def test_package_inits_hold_no_code() -> None:
    """They are empty, or pass public names on."""
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
                assert isinstance(node, ast.ImportFrom) or is_all, path
