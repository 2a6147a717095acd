"""The limits of a session, as the tests of sessions have them."""

from __future__ import annotations

from typing import Any

from realtime_tts.session.settings import SessionConfig


def session_config(**changed: Any) -> SessionConfig:
    limits: dict[str, Any] = {
        "model": "",
        "max_contexts": 16,
        "max_text_chars": 20_000,
        "max_message_bytes": 64 * 1024,
        "max_consecutive_errors": 20,
        "max_lead_s": 3.0,
        "idle_timeout_s": 300.0,
        "resume_window_s": 10.0,
        "max_session_bytes": 512 * 1024,
        "slow_consumer_s": 10.0,
    }
    return SessionConfig(**{**limits, **changed})
