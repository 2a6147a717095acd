"""Errors in Deepgram's format."""

from __future__ import annotations

from typing import Any

from realtime_tts.errors import RealtimeTTSError


def deepgram_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an HTTP error response."""
    return error.http_status, {"err_code": error.code, "err_msg": error.message, "request_id": request_id}
