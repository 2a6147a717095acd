from __future__ import annotations

from client_harness import journal, make_client

__all__ = ["journal", "make_client"]
