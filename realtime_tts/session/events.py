"""What a session asks the I/O layer to do. Drained through `Session.events()`, in order."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_tts.session.planning import Segment
from realtime_tts.session.settings import ContextSettings


@dataclass(frozen=True, slots=True)
class StartSpeech:
    """Speak one segment. Segments of a context are spoken in order, with one voice."""

    context_id: str
    context_number: int
    segment: Segment
    settings: ContextSettings
    priority: int


@dataclass(frozen=True, slots=True)
class EndOfSegments:
    """No `StartSpeech` follows: when all segments are spoken, finish the encoder, then `Session.audio_finished`."""

    context_id: str


@dataclass(frozen=True, slots=True)
class CancelContext:
    """Stop all work of the context now. This or `CloseContext` comes once for each context that had a segment."""

    context_id: str


@dataclass(frozen=True, slots=True)
class CloseContext:
    """The context's audio is complete: forget what continuity needed."""

    context_id: str


@dataclass(frozen=True, slots=True)
class PlaybackChanged:
    """The playback clock of a context was corrected; from `played_ms` it runs in real time unless `paused`."""

    context_id: str
    played_ms: float
    paused: bool


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """0: the newest open context of the session; 1: an older one."""

    context_id: str
    priority: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Send what `messages_to_send` still gives, then close the socket and forget the session."""

    code: int
    reason: str


SessionEvent = (
    StartSpeech | EndOfSegments | CancelContext | CloseContext | PlaybackChanged | PriorityChanged | CloseSession
)
