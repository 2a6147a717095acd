"""Files that other processes read at any time, and the user's directory for what can be made again."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def cache_directory(name: str) -> Path:
    """Return a directory shared between processes and kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "realtime-tts" / name


def write_whole(path: Path, content: bytes, *, durable: bool = False, mode: int = 0o600) -> None:
    """Write a file, which other processes see whole or not at all.

    Args:
        mode: permissions, without those of the umask; by default only this user reads it.
        durable: its content is on the disk when this returns.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
