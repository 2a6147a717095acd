"""What a request of Deepgram's clients says: in its address voice and format, over HTTP the text in its body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.stream_format import StreamFormat, possible_mp3_bitrate
from realtime_tts.dialects.json_input import load_object
from realtime_tts.dialects.speech_request import SpeechRequest, bitrate_notices, unknown_field_notices
from realtime_tts.errors import InvalidRequest, UnsupportedAudioFormat
from realtime_tts.session.settings import SpeechParams

CODECS = {"linear16": "pcm_s16le", "mulaw": "mulaw", "alaw": "alaw"}
# By encoding: codec, containers (the first one where none is named), rate and bit rate where none is named.
FILES = {
    "linear16": ("pcm_s16le", ("wav", "none"), 24_000, 0),
    "mulaw": ("mulaw", ("wav", "none"), 8_000, 0),
    "alaw": ("alaw", ("wav", "none"), 8_000, 0),
    "mp3": ("mp3", ("none",), 22_050, 48_000),
    "opus": ("opus", ("ogg",), 48_000, 12_000),
    "flac": ("flac", ("none",), 22_050, 0),
    "aac": ("aac", ("none",), 22_050, 48_000),
}
Split = Callable[[str | None], tuple[str | None, str | None]]
_CONTAINERS = {"mp3": "mp3", "flac": "flac", "aac": "adts"}  # that are called none
FRAME_MS = 40  # of audio in a frame: as soon as speech begins, so much of it is there
_INTEGER = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?")


def read_raw_format(query: Mapping[str, str]) -> AudioFormat:
    """Of a socket: `encoding` and `sample_rate`, without a container.

    Raises:
        UnsupportedAudioFormat, InvalidRequest: they cannot be.
    """
    encoding = query.get("encoding", "linear16")
    if encoding not in CODECS:
        raise UnsupportedAudioFormat(f"encoding must be one of {', '.join(CODECS)}", field="encoding")
    if query.get("container", "none") != "none":
        raise UnsupportedAudioFormat("container must be none here", field="container")
    return AudioFormat(CODECS[encoding], _integer(query, "sample_rate") or FILES[encoding][2], FRAME_MS)


def read_params(query: Mapping[str, str]) -> SpeechParams:
    """Raises:
    InvalidRequest: a speed that is no number.
    """
    speed = query.get("speed")
    if speed is not None and not _NUMBER.fullmatch(speed):
        raise InvalidRequest("speed must be a number", field="speed")
    return SpeechParams(speed=None if speed is None else float(speed))


def unsplit(name: str | None) -> tuple[str | None, None]:
    return name, None


def parse_speech(query: Mapping[str, str], body: bytes, split: Split = unsplit) -> SpeechRequest:
    """`POST /v1/speak`; `split` takes the adapter from the name of a voice, which is called a model here.

    Raises:
        InvalidMessage: the body is not JSON, not an object, or has no text.
        InvalidRequest, UnsupportedAudioFormat: a value that cannot be.
    """
    if "callback" in query:
        raise InvalidRequest("callback is not supported: the answer is the speech", field="callback")
    fields = load_object(body, len(body))
    text = fields.text("text")
    if not text.strip():
        raise InvalidRequest("text is empty", field="text")
    audio, params = _read_format(query), read_params(query)
    # A bit rate that does nothing is nothing to refuse a request for.
    is_odd = "bit_rate" in query and not FILES[query.get("encoding", "mp3")][3]
    lowered = bitrate_notices(_integer(query, "bit_rate") or audio.bitrate, audio.bitrate)
    notices = (("bit_rate is ignored",) if is_odd else lowered) + unknown_field_notices(fields)
    voice, adapter = split(query.get("model"))
    return SpeechRequest(text, audio, voice=voice, params=replace(params, adapter=adapter), notices=notices)


def _read_format(query: Mapping[str, str]) -> StreamFormat:
    encoding = query.get("encoding", "mp3")
    if encoding not in FILES:
        raise UnsupportedAudioFormat(f"encoding must be one of {', '.join(FILES)}", field="encoding")
    codec, containers, rate_hz, bitrate = FILES[encoding]
    container = query.get("container", containers[0])
    if container not in containers:
        known = " or ".join(containers)
        raise UnsupportedAudioFormat(f"of {encoding} the container must be {known}", field="container")
    container = _CONTAINERS.get(encoding, "raw") if container == "none" else container
    bitrate = (_integer(query, "bit_rate") or bitrate) if bitrate else 0
    rate_hz = _integer(query, "sample_rate") or rate_hz
    return StreamFormat(container, codec, rate_hz, _possible_bitrate(codec, rate_hz, bitrate))


def _possible_bitrate(codec: str, rate_hz: int, bitrate: int) -> int:
    return possible_mp3_bitrate(rate_hz, bitrate) if codec == "mp3" else bitrate


def _integer(query: Mapping[str, str], name: str) -> int | None:
    """Raises:
    InvalidRequest: it is none.
    """
    value = query.get(name)
    if value is not None and not _INTEGER.fullmatch(value):
        raise InvalidRequest(f"{name} must be an integer", field=name)
    return None if value is None else int(value)
