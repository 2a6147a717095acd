"""Parser of Cartesia's requests: WebSocket messages and HTTP bodies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.stream_format import StreamFormat, possible_mp3_bitrate
from realtime_tts.contract.speech_params import SpeechParams, given
from realtime_tts.dialects.json_input import Fields, load_object
from realtime_tts.dialects.speech_request import SpeechRequest, bitrate_notices, unknown_field_notices
from realtime_tts.errors import InvalidMessage, InvalidRequest, UnsupportedAudioFormat

CODECS = {"pcm_s16le": "pcm_s16le", "pcm_f32le": "pcm_f32le", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}
CONTAINERS = ("raw", "wav", "mp3")
FRAME_MS = 40  # audio in a message; available as soon as speech begins
MAX_BUFFER_DELAY_MS = 5000
SPEEDS = {"slow": 0.8, "normal": 1.0, "fast": 1.25}  # named speeds of older requests


@dataclass(frozen=True, slots=True)
class Input:
    """A transcript; `flush`: speak it now; `is_last`: no further input follows."""

    transcript: str
    flush: bool
    is_last: bool


def read_input(fields: Fields) -> Input:
    """Raises:
    InvalidMessage
    """
    transcript = fields.text("transcript")
    delay_ms = fields.optional_number("max_buffer_delay_ms")
    if delay_ms is not None and not 0 <= delay_ms <= MAX_BUFFER_DELAY_MS:
        raise InvalidMessage(f"max_buffer_delay_ms is within 0 and {MAX_BUFFER_DELAY_MS}", field="max_buffer_delay_ms")
    is_last = not fields.optional_boolean("continue")
    flush = bool(fields.optional_boolean("flush"))
    if delay_ms == 0 and transcript.strip():
        # The client has split its text into units itself; some clients omit the blank between them.
        return Input(transcript if transcript[-1].isspace() else transcript + " ", not is_last, is_last)
    return Input(transcript, flush and not is_last, is_last)


def read_voice(fields: Fields) -> str | None:
    """Return the id of a voice; None without an id, as for an embedding."""
    voice = fields.optional_text_or_object("voice")
    if not isinstance(voice, Fields):
        return voice
    voice.expect("mode")
    return voice.optional_text("id")


def read_dictionaries(fields: Fields) -> tuple[str, ...]:
    """Return the id of the stored pronunciation dictionary, if one is named."""
    dictionary_id = fields.optional_text("pronunciation_dict_id")
    return () if dictionary_id is None else (dictionary_id,)


def read_params(fields: Fields) -> SpeechParams:
    """Raises:
    InvalidMessage: `language` and `locale` contradict each other, or the name of a speed is unknown.
    """
    language, locale = fields.optional_text("language"), fields.optional_text("locale")
    if language is not None and locale is not None and language != locale:
        raise InvalidMessage("a request has a language or a locale, not both", field="locale")
    return given(
        language=language or locale or None, speed=_read_speed(fields), volume=_config(fields).optional_number("volume")
    )


def _read_speed(fields: Fields) -> float | None:
    speed = _config(fields).optional_number("speed")
    name = fields.optional_text("speed")
    if name is not None and name not in SPEEDS:
        raise InvalidMessage(f"speed is one of {', '.join(SPEEDS)}", field="speed")
    return SPEEDS[name] if speed is None and name is not None else speed


def _config(fields: Fields) -> Fields:
    return fields.optional_object("generation_config") or Fields({})


def read_raw_format(fields: Fields) -> AudioFormat:
    """Return the `output_format` of a WebSocket message, which has no container.

    Raises:
        InvalidMessage, UnsupportedAudioFormat: it is missing, has a container, or is not supported.
    """
    wanted = _output_format(fields)
    if wanted.optional_text("container") not in (None, "raw"):
        raise UnsupportedAudioFormat("container must be raw here", field="output_format.container")
    return AudioFormat(_codec(wanted), _sample_rate(wanted), FRAME_MS)


# ---- over HTTP -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CartesiaSpeech:
    """Content of a `POST /tts/bytes` or `/tts/sse`; `context_id` and `wants_words` are for events only."""

    speech: SpeechRequest
    context_id: str | None
    wants_words: bool


def parse_speech(body: bytes, as_events: bool) -> CartesiaSpeech:
    """Parse the body of an HTTP request. `as_events`: for an answer of events, whose audio has no container.

    Raises:
        InvalidMessage: not JSON, not an object, or a field of another type or missing.
        InvalidRequest, UnsupportedAudioFormat: an invalid value.
    """
    fields = load_object(body, len(body))
    transcript = fields.text("transcript")
    if not transcript.strip():
        raise InvalidRequest("transcript is empty", field="transcript")
    audio = _stream_format(_output_format(fields))
    if as_events and audio.container != "raw":
        raise UnsupportedAudioFormat("container must be raw here", field="output_format.container")
    speech = SpeechRequest(
        text=transcript,
        audio=audio,
        voice=read_voice(fields),
        model=fields.optional_text("model_id"),
        params=read_params(fields),
        dictionaries=read_dictionaries(fields),
        notices=(*_notices(fields), *_format_notices(_output_format(fields), audio)),
    )
    context_id, wants_words = fields.optional_text("context_id"), bool(fields.optional_boolean("add_timestamps"))
    speech = replace(speech, notices=(*speech.notices, *unknown_field_notices(fields)))
    return CartesiaSpeech(speech, context_id, wants_words)


def _stream_format(wanted: Fields) -> StreamFormat:
    container = wanted.text("container")
    wanted.expect("encoding", "bit_rate")  # each is used by some containers only
    if container not in CONTAINERS:
        raise UnsupportedAudioFormat(
            f"container must be one of {', '.join(CONTAINERS)}", field="output_format.container"
        )
    if container == "mp3":
        rate_hz = _sample_rate(wanted)
        return StreamFormat("mp3", "mp3", rate_hz, possible_mp3_bitrate(rate_hz, _bit_rate(wanted)))
    return StreamFormat(container, _codec(wanted), _sample_rate(wanted))


def _notices(fields: Fields) -> Iterator[str]:
    """Yield notices about unsupported options; the WebSocket has no message for them."""
    if _config(fields).optional_text("emotion") not in (None, "neutral"):
        yield "emotion is ignored"
    if fields.optional_text("normalization") not in (None, "auto"):
        yield "normalization is ignored"
    for name in ("add_phoneme_timestamps", "save"):
        if fields.optional_boolean(name):
            yield f"{name} is ignored"


def _format_notices(wanted: Fields, audio: StreamFormat) -> tuple[str, ...]:
    asked = _bit_rate(wanted) if audio.codec == "mp3" else 0
    return bitrate_notices(asked, audio.bitrate) if asked else ()


# ---- formats -------------------------------------------------------------------------------------------------------


def _output_format(fields: Fields) -> Fields:
    wanted = fields.optional_object("output_format")
    if wanted is None:
        raise InvalidMessage("output_format is missing", field="output_format")
    return wanted


def _bit_rate(wanted: Fields) -> int:
    return wanted.optional_integer("bit_rate") or 0


def _codec(wanted: Fields) -> str:
    encoding = wanted.text("encoding")
    if encoding not in CODECS:
        raise UnsupportedAudioFormat(f"encoding must be one of {', '.join(CODECS)}", field="output_format.encoding")
    return CODECS[encoding]


def _sample_rate(wanted: Fields) -> int:
    sample_rate = wanted.optional_integer("sample_rate")
    if sample_rate is None:
        raise InvalidMessage("output_format.sample_rate is missing", field="output_format.sample_rate")
    return sample_rate
