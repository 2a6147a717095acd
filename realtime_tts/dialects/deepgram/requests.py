"""Parser of Deepgram's requests: voice and format from the query, over HTTP the text from the body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from typing_extensions import TypedDict

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.stream_format import StreamFormat, possible_mp3_bitrate
from realtime_tts.contract.speech_params import SpeechParams, given
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.json_input import Body, check_choice, query_integer
from realtime_tts.dialects.speech_request import SpeechRequest, bitrate_notices, unknown_field_notices
from realtime_tts.errors import InvalidRequest, RealtimeTTSError, UnsupportedAudioFormat

KEYS = KeyPlaces(schemes=("token", "bearer"))  # a browser offers one as a subprotocol, followed by its key
_PLAIN = {"wav": "wav", "none": "raw"}
# By encoding: codec, containers by their names in the query (the first is the default), default rate (Hz) and bit rate.
FILES = {
    "linear16": ("pcm_s16le", _PLAIN, 24_000, 0),
    "mulaw": ("mulaw", _PLAIN, 8_000, 0),
    "alaw": ("alaw", _PLAIN, 8_000, 0),
    "mp3": ("mp3", {"none": "mp3"}, 22_050, 48_000),
    "opus": ("opus", {"ogg": "ogg"}, 48_000, 12_000),
    "flac": ("flac", {"none": "flac"}, 22_050, 0),
    "aac": ("aac", {"none": "adts"}, 22_050, 48_000),
}
CODECS = {name: codec for name, (codec, containers, *_) in FILES.items() if containers is _PLAIN}  # of a WebSocket
Split = Callable[[str | None], tuple[str | None, str | None]]
FRAME_MS = 40  # audio in a frame; available as soon as speech begins
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?")


class DeepgramError(TypedDict):
    """Body of every error response."""

    err_code: str
    err_msg: str
    request_id: str


def deepgram_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, DeepgramError]:
    """Return the status and the body of an HTTP error response."""
    return error.http_status, {"err_code": error.code, "err_msg": error.message, "request_id": request_id}


class SpeechBody(Body):
    text: str


def read_raw_format(query: Mapping[str, str]) -> AudioFormat:
    """Return the audio format of a WebSocket, from `encoding` and `sample_rate`; it has no container.

    Raises:
        UnsupportedAudioFormat, InvalidRequest: a value is invalid or not supported.
    """
    encoding = query.get("encoding", "linear16")
    check_choice(encoding, CODECS, "encoding")
    if query.get("container", "none") != "none":
        raise UnsupportedAudioFormat("container must be none here", field="container")
    return AudioFormat(CODECS[encoding], query_integer(query, "sample_rate") or FILES[encoding][2], FRAME_MS)


def read_params(query: Mapping[str, str]) -> SpeechParams:
    """Raises:
    InvalidRequest: the speed is not a number.
    """
    speed = query.get("speed")
    if speed is not None and not _NUMBER.fullmatch(speed):
        raise InvalidRequest("speed must be a number", field="speed")
    return given(speed=None if speed is None else float(speed))


def unsplit(name: str | None) -> tuple[str | None, None]:
    return name, None


def parse_speech(query: Mapping[str, str], body: bytes, split: Split = unsplit) -> SpeechRequest:
    """Parse a `POST /v1/speak`. `split` separates a voice's name, here called a model, from its adapter.

    Raises:
        InvalidMessage: the body is not JSON, not an object, or has no text.
        InvalidRequest, UnsupportedAudioFormat: an invalid value.
    """
    if "callback" in query:
        raise InvalidRequest("callback is not supported: the answer is the speech", field="callback")
    spoken = SpeechBody.parse(body)
    if not spoken.text.strip():
        raise InvalidRequest("text is empty", field="text")
    audio, params = _read_format(query), read_params(query)
    # A bit rate without effect gives a notice, not an error.
    is_odd = "bit_rate" in query and not FILES[query.get("encoding", "mp3")][3]
    lowered = bitrate_notices(query_integer(query, "bit_rate") or audio.bitrate, audio.bitrate)
    notices = (("bit_rate is ignored",) if is_odd else lowered) + unknown_field_notices(spoken)
    voice, adapter = split(query.get("model"))
    return SpeechRequest(spoken.text, audio, voice=voice, params=params | given(adapter=adapter), notices=notices)


def _read_format(query: Mapping[str, str]) -> StreamFormat:
    encoding = query.get("encoding", "mp3")
    check_choice(encoding, FILES, "encoding")
    codec, containers, rate_hz, bitrate = FILES[encoding]
    container = query.get("container", next(iter(containers)))
    if container not in containers:
        known = " or ".join(containers)
        raise UnsupportedAudioFormat(f"of {encoding} the container must be {known}", field="container")
    bitrate = (query_integer(query, "bit_rate") or bitrate) if bitrate else 0
    rate_hz = query_integer(query, "sample_rate") or rate_hz
    bitrate = possible_mp3_bitrate(rate_hz, bitrate) if codec == "mp3" else bitrate
    return StreamFormat(containers[container], codec, rate_hz, bitrate)
