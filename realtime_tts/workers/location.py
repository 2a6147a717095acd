"""Where a model's small files are, before anything is loaded. No torch."""

from __future__ import annotations

from pathlib import Path

STARTER_VOICE = "starter-voice"


def local_directory(model: str) -> Path | None:
    """The checkpoint's directory if it is on this machine without asking anybody."""
    bundled = Path(__file__).resolve().parents[1] / "starter_voice"
    path = bundled if model == STARTER_VOICE else Path(model).expanduser()
    return path if path.is_dir() else None
