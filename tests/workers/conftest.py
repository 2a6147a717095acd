from __future__ import annotations

from client_harness import make_client

__all__ = ["make_client"]
