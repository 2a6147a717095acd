"""What the protocol tells the layer above it, in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_tts_client.errors import RealtimeTTSError
from realtime_tts_client.types import AudioFormat, Done, Packet, Spoken, Word


@dataclass(frozen=True)
class SessionReady:
    """Frames flow. `resumed`: the old session goes on."""

    resumed: bool


@dataclass(frozen=True)
class SessionFailed:
    """The server refuses the session."""

    error: RealtimeTTSError


@dataclass(frozen=True)
class ContextStarted:
    context_id: str
    voice: str
    seed: int
    audio: AudioFormat


@dataclass(frozen=True)
class ContextRestarted:
    """It is said again, in another session, from the word on that was being heard. What came of it ends at
    `received_ms`; words that were to begin behind that are told again."""

    context_id: str
    received_ms: float


@dataclass(frozen=True)
class PacketReceived:
    context_id: str
    packet: Packet


@dataclass(frozen=True)
class WordsReceived:
    context_id: str
    words: tuple[Word, ...]


@dataclass(frozen=True)
class TextSkipped:
    """From and to where in the context's text nothing can be spoken."""

    context_id: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Flushed:
    context_id: str
    flush_id: str | None


@dataclass(frozen=True)
class ContextDone:
    context_id: str
    done: Done


@dataclass(frozen=True)
class ContextCancelled:
    """The context is over, or was over when a cancel arrived; what was heard of it."""

    context_id: str
    spoken: Spoken


@dataclass(frozen=True)
class ContextFailed:
    """Terminal. `spoken`: what the audio that arrived says, None where the server could not tell."""

    context_id: str
    error: RealtimeTTSError
    spoken: Spoken | None = None


@dataclass(frozen=True)
class Refused:
    """One message had no effect; the context that it names goes on."""

    context_id: str | None
    error: RealtimeTTSError


Event = (
    SessionReady
    | SessionFailed
    | ContextStarted
    | ContextRestarted
    | PacketReceived
    | WordsReceived
    | TextSkipped
    | Flushed
    | ContextDone
    | ContextCancelled
    | ContextFailed
    | Refused
)
