"""Deepgram's WebSocket, version 2 (Flux): `Speak`, `Flush`, `Interrupt`, `Configure` and `Close` as JSON.

Contexts are those of version 1, here called turns. `SpeechStarted` precedes the audio of a turn, `SpeechMetadata`
follows it. `SpeechInterrupted` divides the turn's text after the last word that was heard.

Positions are ms of the connection's audio as the client counts it: after an interruption the count goes on from the
position that the client reported. Unlike Deepgram's server, this one ends all turns at an `Interrupt`, also those that
wait, have no audio yet or are still being played; and the connection stays open after an `Error`.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from realtime_tts.contract.speech_params import SPEECH_PARAMS, given
from realtime_tts.dialects.deepgram.requests import Split, unsplit
from realtime_tts.dialects.deepgram.stream import DeepgramDialect, model_uuid, render
from realtime_tts.dialects.json_input import Body
from realtime_tts.errors import InvalidRequest
from realtime_tts.session import messages

_MAX_TURNS = 32  # the session keeps 16 open contexts and 16 that are over


class _Offset(Body):
    type: Literal["time_ms"] = "time_ms"
    value: float = Field(ge=0)


class _Interrupt(Body):
    playback_offset: _Offset | None = None


class _Configure(Body):
    speed: float | None = None


@dataclass(slots=True)
class _Turn:
    """Turn of a connection. `start_ms`: position at which its audio begins; None: nothing was sent of it."""

    speech_id: str
    num_chars: int = 0
    start_ms: float | None = None
    audio_ms: float = 0.0
    is_over: bool = False

    @property
    def end_ms(self) -> float:
        return (self.start_ms or 0.0) + self.audio_ms

    def metadata(self) -> dict[str, Any]:
        controls = dict.fromkeys(("pronunciations_applied", "breaks_applied", "pronunciation_warnings"), 0)
        counts = {"input_character_count": self.num_chars, "billable_character_count": self.num_chars}
        audio_ms = round(self.audio_ms)
        return {"speech_id": self.speech_id, "audio_duration_ms": audio_ms, **counts, "controls_applied": controls}


class FluxDialect(DeepgramDialect):
    """One socket of `/v2/speak`; the arguments are those of version 1."""

    kinds = ("Speak", "Flush", "Interrupt", "Configure", "Close")

    def __init__(self, query: Mapping[str, str], request_id: str, model: str, split: Split = unsplit) -> None:
        super().__init__(query, request_id, model, split)
        self._request_id, uuids = request_id, [model_uuid(model)]
        self._metadata = render(
            "Connected", request_id=request_id, model_name=model, model_version=model, model_uuids=uuids
        )
        self.welcome = [self._metadata]
        self._turns: dict[str, _Turn] = {}  # by context id: open ones, and those that may still be played
        self._total_chars, self._total_ms = 0, 0.0
        self._interrupted_ms = 0.0  # position of the last interruption
        self._interrupt: tuple[str, _Turn, bool] | None = None  # not answered yet; True: its position is known
        self._split: dict[str, str] = {}  # its answer's parts of the text
        self._replies: deque[str] = deque()  # answers without a message of the session, one for each `Ping`
        self._is_closing = False

    # ---- from the client -----------------------------------------------------------------------------------------

    def _text(self, text: str) -> messages.Text:
        message = super()._text(text)
        if (turn := self._turns.get(message.context_id)) is None:
            name = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._request_id}/{message.context_id}")
            turn = self._turns[message.context_id] = _Turn("dg_sp_" + name.hex[:12])
        turn.num_chars += len(text)
        return message

    def _read_flush(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        if self._is_open and not self._is_over:
            return super()._read_flush(values)
        self._begin_turn()
        return self._warn("NO_ACTIVE_SPEECH", "there is no active turn")

    def _read_interrupt(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        offset = _Interrupt.of(values).playback_offset
        at_ms = self._total_ms if offset is None else offset.value
        if self._interrupt is not None:
            return self._warn("INTERRUPT_IN_PROGRESS", "the last interrupt is not answered yet")
        if at_ms < self._interrupted_ms:
            return self._warn("INVALID_INTERRUPT_OFFSET", f"playback_offset is before {self._interrupted_ms:.0f} ms")
        unheard = (key for key, turn in self._turns.items() if not turn.is_over or at_ms < turn.end_ms)
        if (context_id := next(unheard, None)) is None:
            return self._warn("NO_ACTIVE_SPEECH" if self._total_ms else "NO_AUDIO_GENERATED", "no turn is spoken")
        turn = self._turns[context_id]
        self._interrupt, self._interrupted_ms = (context_id, turn, offset is not None), at_ms
        self._split = {"text_spoken": "", "text_remaining": ""}
        self._turns.clear()
        self._begin_turn()
        if offset is None or turn.start_ms is None:
            return [messages.CancelRequest()]
        return [messages.PlaybackReport(context_id, max(0.0, at_ms - turn.start_ms)), messages.CancelRequest()]

    def _read_configure(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        speed = _Configure.of(values).speed
        try:
            if speed is not None:
                SPEECH_PARAMS["speed"].check("speed", speed)
        except InvalidRequest as error:
            failed = {"code": "SPEED_OUT_OF_RANGE", "field": "speed", "value": speed, "description": error.message}
            return self._reply(render("ConfigureFailure", **failed))
        self._params |= given(speed=speed)
        applied = {name: value for name, value in self._params.items() if name == "speed"}
        return self._reply(render("ConfigureSuccess", applied=applied))

    def _read_close(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        """Close the connection once all turns were spoken to their end."""
        ends = [messages.End(str(self._turn))] if self._is_open and not self._is_over else []
        self._begin_turn()  # later text is refused without a failure of the last turn
        self._is_closing = True
        return [*ends, *(ping for frame in self._totals() for ping in self._reply(frame)), messages.Leave()]

    def _warn(self, code: str, description: str) -> list[messages.ClientMessage]:
        return self._reply(render("Warning", code=code, description=description))

    def _reply(self, frame: str) -> list[messages.ClientMessage]:
        self._replies.append(frame)
        return [messages.Ping()]

    # ---- to the client -------------------------------------------------------------------------------------------

    def serialize(self, message: messages.ServerMessage) -> list[str | bytes]:
        if isinstance(message, messages.AudioPackets):
            started = self._start(turn := self._turns[message.context_id])
            audio_ms = message.packets.num_samples * 1000 / self._audio.sample_rate
            turn.audio_ms += audio_ms
            self._total_ms += audio_ms
            return [*started, *message.packets.payloads]
        if isinstance(message, messages.ContextDone):
            turn = self._turns[message.context_id]
            return [*self._start(turn), render("Flushed", speech_id=turn.speech_id), *self._end(turn)]
        if isinstance(message, messages.ContextCancelled | messages.CancelAcknowledged):
            return self._render_interruption(message)
        if isinstance(message, messages.Pong):
            return [self._replies.popleft()]
        if isinstance(message, messages.WarningMessage):
            return [render("Warning", code=message.code.upper(), description=message.message)]
        return super().serialize(message)

    def _render_error(self, message: messages.ErrorMessage | messages.ContextFailed) -> list[str | bytes]:
        """Return the error, and the end of the turn if it is being spoken; a turn that waits is forgotten."""
        told, turn = super()._render_error(message), self._turns.get(message.context_id or "")
        if turn is None or turn.is_over:
            return told
        if turn is self._active:
            return [*told, *self._start(turn), *self._end(turn)]
        del self._turns[message.context_id or ""]
        return told

    def _render_interruption(
        self, cancelled: messages.ContextCancelled | messages.CancelAcknowledged
    ) -> list[str | bytes]:
        """Keep what was heard of the interrupted turn; return the answer when all turns are over."""
        if self._interrupt is None:
            return []
        context_id, turn, is_known = self._interrupt
        if cancelled.context_id == context_id:
            self._split = {"text_spoken": cancelled.spoken_text, "text_remaining": cancelled.unspoken_text}
        if cancelled.context_id is not None:
            return []
        self._interrupt, self._total_ms = None, self._interrupted_ms
        self._total_chars += 0 if turn.is_over else turn.num_chars
        split, played_ms = self._split if is_known else {}, round(self._total_ms)
        answer = render("SpeechInterrupted", audio_played_ms=played_ms, **split, metadata=turn.metadata())
        return [answer, *self._totals()]

    @property
    def _active(self) -> _Turn | None:
        return next((turn for turn in self._turns.values() if not turn.is_over), None)

    def _start(self, turn: _Turn) -> list[str]:
        if turn.start_ms is not None:
            return []
        turn.start_ms = self._total_ms
        return [render("SpeechStarted", speech_id=turn.speech_id)]

    def _end(self, turn: _Turn) -> list[str]:
        turn.is_over = True
        self._total_chars += turn.num_chars
        if len(self._turns) > _MAX_TURNS:
            del self._turns[next(iter(self._turns))]
        return [render("SpeechMetadata", **turn.metadata()), *self._totals()]

    def _totals(self) -> list[str]:
        """Return the last message if the connection is about to close."""
        if not self._is_closing or self._active is not None:
            return []
        counts = {"total_input_character_count": self._total_chars, "total_billable_character_count": self._total_chars}
        return [render("SessionMetadata", total_audio_duration_ms=round(self._total_ms), **counts)]
