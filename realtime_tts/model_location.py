"""Where a model's files are, before anything is loaded. No torch."""

from __future__ import annotations

from pathlib import Path

STARTER_VOICE = "starter-voice"
STARTER_DIRECTORY = Path(__file__).resolve().parent / "starter_voice"


def model_location(model: str) -> str:
    """What to load for a model's name: the directory of the bundled voice, or the name itself (a path or hub id)."""
    return str(STARTER_DIRECTORY) if model == STARTER_VOICE else model


def local_directory(model: str) -> Path | None:
    """The checkpoint's directory if it is on this machine without asking anybody."""
    path = Path(model_location(model)).expanduser()
    return path if path.is_dir() else None
