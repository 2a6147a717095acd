"""What a client and a session say to each other, in no particular wire format; and what a session asks for.

Every dialect parses into these client messages and renders these server messages. Text offsets count Unicode code
points of the context's text as it was sent; times are milliseconds from the start of the context's audio.

Server messages of a context carry `sequence`: one gapless counter per context, over all of its messages, audio or
not, from `ContextStarted` (0) to the terminal message. A client that reconnects names the last one that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.session.planning import Segment
from realtime_tts.session.settings import ContextSettings, Limits, SpeechParams

# ---- client → server ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartSession:
    """Defaults of the contexts to come. Optional; refused once a context exists."""

    voice: str | None = None
    audio: AudioFormat | None = None
    params: SpeechParams = field(default_factory=SpeechParams)


@dataclass(frozen=True, slots=True)
class Text:
    """Text to speak; opens the context if it is new. Only the opening message's overrides count.

    `dictionaries` has ids of stored pronunciation dictionaries, which become part of `params` before a session gets it.
    """

    context_id: str
    text: str
    voice: str | None = None
    audio: AudioFormat | None = None
    params: SpeechParams = field(default_factory=SpeechParams)
    dictionaries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """Speak what is buffered now. Answered by `Flushed` after the last packet of everything before it."""

    context_id: str
    flush_id: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """No more text. Said twice it changes nothing."""

    context_id: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop one context, or with None all of them, at once."""

    context_id: str | None = None


@dataclass(frozen=True, slots=True)
class Playback:
    """How much of the context its listener has heard, ms. Sent while it is heard, a few times a second."""

    context_id: str
    played_ms: float


@dataclass(frozen=True, slots=True)
class Resume:
    """First message of a new connection that goes on with an old session.

    `contexts`: the last sequence that arrived of every context whose terminal message has not; -1 for nothing.
    Contexts left out are not wanted any more.
    """

    session_id: str
    contexts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ping:
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Open no more contexts, and close the socket when those that are open are over; `at_once`: cancel them."""

    at_once: bool = False


ClientMessage = StartSession | Text | Flush | End | Cancel | Playback | Resume | Ping | Leave

# ---- server → client ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """Answers `StartSession`, or comes before the first `ContextStarted` where there was none."""

    session_id: str
    model: str
    voice: str
    audio: AudioFormat
    params: SpeechParams
    limits: Limits


@dataclass(frozen=True, slots=True)
class ResumedContext:
    """What the server knows of a context that the client listed in `Resume`.

    state:
        open: it goes on after the client's last sequence. `received_chars`, `ended` and `num_flushes` tell which of
            the client's messages arrived; it sends the rest again.
        finished: only the messages that the client lacks are sent, up to the terminal one.
        lost: messages that the client lacks are no longer held. What is held of the context's end still comes.
        unknown: never arrived (or long forgotten); the client may open it again.
    """

    context_id: str
    state: str
    number: int = 0
    received_chars: int = 0
    ended: bool = False
    num_flushes: int = 0


@dataclass(frozen=True, slots=True)
class SessionResumed:
    session_id: str
    contexts: tuple[ResumedContext, ...]


@dataclass(frozen=True, slots=True)
class ContextStarted:
    """The context was accepted. `number` stands for its id in binary frames."""

    context_id: str
    sequence: int
    number: int
    voice: str
    seed: int
    audio: AudioFormat


@dataclass(frozen=True, slots=True)
class TimedWord:
    """`text` is exactly the context's text from `start` to `end`; `measured` tells an estimate from what was heard."""

    text: str
    start: int
    end: int
    start_ms: float
    end_ms: float
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """Words whose audio begins in packets that follow; in order, each word once."""

    context_id: str
    sequence: int
    words: tuple[TimedWord, ...]


@dataclass(frozen=True, slots=True)
class AudioPackets:
    """Packets that leave together, one at least; they follow on each other and on those before.

    To the client each is a message of its own: the first one has `sequence`, and the others count on from there.
    """

    context_id: str
    sequence: int
    number: int
    packets: Packets

    def between(self, start: int, end: int | None = None) -> AudioPackets:
        """Those of the packets, by their place among them."""
        return AudioPackets(self.context_id, self.sequence + start, self.number, self.packets.between(start, end))


@dataclass(frozen=True, slots=True)
class Flushed:
    """All audio of the text before the flush has been sent: `audio_ms` of the context so far."""

    context_id: str
    sequence: int
    flush_id: str | None
    audio_ms: float


@dataclass(frozen=True, slots=True)
class ContextDone:
    """Terminal. `ttfa_ms`: first text received to first packet sent; None where there was no audio."""

    context_id: str
    sequence: int
    audio_ms: float
    characters: int
    ttfa_ms: float | None


@dataclass(frozen=True, slots=True)
class ContextCancelled:
    """Terminal. What the listener heard: `spoken_text` is the first `spoken_chars` characters of the text.

    by_client: it asked for this, and its session did not just end.
    """

    context_id: str
    sequence: int
    played_ms: float
    spoken_text: str
    spoken_chars: int
    by_client: bool = True


@dataclass(frozen=True, slots=True)
class ContextFailed:
    """Terminal. `audio_ms` were sent and will be heard; they speak the first `spoken_chars` characters."""

    context_id: str
    sequence: int
    code: str
    message: str
    retryable: bool
    audio_ms: float
    spoken_text: str
    spoken_chars: int


@dataclass(frozen=True, slots=True)
class CancelAcknowledged:
    """Answers a cancel that found nothing to end, and closes the answer to a cancel of everything.

    state: unknown | done | cancelled | failed (of the one context) | all. For a context that is `done` but was still
    being heard, the other fields tell what was heard of it.
    """

    context_id: str | None
    state: str
    played_ms: float = 0.0
    spoken_text: str = ""
    spoken_chars: int = 0


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """One message was refused. It is not terminal: a context that it names goes on."""

    code: str
    message: str
    retryable: bool
    context_id: str | None = None
    field: str | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class WarningMessage:
    """Something that a client should know of a context, which goes on.

    code: unspeakable_text (from and to the characters of each of `spans`, nothing is spoken); ignored_markup (there it
        stands).
    """

    context_id: str
    code: str
    message: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Sent when nothing else was for a while and contexts are open: these."""

    context_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pong:
    id: str | None = None


TerminalMessage = ContextDone | ContextCancelled | ContextFailed
ContextMessage = ContextStarted | Words | AudioPackets | Flushed | ContextDone | ContextCancelled | ContextFailed
SessionMessage = SessionStarted | SessionResumed | CancelAcknowledged | ErrorMessage | WarningMessage | KeepAlive | Pong
ServerMessage = SessionMessage | ContextMessage

# ---- session → the engine's side, and whoever holds the socket -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartSpeech:
    """Speak one segment. Segments of a context are spoken in order, with one voice."""

    context_id: str
    context_number: int
    segment: Segment
    settings: ContextSettings
    priority: int


@dataclass(frozen=True, slots=True)
class ExtendSpeech:
    """More of the segment that was started last and is not final yet. It becomes final before anything follows it."""

    context_id: str
    segment: Segment


@dataclass(frozen=True, slots=True)
class EndOfSegments:
    """No `StartSpeech` and no `ExtendSpeech` follows: when all segments are spoken, finish the encoder, then
    `Session.audio_finished`."""

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
class ParkContext:
    """Make no more audio of the context, however far it is from being heard; `PlaybackChanged` ends it."""

    context_id: str


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """0: the newest open context of the session, or where they are spoken in turn the oldest one; 1: another one."""

    context_id: str
    priority: int


@dataclass(frozen=True, slots=True)
class Crashed:
    """Something raised that nobody expected. Its context has failed, the rest goes on: log it."""

    error: Exception


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Send what `messages_to_send` still gives, then close the socket and forget the session."""

    code: int
    reason: str


SessionEvent = (
    StartSpeech
    | ExtendSpeech
    | EndOfSegments
    | CancelContext
    | CloseContext
    | PlaybackChanged
    | ParkContext
    | PriorityChanged
    | Crashed
    | CloseSession
)
