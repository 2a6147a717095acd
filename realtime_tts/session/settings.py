"""Settings of a session and of its contexts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract.speech_params import SpeechParams


@dataclass(frozen=True, slots=True)
class Choices:
    """A client's choices about speech; None: left open."""

    voice: str | None = None
    audio: AudioFormat | None = None
    params: SpeechParams = field(default_factory=SpeechParams)


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """Settings of one context, all choices made. `params` has every parameter, except for `instructions`, `adapter` and
    `lexicon` where there are none."""

    voice: str
    audio: AudioFormat
    params: SpeechParams


# What an error ends: the message that is refused; its context, which fails; the session, which has one context.
ErrorScope = Literal["message", "context", "session"]

MAX_ID_CHARS = 128  # of a context, a flush or a ping

# Limits of `SessionConfig` that are reported to the client.
_REPORTED_LIMITS = (
    *("max_contexts", "max_text_chars", "max_message_bytes"),
    *("max_lead_s", "keepalive_s", "idle_timeout_s", "resume_window_s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Limits and policies of a session, set by the server.

    Attributes:
        max_contexts: contexts open at one time.
        in_turn: contexts are spoken one after the other, in the order in which they were opened.
        max_consecutive_errors: errors of the client in a row, the last of which closes the session.
        errors_end: what an error ends.
        max_lead_s: largest lead: audio is sent at most this far ahead of playback.
        keepalive_s: longest time without a message while a context is open.
        resume_window_s: how long a session waits for a lost client to reconnect; 0 switches resuming off.
        hold_timeout_s, draft_timeout_s: how long a context may be held, or be a draft; it is cancelled then.
        retain_s: how long sent messages are kept for a resume.
        max_session_bytes: memory for everything kept of one client: text, queued messages, sent messages that may be
            sent again, ids. Sent messages are dropped first; a session that still keeps more is closed.
        slow_consumer_s: how long the socket may refuse bytes.
        max_queued_s: audio of one context that may wait to be sent; beyond it the context fails, since the engine
            should have parked it long before.
    """

    model: str
    max_contexts: int
    max_text_chars: int
    max_message_bytes: int
    max_consecutive_errors: int
    max_lead_s: float
    idle_timeout_s: float
    resume_window_s: float
    max_session_bytes: int
    slow_consumer_s: float
    errors_end: ErrorScope = "message"
    in_turn: bool = False
    keepalive_s: float = 3.0
    hold_timeout_s: float = 30.0
    draft_timeout_s: float = 30.0
    retain_s: float = 30.0
    max_queued_s: float = 120.0

    @property
    def limits(self) -> Mapping[str, float]:
        return {name: getattr(self, name) for name in _REPORTED_LIMITS}
