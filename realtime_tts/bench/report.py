"""Report of a bench: a JSON document with every raw figure, and a table."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pydantic_core import to_json

import realtime_tts
from realtime_tts.contract.cores import usable_cores

_PACKAGES = ("torch", "triton", "flash-attn", "numpy", "websockets", "av")


def document(bench: str, settings: object, subject: dict[str, object], results: object) -> dict[str, object]:
    """Return `results` with what is needed to repeat them: versions, commit, machine, settings."""
    taken_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    packages = {name: version for name in _PACKAGES if (version := installed_version(name))}
    source = {"version": realtime_tts.__version__, "commit": commit(), "machine": machine(), "packages": packages}
    given = {"settings": settings, "subject": subject}
    return {"bench": bench, "taken_at": taken_at, **source, **given, "results": results}


def machine() -> dict[str, object]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": usable_cores(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def commit() -> str | None:
    """Return the commit of the package's repository, with a + if it has changes; None outside a repository.
    REALTIME_TTS_COMMIT says it where a copy has no repository."""
    if told := os.environ.get("REALTIME_TTS_COMMIT"):
        return told
    root = Path(realtime_tts.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=10).strip()
    return None


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON: dataclasses as objects; numbers that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json(value, indent=1, inf_nan_mode="null") + b"\n")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns aligned to the right, the first to the left."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([row[0].ljust(len(first)), *others]).rstrip())
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def figure(value: float | None) -> str:
    """Return a number with three significant digits, or a dash."""
    if value is None or value != value:
        return "–"
    if math.isinf(value):
        return "∞"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """A share, or a dash."""
    return "–" if share is None or share != share else f"{share:.1%}"


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
