"""Events that the protocol passes to the session layer, in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_tts_client.errors import RealtimeTTSError
from realtime_tts_client.types import AudioFormat, Done, Packet, Spoken, Word


@dataclass(frozen=True)
class SessionReady:
    """The session is ready for frames. `resumed`: the old session continues."""

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
    """The context is spoken again in a new session, from the word that was being heard. Its earlier audio ends at
    `received_ms`; words that begin later are reported again."""

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
    previous_end_ms: float | None = None


@dataclass(frozen=True)
class TextSkipped:
    """Spans of the context's text that cannot be spoken."""

    context_id: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ContextDone:
    context_id: str
    done: Done


@dataclass(frozen=True)
class ContextCancelled:
    """The context is over, or was over when the cancel arrived. Contains what was heard."""

    context_id: str
    spoken: Spoken


@dataclass(frozen=True)
class ContextHeld:
    """The context is held. Contains what is heard until where it stopped."""

    context_id: str
    spoken: Spoken


@dataclass(frozen=True)
class ContextReleased:
    """The context goes on at `from_ms`."""

    context_id: str
    from_ms: float


@dataclass(frozen=True)
class ContextFailed:
    """Terminal. `spoken`: text of the audio that arrived, None if the server could not determine it."""

    context_id: str
    error: RealtimeTTSError
    spoken: Spoken | None = None


@dataclass(frozen=True)
class Refused:
    """The server refused one message; an open context that it names continues. A refused opening is `ContextFailed`.

    `is_answer`: the message was the hold or release that waits for an answer. `span`: the text that was refused, which
    is no longer part of the context's text.
    """

    context_id: str | None
    error: RealtimeTTSError
    is_answer: bool = False
    span: tuple[int, int] | None = None


Event = (
    SessionReady
    | SessionFailed
    | ContextStarted
    | ContextRestarted
    | PacketReceived
    | WordsReceived
    | TextSkipped
    | ContextDone
    | ContextCancelled
    | ContextHeld
    | ContextReleased
    | ContextFailed
    | Refused
)
