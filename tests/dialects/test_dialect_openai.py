"""OpenAI's request bodies and answers, whatever strangers send."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.dialects import openai
from realtime_tts.dialects.speech_request import Chunk, Rendering, SpeechRequest, Total
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import (
    Forbidden,
    InvalidMessage,
    InvalidRequest,
    Overloaded,
    RateLimited,
    RealtimeTTSError,
    TextTooLong,
    Unauthorized,
    UnsupportedAudioFormat,
    VoiceNotFound,
)


def parse(**fields: Any) -> SpeechRequest:
    return openai.parse_request(json.dumps(fields).encode())


def test_a_request_with_nothing_but_a_text() -> None:
    wanted = parse(input="Hello.")
    assert (wanted.text, wanted.voice, wanted.model) == ("Hello.", None, None)
    assert (wanted.audio, type(wanted.rendering)) == (openai.FORMATS["mp3"], Rendering)
    assert wanted.notices == ()


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400", "9" * 400])
def test_a_form_has_finite_numbers_only(number: str) -> None:
    for name in ("speed", "volume", "sentence_pause_ms"):
        with pytest.raises(InvalidRequest) as caught:
            openai.parse_form({"input": "Hello.", name: number}, VoiceRequest())
        assert caught.value.field == name


def test_every_field_of_a_request_is_read() -> None:
    wanted = parse(
        input=" Hi there ",
        model="gpt-4o-mini-tts",
        voice="alloy",
        response_format="flac",
        stream_format="sse",
        instructions="slowly",
        speed=1.5,
        something="new",
    )
    assert isinstance(wanted.rendering, openai.Events)
    assert (wanted.text, wanted.voice, wanted.model) == (" Hi there ", "alloy", "gpt-4o-mini-tts")
    assert wanted.audio.container == "flac"
    assert wanted.params == {"instructions": "slowly", "speed": 1.5}
    assert wanted.notices == ("unknown fields are ignored: 'something'",)


def test_a_custom_voice_is_named_by_an_object() -> None:
    assert parse(input="a", voice={"id": "voice_1"}).voice == "voice_1"
    assert parse(input="a", voice=None).voice is None


def test_a_field_that_is_null_is_absent() -> None:
    wanted = parse(input="a", speed=None, instructions=None, response_format=None, stream_format=None)
    assert wanted == parse(input="a")


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({}, InvalidMessage, "input"),
        ({"input": 5}, InvalidMessage, "input"),
        ({"input": ""}, InvalidRequest, "input"),
        ({"input": " \n"}, InvalidRequest, "input"),
        ({"input": "a", "response_format": "ogg"}, UnsupportedAudioFormat, "response_format"),
        ({"input": "a", "response_format": 1}, InvalidMessage, "response_format"),
        ({"input": "a", "stream_format": "xml"}, InvalidRequest, "stream_format"),
        ({"input": "a", "speed": "fast"}, InvalidMessage, "speed"),
        ({"input": "a", "speed": True}, InvalidMessage, "speed"),
        ({"input": "a", "voice": 5}, InvalidMessage, "voice"),
        ({"input": "a", "voice": {}}, InvalidMessage, "voice.id"),
        ({"input": "a", "voice": {"id": 7}}, InvalidMessage, "voice.id"),
        ({"input": "a", "model": []}, InvalidMessage, "model"),
        ({"input": "a", "instructions": {}}, InvalidMessage, "instructions"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], error: type[RealtimeTTSError], field: str) -> None:
    with pytest.raises(error) as caught:
        parse(**fields)
    assert caught.value.field == field
    status, body = openai.problem(caught.value)
    assert (status, body["error"]["param"]) == (400, field)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"input": NaN}', b"[" * 10_000, b'"input"'])
def test_a_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        openai.parse_request(body)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("m", field="f"), 400, "invalid_request_error"),
        (Unauthorized("m"), 401, "invalid_request_error"),
        (Forbidden("m"), 403, "permission_error"),
        (VoiceNotFound("m", field="voice"), 404, "invalid_request_error"),
        (TextTooLong("m", field="text"), 400, "invalid_request_error"),
        (RateLimited("m"), 429, "rate_limit_error"),
        (Overloaded("m"), 503, "server_error"),
        (RealtimeTTSError("m"), 500, "server_error"),
    ],
)
def test_errors_have_the_shape_that_clients_know(error: RealtimeTTSError, status: int, kind: str) -> None:
    param = {"text": "input"}.get(error.field or "", error.field)
    code = "string_above_max_length" if isinstance(error, TextTooLong) else error.code
    body = {"error": {"message": "m", "type": kind, "param": param, "code": code}}
    assert openai.problem(error) == (status, body)


def data_of(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    found: dict[str, Any] = json.loads(event[6:])
    return found


def test_events() -> None:
    event = data_of(openai.Events().chunk(Chunk(b"\0\1\2", ())))
    assert (event["type"], base64.b64decode(event["audio"])) == ("speech.audio.delta", b"\0\1\2")
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    assert data_of(openai.Events().end(Total(5, 0.0, 2))) == {"type": "speech.audio.done", "usage": usage}
    failed = data_of(openai.Events().error(Overloaded("line\nbreak")))
    assert (failed["type"], failed["error"]["code"]) == ("error", "overloaded")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("input", "model", "voice", "response_format", "stream_format", "instructions", "speed")
KNOWN = st.sampled_from(["mp3", "pcm", "sse", "audio", "Hello.", "\ud800", "a\0b", 1.0, 0.25, {"id": "v"}])
BODIES = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(NAMES), KNOWN | JSON, max_size=7).map(lambda value: json.dumps(value).encode()),
)


@given(BODIES)
@settings(max_examples=300, deadline=None)
def test_any_body_is_a_request_or_an_error(body: bytes) -> None:
    try:
        wanted = openai.parse_request(body)
    except InvalidRequest as error:
        status, content = openai.problem(error)
        assert status == 400
        json.dumps(content).encode()
        openai.Events().error(error)
    else:
        assert wanted.text.strip()
        wanted.text.encode()
        assert wanted.audio in openai.FORMATS.values()
