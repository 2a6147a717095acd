"""The server is installed in another environment than the agents, whose has no torch."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def server_python() -> str:
    """Python of the server's environment."""
    return os.environ.get("SERVER_PYTHON") or str(ROOT / ".venv/bin/python")
