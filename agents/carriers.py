"""Media-stream protocols of phone carriers and PBXs, one row each in `CARRIERS`. Pure: messages in, events out."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Any
from xml.sax.saxutils import escape

from realtime_tts_client import AudioFormat


@dataclass(frozen=True)
class Started:
    """The stream has begun. The carrier expects `stream_id` in each message to it."""

    stream_id: str


@dataclass(frozen=True)
class Heard:
    """Audio of the caller, in the carrier's format."""

    payload: bytes


@dataclass(frozen=True)
class Played:
    """All audio before a mark was played, or was discarded by `clear`."""

    mark: str


@dataclass(frozen=True)
class Failed:
    """The carrier reports an error. The stream continues."""

    message: str


class Stopped:
    """The stream has ended."""


Event = Started | Heard | Played | Failed | Stopped


@dataclass(frozen=True)
class Carrier:
    """Messages of one carrier. Fields of its messages are named by their path: `start.streamSid`.

    Attributes:
        audio: format of audio in both directions.
        start, stop, played, error: names of its events; None: it has no such event.
        stream_id: field of `start`; None: streams have no name.
        format: fields of `start` that must have these values if present.
        mark_name: field of `played`.
        media: message with audio to play, like those with the caller's audio in base64; None: both are binary messages.
        mark, clear: messages that ask for `played` once all audio before was played, and that discard queued audio.
        answer: answer to the webhook of a call, XML or a JSON list; None: the PBX is configured instead.
        protocols: subprotocols of its WebSocket.
    """

    audio: AudioFormat
    start: str
    format: Mapping[str, str]
    played: str
    mark_name: str
    mark: str
    clear: str
    media: str | None = None
    stream_id: str | None = None
    stop: str | None = None
    error: str | None = None
    answer: str | None = None
    protocols: tuple[str, ...] = ()

    def read(self, message: str | bytes) -> Event | None:
        """Return the event of a message; None for events that a call does not need.

        Raises:
            ValueError: the message is malformed.
        """
        if isinstance(message, bytes):
            if self.media is not None:
                raise ValueError("a message must be JSON, got a binary one")
            return Heard(message)
        try:
            return self._event(json.loads(message), message)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a message of a media stream: {error!r}") from error

    def _event(self, fields: dict[str, Any], message: str) -> Event | None:
        event = fields["event"]
        if event == self.start:
            return Started(self._stream_id(fields))
        if event == "media" and self.media is not None:
            if fields["media"].get("track", "inbound") != "inbound":
                return None
            return Heard(base64.b64decode(fields["media"]["payload"], validate=True))
        if event == self.played:
            return Played(str(_at(fields, self.mark_name)))
        if event == self.error:
            return Failed(message)
        return Stopped() if event == self.stop else None

    def _stream_id(self, fields: dict[str, Any]) -> str:
        for path, expected in self.format.items():
            with contextlib.suppress(KeyError):
                if str(found := _at(fields, path)) != expected:
                    raise ValueError(f"{path} must be {expected}, got {found!r}")
        if self.stream_id is None:
            return ""
        found = _at(fields, self.stream_id)
        if not isinstance(found, str) or not found:
            raise ValueError(f"{self.stream_id} must be a text, got {found!r}")
        return found

    def to_play(self, stream_id: str, payload: bytes) -> str | bytes:
        """Return the message with audio to play."""
        if self.media is None:
            return payload
        return self._fill(self.media, stream=stream_id, audio=base64.b64encode(payload).decode())

    def to_mark(self, stream_id: str, name: str) -> str:
        """Return the message that asks for `Played` once all audio before it was played."""
        return self._fill(self.mark, stream=stream_id, name=name)

    def to_clear(self, stream_id: str) -> str:
        """Return the message that discards audio that was not played yet."""
        return self._fill(self.clear, stream=stream_id)

    def to_answer(self, url: str) -> tuple[str, str]:
        """Return content type and body of the answer to a call's webhook; `url` is where to connect."""
        assert self.answer is not None
        if self.answer.startswith("["):
            return "application/json", self._fill(self.answer, url=url)
        return "application/xml", Template(self.answer).substitute(url=escape(url, {'"': "&quot;"}))

    def _fill(self, template: str, **values: str) -> str:
        return Template(template).substitute({name: json.dumps(value) for name, value in values.items()})


def _at(fields: Any, path: str) -> Any:
    """Return the field at a path. Raises KeyError: it is missing."""
    for name in path.split("."):
        fields = fields[name]
    return fields


_MULAW = AudioFormat("mulaw", sample_rate=8_000, frame_ms=20)
_MULAW_FORMAT = {"start.mediaFormat.encoding": "audio/x-mulaw", "start.mediaFormat.sampleRate": "8000"}

CARRIERS = {
    "twilio": Carrier(
        audio=_MULAW,
        start="start",
        stream_id="start.streamSid",
        format=_MULAW_FORMAT,
        played="mark",
        mark_name="mark.name",
        stop="stop",
        media='{"event": "media", "streamSid": $stream, "media": {"payload": $audio}}',
        mark='{"event": "mark", "streamSid": $stream, "mark": {"name": $name}}',
        clear='{"event": "clear", "streamSid": $stream}',
        answer='<Response><Connect><Stream url="$url"/></Connect></Response>\n',
    ),
    "telnyx": Carrier(
        audio=_MULAW,
        start="start",
        stream_id="stream_id",
        format={"start.media_format.encoding": "PCMU", "start.media_format.sample_rate": "8000"},
        played="mark",
        mark_name="mark.name",
        stop="stop",
        error="error",
        media='{"event": "media", "media": {"payload": $audio}}',
        mark='{"event": "mark", "mark": {"name": $name}}',
        clear='{"event": "clear"}',
        answer='<Response><Connect><Stream url="$url" codec="PCMU" bidirectionalMode="rtp" bidirectionalCodec="PCMU"/>'
        "</Connect></Response>\n",
    ),
    "plivo": Carrier(
        audio=_MULAW,
        start="start",
        stream_id="start.streamId",
        format=_MULAW_FORMAT,
        played="playedStream",
        mark_name="name",
        media='{"event": "playAudio", "media": '
        '{"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": $audio}}',
        mark='{"event": "checkpoint", "streamId": $stream, "name": $name}',
        clear='{"event": "clearAudio", "streamId": $stream}',
        answer='<Response><Stream bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000">'
        "$url</Stream></Response>\n",
    ),
    "vonage": Carrier(
        audio=AudioFormat("pcm_s16le", sample_rate=16_000, frame_ms=20),
        start="websocket:connected",
        format={"content-type": "audio/l16;rate=16000"},
        played="websocket:notify",
        mark_name="payload.name",
        mark='{"action": "notify", "payload": {"name": $name}}',
        clear='{"action": "clear"}',
        answer='[{"action": "connect", "endpoint": '
        '[{"type": "websocket", "uri": $url, "content-type": "audio/l16;rate=16000"}]}]\n',
    ),
    # chan_websocket of Asterisk 20.18, 22.8, 23.2 or later, dialled with f(json). A command may have 128 bytes.
    "asterisk": Carrier(
        audio=_MULAW,
        start="MEDIA_START",
        format={"format": "ulaw"},
        played="MEDIA_MARK_PROCESSED",
        mark_name="correlation_id",
        error="ERROR",
        mark='{"command": "MARK_MEDIA", "correlation_id": $name}',
        clear='{"command": "FLUSH_MEDIA"}',
        protocols=("media",),
    ),
}
