"""Messages between a client and a session, independent of the wire format, and the events that a session emits.

Every dialect parses into these client messages and renders these server messages. Text offsets count Unicode code
points of the context's text as it was sent. Times are milliseconds from the start of the context's audio.

Server messages of a context carry `sequence`: one gapless counter per context, over all of its messages, audio or
not, from `ContextStarted` (0) to the terminal message. A client that reconnects sends the last one that it received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.session.settings import Choices, ContextSettings
from realtime_tts.text.planner import Segment

# ---- client → server ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartSession(Choices):
    """Defaults of later contexts. Optional; refused once a context exists."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text to speak. It opens the context if that is new; only the opening message's overrides count.

    draft: open the context as a draft: nothing of it is heard before `Commit`, but its beginning may be made ahead.
    `dictionaries`: ids of stored pronunciation dictionaries, merged into `params` before the session receives it.
    """

    context_id: str
    text: str
    voice: str | None = None
    audio: AudioFormat | None = None
    params: SpeechParams = field(default_factory=SpeechParams)
    dictionaries: tuple[str, ...] = ()
    draft: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """Request to speak a draft. text: the text up to here, in place of the draft's, and more may follow; None: the
    draft's own, which has ended if the draft had."""

    context_id: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Flush:
    """Request to speak the buffered text now. Answered by `Flushed` after the last packet of that text."""

    context_id: str
    flush_id: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """End of the text. A second one has no effect."""

    context_id: str


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Request to stop one context at once, or with None all of them."""

    context_id: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Request to hold one context: its speech stops and can go on later. Answered by `ContextHeld`.

    at: "word" stops where the word ends that is being heard, "now" at once. played_ms: playback position; None: as
        estimated.
    """

    context_id: str
    at: Literal["word", "now"] = "word"
    played_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Request that a held context goes on: from the next word, or from the beginning of its clause if it was held for
    `clause_after_ms` or longer. No effect if it is not held. Answered by `ContextReleased`."""

    context_id: str
    clause_after_ms: float = 2000.0


@dataclass(frozen=True, slots=True)
class PlaybackReport:
    """Playback position reported by the listener, in ms of the context. Sent a few times a second during playback."""

    context_id: str
    played_ms: float


@dataclass(frozen=True, slots=True)
class Resume:
    """First message of a new connection that continues an old session.

    `contexts`: for every context without a terminal message, the last sequence that arrived; -1 for none. Contexts left
    out are cancelled.
    """

    session_id: str
    contexts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ping:
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Request to open no more contexts and to close the socket when the open ones are over; `at_once`: cancel them."""

    at_once: bool = False


ClientMessage = (
    StartSession | Text | Commit | Flush | End | CancelRequest | Hold | Release | PlaybackReport | Resume | Ping | Leave
)

# ---- server → client ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """Answer to `StartSession`; without one it precedes the first `ContextStarted`."""

    session_id: str
    model: str
    voice: str
    audio: AudioFormat
    params: SpeechParams
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ResumedContext:
    """State, on the server, of a context that the client listed in `Resume`.

    state:
        open: it continues after the client's last sequence. `received_chars`, `ended` and `num_flushes` say which of
            the client's messages arrived; the client sends the rest again.
        finished: only the messages that the client lacks are sent, up to the terminal one.
        lost: messages that the client lacks are no longer kept. The messages kept of the context's end are still sent.
        unknown: never arrived (or long forgotten); the client may open it again.
    """

    context_id: str
    state: str
    number: int = 0
    received_chars: int = 0
    ended: bool = False
    num_flushes: int = 0
    draft: bool = False


@dataclass(frozen=True, slots=True)
class SessionResumed:
    session_id: str
    contexts: tuple[ResumedContext, ...]


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """Numbered message of a context."""

    context_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class ContextStarted(ContextMessage):
    """The context was accepted. `number` stands for its id in binary frames."""

    number: int
    voice: str
    seed: int
    audio: AudioFormat


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word and its times. `text` is the context's text from `start` to `end`; `measured` is False for an estimate."""

    text: str
    start: int
    end: int
    start_ms: float
    end_ms: float
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Words(ContextMessage):
    """Words whose audio begins in later packets; in order, each word once.

    previous_end_ms: corrected end of the word before these; None: the end reported earlier still holds. Without words
        it is the end of the context's last word.
    """

    words: tuple[TimedWord, ...]
    previous_end_ms: float | None = None


@dataclass(frozen=True, slots=True)
class AudioPackets(ContextMessage):
    """Packets that leave together, at least one; they continue the ones before without a gap.

    For the client each packet is a separate message: the first has `sequence`, the others count on from there.
    """

    number: int
    packets: Packets

    def between(self, start: int, end: int | None = None) -> AudioPackets:
        """Return the packets from index `start` to `end`."""
        return AudioPackets(self.context_id, self.sequence + start, self.number, self.packets.between(start, end))


@dataclass(frozen=True, slots=True)
class Flushed(ContextMessage):
    """All audio of the text before the flush has been sent; `audio_ms`: length of the context's audio so far."""

    flush_id: str | None
    audio_ms: float


class SpeechReport(NamedTuple):
    """How a context's speech was made.

    draft_used: it began with what was made of the context's draft; None without a draft. opening_used: it began with
    an opening from memory; None without `openings`. mended: number of faults that were cut and said again before they
    were sent.
    """

    draft_used: bool | None = None
    opening_used: bool | None = None
    mended: int = 0


NO_REPORT = SpeechReport()


@dataclass(frozen=True, slots=True)
class ContextDone(ContextMessage):
    """Terminal message of a completed context. `ttfa_ms`: first text, or commit, received to first packet sent; None
    without audio."""

    audio_ms: float
    characters: int
    ttfa_ms: float | None
    report: SpeechReport = NO_REPORT


@dataclass(frozen=True, slots=True)
class ContextCancelled(ContextMessage):
    """Terminal message of a cancelled context. `spoken_text`, heard so far, is the first `spoken_chars` characters of
    the text.

    word_share: how much of the next word was heard, 0 to 1; 0 between words.
    by_client: the client asked for it; False: its session ended, or it was a draft.
    unspoken_text: the rest of the text, for dialects whose clients expect it.
    """

    played_ms: float
    spoken_text: str
    spoken_chars: int
    word_share: float = 0.0
    by_client: bool = True
    unspoken_text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ContextFailed(ContextMessage):
    """Terminal message of a failed context. `audio_ms` were sent and will be heard; they speak the first `spoken_chars`
    characters."""

    code: str
    message: str
    retryable: bool
    audio_ms: float
    spoken_text: str
    spoken_chars: int


@dataclass(frozen=True, slots=True)
class CancelAcknowledged:
    """Answer to a cancel that found nothing to end; also ends the answer to a cancel of all contexts.

    state: unknown | done | cancelled | failed (of the one context) | all. For a context that is `done` but was still
    being played, the other fields say what was heard of it.
    """

    context_id: str | None
    state: str
    played_ms: float = 0.0
    spoken_text: str = ""
    spoken_chars: int = 0
    word_share: float = 0.0
    unspoken_text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ContextHeld:
    """Answer to `Hold`. Speech stops at `played_ms`; the listener hears the first `spoken_chars` characters. An open
    context that is not released within `timeout_s` is cancelled."""

    context_id: str
    played_ms: float
    spoken_text: str
    spoken_chars: int
    word_share: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ContextReleased:
    """Answer to `Release`: speech goes on at `from_ms` of the context's audio, which may be before where it stopped."""

    context_id: str
    from_ms: float


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """Refusal of one message. It is not terminal: an open context that it names goes on. A refused text opens no
    context, and its id is not used again.

    span: where the text that was refused would have been in its context; what is accepted next begins there.
    """

    code: str
    message: str
    retryable: bool
    context_id: str | None = None
    field: str | None = None
    retry_after_s: float | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class WarningMessage:
    """Notice about a context, which goes on.

    code: unspeakable_text (the ranges `spans` of the text are not spoken) or ignored_markup (the ranges `spans` are
        markup without effect).
    """

    context_id: str
    code: str
    message: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Sent after a period without other messages; lists the open contexts."""

    context_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pong:
    id: str | None = None


TerminalMessage = ContextDone | ContextCancelled | ContextFailed
SessionMessage = (
    SessionStarted
    | SessionResumed
    | CancelAcknowledged
    | ContextHeld
    | ContextReleased
    | ErrorMessage
    | WarningMessage
    | KeepAlive
    | Pong
)
ServerMessage = SessionMessage | ContextMessage

# ---- session → the engine ----------------------------------------------------------------------------------------

NOTHING_PLAYED_MS = -1e9


@dataclass(frozen=True, slots=True)
class ContextEvent:
    context_id: str


@dataclass(frozen=True, slots=True)
class DraftSpeech(ContextEvent):
    """Request to make the beginning of the context's first segment ahead, if there is time for it."""

    context_number: int
    segment: Segment
    settings: ContextSettings


@dataclass(frozen=True, slots=True)
class StartSpeech(ContextEvent):
    """Request to speak one segment. Segments of a context are spoken in order, with one voice."""

    context_number: int
    segment: Segment
    settings: ContextSettings
    priority: int


@dataclass(frozen=True, slots=True)
class ExtendSpeech(ContextEvent):
    """Longer version of the segment started last. It becomes final before another segment starts."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class EndOfSegments(ContextEvent):
    """No `StartSpeech` or `ExtendSpeech` follows. When all segments are spoken, finish the encoder, then call
    `Contexts.audio_finished`."""


@dataclass(frozen=True, slots=True)
class StopSpeech(ContextEvent):
    """Request to stop all work of the context now, if any is left, and to release what is kept for continuity. Comes
    once for each context with a segment or a draft."""


@dataclass(frozen=True, slots=True)
class PlaybackChanged(ContextEvent):
    """Correction of a context's playback position; from `played_ms` it advances in real time unless `paused`. A pause
    at `NOTHING_PLAYED_MS` stops generation, whatever the lead, until the next correction."""

    played_ms: float
    paused: bool


@dataclass(frozen=True, slots=True)
class PriorityChanged(ContextEvent):
    """New priority of a context. 0: the newest open context of the session (the oldest where contexts are spoken in
    turn); 1: any other."""

    priority: int


@dataclass(frozen=True, slots=True)
class Crashed:
    """An unexpected exception, to be logged. Its context has failed; the others go on."""

    error: Exception


SessionEvent = ContextEvent | Crashed
