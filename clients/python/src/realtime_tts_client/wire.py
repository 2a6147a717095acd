"""Encoding and decoding of `realtime-tts.v1` frames for a client. Pure."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from realtime_tts_client.errors import ProtocolError
from realtime_tts_client.types import AudioFormat, Word

SUBPROTOCOL = "realtime-tts.v1"
AUDIO_HEADER = struct.Struct(">BBHIIQ")  # version, kind, flags, context number, sequence, pts in samples
_VERSION = 1
_KIND_AUDIO = 1
T = TypeVar("T")


@dataclass(frozen=True)
class AudioFrame:
    number: int
    sequence: int
    pts_samples: int
    payload: bytes


def render(kind: str, **fields: Any) -> str:
    """Return a control frame; fields that are None are omitted."""
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"type": kind, **given}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def clean_text(text: str) -> str:
    """Return text that UTF-8 can encode: halves of surrogate pairs are joined, single halves replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_audio(frame: bytes) -> AudioFrame | None:
    """Parse a binary frame; None for a kind of a later version.

    Raises:
        ProtocolError: the frame is too short or empty, or its header has another version.
    """
    if len(frame) < AUDIO_HEADER.size:
        raise ProtocolError(f"binary frame of {len(frame)} bytes")
    version, kind, _, number, sequence, pts_samples = AUDIO_HEADER.unpack_from(frame)
    if version != _VERSION:
        raise ProtocolError(f"binary frame of version {version}")
    if kind != _KIND_AUDIO:
        return None
    if len(frame) == AUDIO_HEADER.size:
        raise ProtocolError("audio frame without a packet")
    return AudioFrame(number, sequence, pts_samples, frame[AUDIO_HEADER.size :])


class Fields:
    """Reader of a server's JSON object, field by field.

    Raises (all methods):
        ProtocolError: the field is missing or of another type.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def parse(cls, frame: str) -> Fields:
        try:
            values = json.loads(frame)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("a text frame is not JSON") from error
        if not isinstance(values, dict):
            raise ProtocolError("a text frame is not a JSON object")
        return cls(values)

    def _typed(self, name: str, kind: type[T], what: str) -> T:
        value = self._values.get(name)
        if not isinstance(value, kind):
            raise ProtocolError(f"{name} is not {what}")
        return value

    def text(self, name: str) -> str:
        return self._typed(name, str, "a string")

    def optional_text(self, name: str) -> str | None:
        return None if self._values.get(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ProtocolError(f"{name} is not a count")
        return value

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ProtocolError(f"{name} is not a number")
        try:
            number = float(value)
        except OverflowError:  # JSON has integers of any size
            number = math.inf
        if not math.isfinite(number):
            raise ProtocolError(f"{name} is not a finite number")
        return number

    def optional_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        return self._values.get(name) is True

    def optional_flag(self, name: str) -> bool | None:
        return self.flag(name) if name in self._values else None

    def object(self, name: str) -> Fields:
        return Fields(self._typed(name, dict, "an object"))

    def objects(self, name: str) -> list[Fields]:
        items = self._typed(name, list, "a list of objects")
        if not all(isinstance(item, dict) for item in items):
            raise ProtocolError(f"{name} is not a list of objects")
        return [Fields(item) for item in items]

    def audio_format(self, name: str) -> AudioFormat:
        values = self.object(name)._values
        try:
            made = AudioFormat.from_map(values)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"{name} is not an audio format") from error
        if type(made.sample_rate) is not int or type(made.frame_ms) is not int or made.frame_samples == 0:
            raise ProtocolError(f"{name} is not an audio format: packets need a whole number of samples")
        return made

    def words(self, name: str) -> tuple[Word, ...]:
        return tuple(
            Word(w.text("text"), w.integer("start"), w.integer("end"), w.number("start_ms"), w.number("end_ms"))
            for w in self.objects(name)
        )

    def spans(self, name: str) -> tuple[tuple[int, int], ...]:
        value = self._values.get(name)
        if not isinstance(value, list) or not all(isinstance(item, list) and len(item) == 2 for item in value):
            raise ProtocolError(f"{name} is not a list of pairs")
        pairs = (Fields({"start": start, "end": end}) for start, end in value)
        return tuple((pair.integer("start"), pair.integer("end")) for pair in pairs)

    def optional_span(self, name: str) -> tuple[int, int] | None:
        if self._values.get(name) is None:
            return None
        (span,) = Fields({name: [self._values[name]]}).spans(name)
        return span

    def as_map(self) -> dict[str, Any]:
        return dict(self._values)
