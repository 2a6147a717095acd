"""Location of a model's small files before anything is loaded. No torch."""

from __future__ import annotations

import re
from pathlib import Path

from realtime_tts.errors import CheckpointError

STARTER_VOICE = "starter-voice"
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def local_directory(model: str) -> Path | None:
    """Return the checkpoint's directory if it is on this machine, without network access."""
    bundled = Path(__file__).resolve().parents[1] / "starter_voice"
    path = bundled if model == STARTER_VOICE else Path(model).expanduser()
    return path if path.is_dir() else None


def check_location(model: str) -> Path | None:
    """Return the directory of a checkpoint on this machine, or None if `model` is the id of one on the hub.

    Raises:
        CheckpointError: neither of the two, or a directory without a checkpoint or without access to it.
    """
    try:
        directory = local_directory(model)
        if directory is None and (Path(model).expanduser().exists() or not _HUB_ID.fullmatch(model)):
            raise CheckpointError(f"{model!r} is neither a checkpoint directory nor a hub id (owner/name)")
        if directory is not None and not (directory / "config.json").is_file():
            raise CheckpointError(f"the directory {str(directory)!r} is no checkpoint: it has no config.json")
    except OSError as error:
        raise CheckpointError(f"the model {model!r} cannot be read: {error.strerror}") from error
    return directory
