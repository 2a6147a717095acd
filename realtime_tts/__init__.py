"""realtime-tts: a self-hosted real-time voice backend for voice agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realtime_tts.api import TTS, AsyncTTS

__version__ = "0.1.0"

__all__ = ["TTS", "AsyncTTS", "__version__"]


def __getattr__(name: str) -> Any:
    """`TTS` and `AsyncTTS` are loaded when they are asked for, so that importing the package stays cheap."""
    if name in ("TTS", "AsyncTTS"):
        from realtime_tts import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
