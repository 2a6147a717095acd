"""Client side of a session, without I/O: contexts survive changes of the connection.

Input: calls of the program and frames of the server. Output: frames to send (`take_outgoing`) and events. All messages
of a context are kept until it is over, so that after a lost connection exactly those that the server lacks can be sent
again.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from realtime_tts_client.errors import (
    ConnectionLost,
    ContextClosed,
    InvalidRequest,
    ProtocolError,
    RealtimeTTSError,
    ResumeGap,
    ServerError,
    TextTooLong,
    error_from_code,
)
from realtime_tts_client.events import (
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextHeld,
    ContextReleased,
    ContextRestarted,
    ContextStarted,
    Event,
    PacketReceived,
    Refused,
    SessionFailed,
    SessionReady,
    TextSkipped,
    WordsReceived,
)
from realtime_tts_client.record import ContextRecord
from realtime_tts_client.types import Done, Packet, Spoken, Word
from realtime_tts_client.wire import AudioFrame, Fields, clean_text, parse_audio, render

_REFUSALS_OF_HOLDS = (ContextClosed.code, InvalidRequest.code)  # of releases too; never of more text for a context


class State(Enum):
    """State: OFFLINE → STARTING or RESUMING → READY; a lost connection leads back to OFFLINE from each state."""

    OFFLINE = "offline"
    STARTING = "starting"
    RESUMING = "resuming"
    READY = "ready"


class ClientProtocol:
    """Protocol of one session.

    Args:
        start: fields of `session.start`.
    """

    def __init__(self, start: dict[str, Any]) -> None:
        self.state = State.OFFLINE
        self.session_id: str | None = None
        self.limits: dict[str, Any] = {}
        self.model = ""
        self.voice = ""
        self._start = start
        self._contexts: dict[str, ContextRecord] = {}
        self._by_number: dict[int, str] = {}
        self._offered: frozenset[str] = frozenset()  # contexts that the pending resume lists
        self._outgoing: deque[tuple[str | None, str]] = deque()  # context id, frame
        self._events: list[Event] = []
        self._handlers: dict[str, Callable[[Fields], None]] = {
            "session.started": self._on_session_started,
            "session.resumed": self._on_session_resumed,
            "cancel.acknowledged": self._on_acknowledged,
            "context.held": self._on_held,
            "context.released": self._on_released,
            "error": self._on_error,
            "warning": self._on_warning,
        }
        self._sequenced: dict[str, Callable[[ContextRecord, Fields], None]] = {  # messages with a sequence number
            "context.started": self._on_context_started,
            "words": self._on_words,
            "flushed": lambda record, fields: None,
            "context.done": self._on_done,
            "context.cancelled": self._on_cancelled,
            "context.failed": self._on_failed,
        }

    # ---- the connection ------------------------------------------------------------------------------------------

    def connection_made(self, *, resume: bool) -> None:
        """Start on a new connection; with `resume`, resume the session if there was one."""
        self._outgoing.clear()
        if resume and self.session_id is not None:
            self.state = State.RESUMING
            listed = {key: record.last_sequence for key, record in self._contexts.items() if not record.over}
            self._offered = frozenset(listed)
            self._outgoing.append((None, render("session.resume", session_id=self.session_id, contexts=listed)))
        else:
            self._begin_anew()

    def connection_lost(self) -> None:
        self.state = State.OFFLINE
        self._outgoing.clear()

    def take_outgoing(self) -> str | None:
        """Return the next frame to send, or None."""
        return self._outgoing.popleft()[1] if self._outgoing else None

    @property
    def num_outgoing(self) -> int:
        return len(self._outgoing)

    # ---- the program ---------------------------------------------------------------------------------------------

    def open(self, context_id: str, opening: dict[str, Any], *, is_draft: bool = False) -> None:
        """Open a context; its first message is sent with its first text."""
        self._contexts[context_id] = ContextRecord(context_id, opening, is_draft=is_draft)

    def commit(self, context_id: str, text: str | None) -> None:
        """Have a draft spoken; `text`: in place of its own, if it is not None. No effect on a context that is over.

        Raises:
            ValueError: the context is not a draft.
            TextTooLong: the text is longer than the server allows; the draft is unchanged.
        """
        record = self._contexts.get(context_id)
        if record is None or record.over or record.cancelled:
            return
        if not record.is_draft:
            raise ValueError("the context is not a draft")
        if text is not None:
            text = clean_text(text)
            self.check_length(len(text))
            record.pieces, record.num_chars = [text], len(text)
        record.is_draft = False
        if self.state is not State.READY:
            return
        if not record.opened:
            self._write(record, *record.missing_frames(0, 0, ended=False))
        else:
            self._write(record, *([record.frame("commit")] if text is None else record.commit_frames()))

    def send_text(self, context_id: str, text: str) -> None:
        """Send text. Text for a context that is over is dropped, since its end may cross the text on the wire.

        Raises:
            ContextClosed: after `end`.
            TextTooLong: with it the context would be longer than the server allows; nothing of it is sent.
        """
        record = self._contexts.get(context_id)
        if record is not None and record.ended and not record.over and not record.cancelled:
            raise ContextClosed("text after the end of the context")
        if record is None or not record.takes_text:
            return
        text = clean_text(text)
        self.check_length(record.num_chars + len(text))
        record.pieces.append(text)
        record.num_chars += len(text)
        if self.state is State.READY:
            self._write(record, *record.text_frames(text))

    def check_length(self, num_chars: int) -> None:
        """Raises:
        TextTooLong: the number of characters is above the limit of a context.
        """
        limit = self.limits.get("max_text_chars")
        if isinstance(limit, int) and num_chars > limit:
            raise TextTooLong(f"a context may have up to {limit} characters: this would make {num_chars}", field="text")

    def flush(self, context_id: str) -> None:
        record = self._contexts.get(context_id)
        if record is None or not record.takes_text:
            return
        if not record.is_draft:
            record.flushes.append(record.num_chars)
        if self.state is State.READY:
            self._write(record, *record.text_frames(""), record.frame("flush"))

    def end(self, context_id: str) -> None:
        record = self._contexts.get(context_id)
        if record is None or not record.takes_text:
            return
        record.ended = True
        if self.state is State.READY:
            self._write(record, *record.text_frames(""), record.frame("end"))

    def cancel(self, context_id: str, played_ms: float) -> None:
        """Cancel a context, ahead of its queued frames."""
        record = self._record(context_id)
        record.cancelled = True
        self._outgoing = deque(entry for entry in self._outgoing if entry[0] != context_id)
        if self.state is State.READY:
            self.played(context_id, played_ms)
            self._write(record, record.frame("cancel"))

    def hold(self, context_id: str, stop_ms: float) -> None:
        """Hold a context at a position."""
        record = self._record(context_id)
        record.held_ms = stop_ms
        self._ask(record, "hold")

    def release(self, context_id: str, clause_after_ms: float) -> None:
        """Let a held context go on."""
        record = self._record(context_id)
        record.clause_after_ms = clause_after_ms
        self._ask(record, "release")

    def _record(self, context_id: str) -> ContextRecord:
        """Return the record of a context; a new one if the context is over."""
        return self._contexts.setdefault(context_id, ContextRecord(context_id, {}, over=True))

    def _ask(self, record: ContextRecord, what: str) -> None:
        record.asked = what
        if self.state is State.READY:
            opening = [] if record.over else record.text_frames("")
            self._write(record, *opening, *record.asking_frames())

    def played(self, context_id: str, played_ms: float) -> None:
        base_ms = 0.0
        if (record := self._contexts.get(context_id)) is not None:
            record.played_ms, base_ms = played_ms, record.base_ms
        if self.state is State.READY:
            frame = render("playback", context_id=context_id, played_ms=round(max(0.0, played_ms - base_ms), 3))
            self._outgoing.append((context_id, frame))

    def ping(self) -> None:
        if self.state is State.READY:
            self._outgoing.append((None, render("ping")))

    # ---- the server ----------------------------------------------------------------------------------------------

    def receive(self, frame: str | bytes) -> list[Event]:
        """Return the events of one frame.

        Raises:
            ProtocolError: the frame is malformed; the connection is of no further use.
        """
        if isinstance(frame, bytes):
            audio = parse_audio(frame)
            if audio is not None:
                self._on_audio(audio)
        else:
            self._on_text_frame(Fields.parse(frame))
        events, self._events = self._events, []  # with those of a session that began anew before this frame
        return events

    def _on_text_frame(self, fields: Fields) -> None:
        kind = fields.text("type")
        if kind in self._handlers:
            self._handlers[kind](fields)
        elif kind in self._sequenced:
            record = self._contexts.get(fields.text("context_id"))
            if record is not None and not record.over and record.is_next(fields.integer("sequence")):
                self._sequenced[kind](record, fields)

    def _on_session_started(self, fields: Fields) -> None:
        self.session_id = fields.text("session_id")
        limits = fields.object("limits")
        limits.optional_number("resume_window_s")  # validated here, used by `Link`
        self.limits = limits.as_map()
        self.model, self.voice = fields.text("model"), fields.text("voice")
        if self.state is State.STARTING:
            self.state = State.READY
            self._events.append(SessionReady(resumed=False))
            for context_id in list(self._contexts):
                self._say_again(context_id)

    def _on_session_resumed(self, fields: Fields) -> None:
        if self.state is not State.RESUMING:
            raise ProtocolError("session.resumed without a request")
        self.state = State.READY
        self._events.append(SessionReady(resumed=True))
        known = {item.text("context_id"): item for item in fields.objects("contexts")}
        for context_id in list(self._contexts):
            if context_id not in self._offered or context_id not in known:
                self._say_again(context_id)
            else:
                self._go_on(context_id, known[context_id])

    def _go_on(self, context_id: str, found: Fields) -> None:
        record, state = self._contexts[context_id], found.text("state")
        if state == "open":
            num_chars, num_flushes = found.integer("received_chars"), found.integer("num_flushes")
            if found.flag("draft") and not record.is_draft and not record.cancelled:  # the commit was lost
                self._write(record, *record.commit_frames(), *record.asking_frames())
                return
            self._say_again(context_id, num_chars, num_flushes, ended=found.flag("ended"))
        elif state == "finished":
            self._say_cancel_again(record)
        elif state == "unknown" and record.last_sequence < 0:
            self._say_again(context_id)
        else:
            self._fail(context_id, ResumeGap("the server no longer holds what was missed"))

    def _on_context_started(self, record: ContextRecord, fields: Fields) -> None:
        record.number, record.audio = fields.integer("number"), fields.audio_format("audio")
        self._by_number[record.number] = record.context_id
        record.voice, record.seed = fields.text("voice"), fields.integer("seed")
        if not record.told:
            record.told = True
            self._events.append(ContextStarted(record.context_id, record.voice, record.seed, record.audio))

    def _on_audio(self, frame: AudioFrame) -> None:
        context_id = self._by_number.get(frame.number)
        record = self._contexts.get(context_id) if context_id is not None else None
        if context_id is None or record is None or not record.is_next(frame.sequence):
            return
        if record.audio is None:
            raise AssertionError("a context has its number and its format from one message")
        pts_samples = record.base_samples + frame.pts_samples
        record.num_samples = pts_samples + record.audio.frame_samples
        if not record.cancelled:
            packet = Packet(frame.payload, pts_samples, record.audio.frame_samples, record.audio)
            self._events.append(PacketReceived(context_id, packet))

    def _on_words(self, record: ContextRecord, fields: Fields) -> None:
        if not record.cancelled:
            words = tuple(_moved(word, record) for word in fields.words("words"))
            end_ms = fields.optional_number("previous_end_ms")
            if end_ms is not None and record.words:
                end_ms += record.base_ms
                record.words[-1] = dataclasses.replace(record.words[-1], end_ms=end_ms)
            record.words += words
            self._events.append(WordsReceived(record.context_id, words, end_ms))

    def _on_done(self, record: ContextRecord, fields: Fields) -> None:
        record.over = True
        audio_ms, num_chars = record.base_ms + fields.number("audio_ms"), record.shift + fields.integer("characters")
        draft_used, opening_used = fields.optional_flag("draft_used"), fields.optional_flag("opening_used")
        mended = round(fields.optional_number("mended") or 0)
        ttfa_ms = fields.optional_number("ttfa_ms")
        done = Done(audio_ms, num_chars, ttfa_ms, draft_used, opening_used, mended)
        self._events.append(ContextDone(record.context_id, done))
        self._forget_if_over(record)

    def _on_cancelled(self, record: ContextRecord, fields: Fields) -> None:
        self._forget(record.context_id)
        self._events.append(ContextCancelled(record.context_id, _spoken(fields, "played_ms", record)))

    def _on_failed(self, record: ContextRecord, fields: Fields) -> None:
        self._forget(record.context_id)
        self._events.append(ContextFailed(record.context_id, _error(fields), _spoken(fields, "audio_ms", record)))

    def _on_acknowledged(self, fields: Fields) -> None:
        if (record := self._contexts.get(fields.optional_text("context_id") or "")) is not None:
            self._on_cancelled(record, fields)

    def _on_held(self, fields: Fields) -> None:
        if (record := self._contexts.get(fields.text("context_id"))) is not None and record.asked == "hold":
            record.asked = ""
            spoken = _spoken(fields, "played_ms", record)
            self._events.append(ContextHeld(record.context_id, spoken))

    def _on_released(self, fields: Fields) -> None:
        record = self._contexts.get(fields.text("context_id"))
        if record is None or record.asked != "release":
            return
        from_ms, held_ms = record.base_ms + fields.number("from_ms"), record.held_ms
        if held_ms is not None and held_ms < record.base_ms:  # it stopped in what an earlier session had spoken
            from_ms = held_ms
        record.held_ms, record.asked = None, ""
        self._events.append(ContextReleased(record.context_id, from_ms))
        self._forget_if_over(record)

    def _on_error(self, fields: Fields) -> None:
        error, context_id = _error(fields), fields.optional_text("context_id")
        record = self._contexts.get(context_id or "")
        if self.state is State.RESUMING and error.code == "session_not_found":
            self._begin_anew()
        elif self.state in (State.RESUMING, State.STARTING):
            self._events.append(SessionFailed(error))
        elif context_id is None or record is None:
            self._events.append(Refused(context_id, error))
        elif record.number is None and not (record.cancelled or record.over):
            self._fail(context_id, error)  # the context was never accepted
        elif record.asked and error.code in _REFUSALS_OF_HOLDS:
            record.held_ms, record.asked = None, ""
            self._events.append(Refused(context_id, error, is_answer=True))
            self._forget_if_over(record)
        elif not isinstance(error, ContextClosed):  # the text crossed the context's terminal message
            if (span := fields.optional_span("span")) is not None:
                span = (span[0] + record.shift, span[1] + record.shift)
                record.remove_text(*span)
            self._events.append(Refused(context_id, error, span=span))

    def _on_warning(self, fields: Fields) -> None:
        if fields.text("code") == "unspeakable_text":
            context_id = fields.text("context_id")
            record = self._contexts.get(context_id)
            base = record.shift if record is not None else 0
            spans = tuple((start + base, end + base) for start, end in fields.spans("spans"))
            self._events.append(TextSkipped(context_id, spans))

    # ---- inside --------------------------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """Start a new session. Open contexts are sent again, from the word that was being heard."""
        self.state = State.STARTING
        self._by_number.clear()
        for context_id, record in list(self._contexts.items()):
            if record.is_settled:
                self._forget(context_id)
            elif record.over or record.cancelled:
                self._fail(context_id, ConnectionLost("the session could not be resumed"))
            else:
                record.begin_again((self._start.get("params") or {}).get("text_type") or "auto")
                if record.told:
                    self._events.append(ContextRestarted(context_id, record.base_ms))
        self._outgoing.append((None, render("session.start", **self._start)))

    def _say_again(self, context_id: str, num_chars: int = 0, num_flushes: int = 0, *, ended: bool = False) -> None:
        """Send the messages of a context that the server lacks."""
        record = self._contexts[context_id]
        if record.over or record.cancelled:
            self._say_cancel_again(record)
        else:
            self._write(record, *record.missing_frames(num_chars, num_flushes, ended), *record.asking_frames())

    def _say_cancel_again(self, record: ContextRecord) -> None:
        self._write(record, *([record.frame("cancel")] if record.cancelled else record.asking_frames()))

    def _write(self, record: ContextRecord, *frames: str) -> None:
        self._outgoing.extend((record.context_id, frame) for frame in frames)

    def _forget_if_over(self, record: ContextRecord) -> None:
        """Forget a settled context, unless its later holds need the base of their positions."""
        if record.is_settled and not record.base_samples:
            self._forget(record.context_id)

    def _forget(self, context_id: str) -> None:
        record = self._contexts.pop(context_id)
        if record.number is not None:
            self._by_number.pop(record.number, None)

    def _fail(self, context_id: str, error: RealtimeTTSError) -> None:
        self._forget(context_id)
        self._events.append(ContextFailed(context_id, error))


def _spoken(fields: Fields, duration_name: str, record: ContextRecord) -> Spoken:
    """Return the server's figures of what was heard, offset by the part that an earlier session made."""
    duration_ms, word_share = fields.number(duration_name), fields.optional_number("word_share") or 0.0
    if record.base_samples and duration_name == "played_ms" and record.heard_ms < record.base_ms:
        return record.spoken_by_clock()
    if not record.base_chars:
        num_chars = fields.integer("spoken_chars")
        return Spoken(record.base_ms + duration_ms, fields.text("spoken_text"), num_chars, word_share)
    num_chars = max(record.base_chars, record.shift + fields.integer("spoken_chars"))
    return Spoken(record.base_ms + duration_ms, record.text[:num_chars], num_chars, word_share)


def _moved(word: Word, record: ContextRecord) -> Word:
    """Return the word with times and offsets in the whole context."""
    chars, time_ms = record.shift, record.base_ms
    return Word(word.text, word.start + chars, word.end + chars, word.start_ms + time_ms, word.end_ms + time_ms)


def _error(fields: Fields) -> ServerError:
    return error_from_code(
        fields.text("code"),
        fields.text("message"),
        retryable=fields.flag("retryable"),
        field=fields.optional_text("field"),
        retry_after_s=fields.optional_number("retry_after_s"),
    )
