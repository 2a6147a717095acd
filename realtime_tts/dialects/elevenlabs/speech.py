"""ElevenLabs' speech over plain HTTP: parser of its requests, and answers with times of characters. Pure."""

from __future__ import annotations

import base64

from realtime_tts.contract.speech_params import given
from realtime_tts.dialects.elevenlabs.characters import CharacterTimes, TimedCharacter
from realtime_tts.dialects.elevenlabs.formats import parse_format
from realtime_tts.dialects.elevenlabs.requests import Request, elevenlabs_problem
from realtime_tts.dialects.json_input import Integer, dump_json
from realtime_tts.dialects.speech_request import Chunk, Rendering, SpeechRequest, Total, unknown_field_notices
from realtime_tts.errors import InvalidRequest, RealtimeTTSError

_IGNORED = ("previous_request_ids", "next_request_ids", "use_pvc_as_ivc")


class SpeechBody(Request):
    text: str
    model_id: str | None = None
    seed: Integer | None = None
    language_code: str | None = None
    # Fields without effect, which clients send by default; those in `_IGNORED` get a notice.
    previous_text: object = None
    next_text: object = None
    apply_text_normalization: object = None
    apply_language_text_normalization: object = None
    enable_ssml_parsing: object = None
    previous_request_ids: object = None
    next_request_ids: object = None
    use_pvc_as_ivc: object = None


def parse_request(body: bytes, voice: str, output_format: str) -> SpeechRequest:
    """Parse the body of a request. `voice`: from the path; `output_format`: from the query.

    Raises:
        InvalidMessage: not JSON, not an object, or a field of another type.
        InvalidRequest, UnsupportedAudioFormat: an invalid value.
    """
    audio = parse_format(output_format)
    wanted = SpeechBody.parse(body)
    if not wanted.text.strip():
        raise InvalidRequest("text is empty", field="text")
    ignored = [*wanted.voice_settings.ignored(), *(name for name in _IGNORED if name in wanted.given())]
    return SpeechRequest(
        text=wanted.text,
        audio=audio,
        voice=voice,
        model=wanted.model_id,
        params=given(seed=wanted.seed, language=wanted.language_code or None, speed=wanted.voice_settings.speed),
        notices=(*(f"{name} is ignored" for name in ignored), *unknown_field_notices(wanted)),
        dictionaries=wanted.dictionaries(),
    )


class _Timed(Rendering):
    """Answer of JSON with the times of a text's characters."""

    content_type = "application/json"
    wants_words = True

    def __init__(self, text: str) -> None:
        self._times = CharacterTimes()
        self._times.push(text)

    def _placed(self, chunk: Chunk) -> list[TimedCharacter]:
        """Return the characters that begin in a chunk or soon after."""
        return self._times.place(chunk.words) if chunk.words else []


class TimedLines(_Timed):
    """Answer of JSON lines, each with the next audio and the characters that begin in it or soon after."""

    def chunk(self, chunk: Chunk) -> bytes:
        """Return the next line; b"" without audio and characters."""
        characters = self._placed(chunk)
        return _line(chunk.data, characters) if chunk.data or characters else b""

    def end(self, total: Total) -> bytes:
        """Return a line with the remaining characters; b"" if there are none."""
        characters = self._times.finish(total.audio_ms)
        return _line(b"", characters) if characters else b""

    def error(self, error: RealtimeTTSError) -> bytes:
        return dump_json(elevenlabs_problem(error)[1]).encode() + b"\n"


class TimedObject(_Timed):
    """Answer of one JSON object, written while audio is produced, so that little of it is kept in memory."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._characters: list[TimedCharacter] = []
        self._rest = b""  # bytes of an incomplete base64 group
        self._opening = b'{"audio_base64":"'

    def chunk(self, chunk: Chunk) -> bytes:
        self._characters.extend(self._placed(chunk))
        data = self._rest + chunk.data
        whole = len(data) - len(data) % 3
        self._rest = data[whole:]
        return self._opened(base64.b64encode(data[:whole])) if whole else b""

    def end(self, total: Total) -> bytes:
        self._characters.extend(self._times.finish(total.audio_ms))
        end_ms = round(total.audio_ms)  # the last word's end was estimated before the length of the audio was known
        placed = [TimedCharacter(char, min(start, end_ms), min(end, end_ms)) for char, start, end in self._characters]
        times = dump_json(_alignment(placed)).encode()
        end = base64.b64encode(self._rest) + b'","alignment":' + times + b',"normalized_alignment":' + times + b"}"
        return self._opened(end)

    def _opened(self, data: bytes) -> bytes:
        opening, self._opening = self._opening, b""
        return opening + data


def _line(data: bytes, characters: list[TimedCharacter]) -> bytes:
    alignment = _alignment(characters) if characters else None
    audio = base64.b64encode(data).decode()
    return (
        dump_json({"audio_base64": audio, "alignment": alignment, "normalized_alignment": alignment}).encode() + b"\n"
    )


def _alignment(characters: list[TimedCharacter]) -> dict[str, object]:
    """Return the alignment of characters; times are in seconds from the beginning of the audio."""
    return {
        "characters": [each.char for each in characters],
        "character_start_times_seconds": [each.start_ms / 1000 for each in characters],
        "character_end_times_seconds": [each.end_ms / 1000 for each in characters],
    }
