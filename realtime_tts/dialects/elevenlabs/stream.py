"""ElevenLabs' two WebSockets, `multi-stream-input` with many contexts and `stream-input` with one.

A client may use a context's name again, so the session uses generated keys. The single space that opens a context is
not text. A flush without text ends a turn's text, yet more text may follow. The context ends when the client closes
it: flushed text is then spoken to its end, other text is cut off.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import Field

from realtime_tts.contract.speech_params import SpeechParams, given
from realtime_tts.dialects.base import NOTICE_FIELD, Dialect, Habits, joined_notices
from realtime_tts.dialects.elevenlabs.characters import CharacterTimes, TimedCharacter
from realtime_tts.dialects.elevenlabs.formats import DEFAULT_FORMAT, parse_packet_format
from realtime_tts.dialects.elevenlabs.requests import Request, error_status
from realtime_tts.dialects.json_input import dump_json, load_object, query_integer
from realtime_tts.errors import InvalidRequest, RealtimeTTSError
from realtime_tts.session import messages
from realtime_tts.session.connection import POLICY_VIOLATION

MAX_INACTIVITY_S = 180.0  # the longest inactivity timeout that a client may request
_DEFAULT_CONTEXT = "default"
_OPENER = " "
_MAX_DEAD = 64
_WIDE = "\u2e80"  # first character of the scripts without spaces between sentences


@dataclass(slots=True)
class _Turn:
    """State of a context, from its first message to its last answer.

    Attributes:
        key: its id in the session.
        name: its name at the client.
        known: characters with times that were not sent yet.
        origin_ms: origin of the times to send.
        ends_blank: the text so far is empty or ends with a blank.
        is_flushed: its last message was a flush without text.
        num_flushes: number of flushes that were not answered yet.
        notice: sent with the end of the context, since ElevenLabs has no message for notices.
    """

    key: str
    name: str
    times: CharacterTimes = field(default_factory=CharacterTimes)
    known: list[TimedCharacter] = field(default_factory=list)
    origin_ms: int = 0
    ends_blank: bool = True
    is_flushed: bool = False
    num_flushes: int = 0
    notice: str | None = None

    @property
    def is_spoken(self) -> bool:
        """True if the client has ended the turn's text and all of it was spoken."""
        return self.is_flushed and self.num_flushes == 0


class _Message(Request):
    context_id: str | None = None
    context_id_: str | None = Field(default=None, alias="contextId")
    flush: bool = False
    close_socket: bool = False
    close_context: bool = False


class ElevenLabsDialect(Dialect):
    """One connection.

    Args:
        voice: voice in the path.
        query: query of the URL: `output_format`, `auto_mode` (each message is spoken as one unit), `sync_alignment`
            (times from the context's start; else from the end of the last times sent), `language_code`, `seed`.
        multi: many contexts, named in each message; else one context, after which the connection closes.
        adapter: adapter of all contexts; None: none.

    Raises:
        InvalidRequest: an invalid query.
    """

    habits = Habits(min_idle_s=MAX_INACTIVITY_S, errors_end="context", forgives_mistakes=False, needs_audio=True)

    def __init__(self, voice: str, query: Mapping[str, str], multi: bool, adapter: str | None = None) -> None:
        self._voice, self._multi, self._adapter = voice, multi, adapter
        self.habits = replace(type(self).habits, errors_end="context" if multi else "session")
        self._audio = parse_packet_format(query.get("output_format", DEFAULT_FORMAT))
        self._speaks_units = _flag(query, "auto_mode")
        self._absolute = _flag(query, "sync_alignment")
        self._language = query.get("language_code") or None
        self._seed = query_integer(query, "seed")
        self._num_turns = 0
        self._turns: dict[str, _Turn] = {}  # by key, until their end
        self._open: dict[str, _Turn] = {}  # by name, until the client closes them
        self._draining: dict[str, _Turn] = {}  # by name: closed, and still being spoken
        self._dead: dict[str, None] = {}  # names of failed contexts, whose further text must not open new ones
        self._has_left = False

    # ---- from the client -----------------------------------------------------------------------------------------

    def parse(self, frame: str | bytes, max_bytes: int) -> Sequence[messages.ClientMessage]:
        """Return the session messages of a frame; `Ping` if there are none, so that the frame counts as activity.

        Raises:
            InvalidMessage: see `json_input`; or a field of another type.
        """
        message = _Message.of(load_object(frame, max_bytes))
        found = [] if self._has_left else self._read(message)
        return found or [messages.Ping()]

    def _read(self, message: _Message) -> list[messages.ClientMessage]:
        name, text = message.context_id or message.context_id_ or _DEFAULT_CONTEXT, message.text
        speed, dictionaries = message.voice_settings.speed, message.dictionaries()
        params = given(seed=self._seed, language=self._language, speed=speed, adapter=self._adapter)
        if self._multi:
            if message.close_socket:
                return self._leave()
            if message.close_context:
                return self._close(name)
        elif text == "":
            return [*([] if self._open else self._begin(_DEFAULT_CONTEXT, params, dictionaries)), *self._leave()]
        else:
            name = _DEFAULT_CONTEXT
        return self._speak(name, text or "", message.flush, params, dictionaries)

    def _speak(
        self, name: str, text: str, flush: bool, params: SpeechParams, dictionaries: tuple[str, ...]
    ) -> list[messages.ClientMessage]:
        found: list[messages.ClientMessage] = []
        if text == _OPENER:
            self._dead.pop(name, None)
        if name not in self._open:
            if not text or name in self._dead:
                return []
            found += self._begin(name, params, dictionaries)
        turn = self._open[name]
        if text and not (text == _OPENER and turn.ends_blank):
            found.append(self._text(turn, _bounded(text) if self._speaks_units else text))
        if flush and not text and not turn.ends_blank:
            found.append(self._text(turn, " "))  # shows the end of the last word to clients
        turn.is_flushed = not text and (flush or turn.is_flushed)
        if flush or (self._speaks_units and text.strip()):
            turn.num_flushes += 1
            found.append(messages.Flush(turn.key))
        return found

    def _begin(self, name: str, params: SpeechParams, dictionaries: tuple[str, ...]) -> list[messages.ClientMessage]:
        """Open a context, and end other open contexts whose text was flushed and spoken: clients may not close them."""
        over = [turn for turn in self._open.values() if turn.is_spoken]
        for turn in over:
            del self._open[turn.name]
        self._num_turns += 1
        turn = _Turn(str(self._num_turns), name)
        self._turns[turn.key] = self._open[name] = turn
        ends: list[messages.ClientMessage] = [messages.End(turn.key) for turn in over]
        return [*ends, messages.Text(turn.key, "", self._voice, self._audio, params, dictionaries)]

    def _text(self, turn: _Turn, text: str) -> messages.Text:
        turn.times.push(text)
        turn.ends_blank = text[-1].isspace()
        return messages.Text(turn.key, text)

    def _close(self, name: str) -> list[messages.ClientMessage]:
        self._dead.pop(name, None)
        turn = self._open.pop(name, None)
        if turn is not None and turn.is_flushed:
            self._draining[name] = turn
            return [messages.End(turn.key)]
        turn = turn or self._draining.pop(name, None)
        return [] if turn is None else [messages.CancelRequest(turn.key)]

    def _leave(self) -> list[messages.ClientMessage]:
        """End all contexts; the connection closes when they are spoken."""
        self._has_left = True
        ends: list[messages.ClientMessage] = [messages.End(turn.key) for turn in self._open.values()]
        self._open.clear()
        return [*ends, messages.Leave()]

    # ---- to the client -------------------------------------------------------------------------------------------

    def serialize(self, message: messages.ServerMessage) -> Sequence[str]:
        if isinstance(message, messages.KeepAlive):
            return [self._rendered(self._turns[key], b"") for key in message.context_ids if key in self._turns]
        if isinstance(message, messages.ErrorMessage):
            return self._refusal(message)
        if not isinstance(message, messages.ContextMessage | messages.WarningMessage):
            return []
        turn = self._turns.get(message.context_id)
        if turn is None:
            return []
        if isinstance(message, messages.AudioPackets):
            return [self._rendered(turn, payload) for payload in message.packets.payloads if payload]
        if isinstance(message, messages.Words):
            turn.known.extend(turn.times.place(message.words))
        elif isinstance(message, messages.Flushed):
            turn.num_flushes -= 1
        elif isinstance(message, messages.WarningMessage):
            turn.notice = joined_notices(turn.notice, message.message)
        elif isinstance(message, messages.ContextDone):
            turn.known.extend(turn.times.finish(message.audio_ms))
            last = [self._rendered(turn, b"")] if turn.known else []
            return [*last, self._over(turn)]
        elif isinstance(message, messages.ContextCancelled):
            return [self._over(turn)]
        elif isinstance(message, messages.ContextFailed):
            return self._failure(turn, message.code, message.message)
        return []

    def _rendered(self, turn: _Turn, audio: bytes) -> str:
        """Return a message with audio, and with the times of characters that were not sent yet."""
        alignment = None
        if turn.known:
            origin_ms = 0 if self._absolute else turn.origin_ms
            alignment = {
                "chars": [each.char for each in turn.known],
                "charStartTimesMs": [each.start_ms - origin_ms for each in turn.known],
                "charDurationsMs": [each.end_ms - each.start_ms for each in turn.known],
            }
            turn.origin_ms = turn.known[-1].end_ms
            turn.known = []
        answer = {
            "audio": base64.b64encode(audio).decode(),
            "isFinal": False,
            "alignment": alignment,
            "normalizedAlignment": alignment,
        }
        return self._told(turn, answer)

    def _over(self, turn: _Turn) -> str:
        del self._turns[turn.key]
        for names in (self._open, self._draining):
            if names.get(turn.name) is turn:
                del names[turn.name]
        told = {} if turn.notice is None else {NOTICE_FIELD: turn.notice}
        return self._told(turn, {"audio": None, "isFinal": True, **told})

    def _failure(self, turn: _Turn, code: str, text: str) -> list[str]:
        error = self._told(turn, _error(code, text))
        if self._open.get(turn.name) is turn:
            self._dead[turn.name] = None
            if len(self._dead) > _MAX_DEAD:
                del self._dead[next(iter(self._dead))]
        over = self._over(turn)
        return [error, over] if self._multi else [error]  # the Python package takes `isFinal` for success

    def _refusal(self, message: messages.ErrorMessage) -> list[str]:
        """Return the answer to an error without a known context, or of a context that could not be opened."""
        turn = self._turns.get(message.context_id or "")
        if turn is not None:
            return self._failure(turn, message.code, message.message)
        is_late = message.code == "context_closed"  # for an ended context, which needs no answer
        return [] if is_late else [dump_json(_error(message.code, message.message))]

    def _told(self, turn: _Turn, answer: dict[str, object]) -> str:
        return dump_json({**answer, "contextId": turn.name} if self._multi else answer)


def read_key(frame: str | bytes, max_bytes: int) -> str:
    """Return the API key in a client's first message, "" if it has none or is malformed."""
    try:
        values = load_object(frame, max_bytes)
    except InvalidRequest:
        return ""
    keys = [key for name in ("xi_api_key", "xi-api-key", "authorization") if isinstance(key := values.get(name), str)]
    key = next(filter(None, keys), "")
    return key.partition(" ")[2].strip() if key.lower().startswith("bearer ") else key


def refusal(error: RealtimeTTSError) -> str:
    """Return the error message for a refusal after an accepted handshake."""
    return dump_json(_error(error.code, error.message))


def _error(code: str, text: str) -> dict[str, object]:
    return {"message": text, "error": error_status(code), "code": POLICY_VIOLATION}


def _bounded(text: str) -> str:
    """Return a unit of text with a blank at its end, if its script needs one before the next unit."""
    return text if text[-1].isspace() or text[-1] >= _WIDE else text + " "


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")
