"""Deepgram's WebSocket, version 1: `Speak`, `Flush`, `Clear` and `Close` as JSON; audio as binary frames.

`Flushed` reports the end of each turn.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from realtime_tts.contract.speech_params import given
from realtime_tts.dialects.base import Habits
from realtime_tts.dialects.deepgram.requests import KEYS, SpeechBody, Split, read_params, read_raw_format, unsplit
from realtime_tts.dialects.json_input import dump_json
from realtime_tts.dialects.turns import TurnDialect
from realtime_tts.errors import InvalidMessage
from realtime_tts.session import messages

_HOUR_S = 3600.0


def model_uuid(model: str) -> str:
    """Return a UUID for a model's name, the same on every server."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, model))


class DeepgramDialect(TurnDialect):
    """One socket of `/v1/speak`.

    Args:
        query: query of the URL: model, encoding, sample_rate, speed.
        request_id: id of the connection.
        model: name of the loaded model, which is sent to clients.
        split: separates a voice's name from its adapter.

    Raises (at construction):
        UnsupportedAudioFormat, InvalidRequest: an invalid query.
    """

    habits = Habits(in_turn=True, errors_end="context", needs_audio=True, min_idle_s=_HOUR_S)
    kinds: tuple[str, ...] = ("Speak", "Flush", "Clear", "Close")

    def __init__(self, query: Mapping[str, str], request_id: str, model: str, split: Split = unsplit) -> None:
        super().__init__()
        self.subprotocol = KEYS.schemes[0]
        self._voice, adapter = split(query.get("model"))
        self._audio, self._params = read_raw_format(query), read_params(query) | given(adapter=adapter)
        self._metadata = render(
            "Metadata", request_id=request_id, model_name=model, model_version=model, model_uuid=model_uuid(model)
        )
        self.welcome = [self._metadata]
        self._num_flushed = self._num_cleared = 0

    # ---- from the client -----------------------------------------------------------------------------------------

    def parse(self, frame: str | bytes, max_bytes: int) -> list[messages.ClientMessage]:
        if isinstance(frame, bytes):
            raise InvalidMessage("a message is a text frame")
        return super().parse(frame, max_bytes)

    def _read_speak(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        text = SpeechBody.of(values).text
        return [] if self._is_over else [self._text(text)]

    def _read_flush(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        if self._is_over:
            self._begin_turn()
        return super()._read_flush(values)

    def _read_clear(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        self._begin_turn()
        return [messages.CancelRequest()]

    def _read_close(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        return [messages.Leave(at_once=True)]

    def _text(self, text: str) -> messages.Text:
        self._is_open = True
        return messages.Text(str(self._turn), text, self._voice, self._audio, self._params)

    # ---- to the client -------------------------------------------------------------------------------------------

    def serialize(self, message: messages.ServerMessage) -> list[str | bytes]:
        if isinstance(message, messages.AudioPackets):
            return list(message.packets.payloads)
        if isinstance(message, messages.ContextDone):
            self._num_flushed += 1
            return [render("Flushed", sequence_id=self._num_flushed - 1)]
        if isinstance(message, messages.CancelAcknowledged) and message.context_id is None:
            self._num_cleared += 1
            return [render("Cleared", sequence_id=self._num_cleared - 1)]
        if isinstance(message, messages.KeepAlive):
            return [self._metadata]
        if isinstance(message, messages.WarningMessage):
            return [render("Warning", **_both_names("warn", message.code, message.message))]
        if isinstance(message, messages.ErrorMessage | messages.ContextFailed):
            return self._render_error(message)
        return []

    def _render_error(self, message: messages.ErrorMessage | messages.ContextFailed) -> list[str | bytes]:
        if self._is_known_failure(message.context_id):
            return []
        return [render("Error", **_both_names("err", message.code, message.message))]


# ---- rendering -----------------------------------------------------------------------------------------------------


def render(kind: str, **fields: object) -> str:
    return dump_json({"type": kind, **fields})


def _both_names(prefix: str, code: str, message: str) -> dict[str, str]:
    """Return a code and a text under their current and their former names."""
    return {"code": code, "description": message, f"{prefix}_code": code, f"{prefix}_msg": message}
