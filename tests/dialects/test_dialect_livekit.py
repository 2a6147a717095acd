"""LiveKit Inference's wire format: turns, what is refused, and how messages look."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.dialects.livekit import InferenceDialect
from realtime_tts.errors import InvalidMessage, RealtimeTTSError, UnsupportedAudioFormat
from realtime_tts.session.messages import (
    AudioPackets,
    ClientMessage,
    ContextDone,
    ContextFailed,
    End,
    ErrorMessage,
    KeepAlive,
    Ping,
    Pong,
    ServerMessage,
    Text,
    TimedWord,
    Words,
)

PCM = AudioFormat("pcm_s16le", 24_000, 40)


def parse(dialect: InferenceDialect, kind: str, **fields: Any) -> list[ClientMessage]:
    return dialect.parse(json.dumps({"type": kind, **fields}), 64 * 1024)


def tell(dialect: InferenceDialect, *messages: ServerMessage) -> list[Any]:
    told = [json.loads(frame) for message in messages for frame in dialect.serialize(message)]
    assert {frame.pop("session_id") for frame in told} <= {"s1"}
    return told


@pytest.fixture
def dialect() -> InferenceDialect:
    return InferenceDialect("s1")


def test_a_session_says_format_and_voice_and_a_text_may_say_another(dialect: InferenceDialect) -> None:
    made = parse(dialect, "session.create", sample_rate="16000", encoding="pcm_s16le", voice="heart", language="en")
    assert made == [Ping()]
    assert tell(dialect, Pong()) == [{"type": "session.created"}]
    audio = AudioFormat("pcm_s16le", 16_000, 40)
    said = parse(dialect, "input_transcript", transcript="Hi. ")
    assert said == [Text("1", "Hi. ", "heart", audio, {"language": "en"})]
    parse(dialect, "session.flush")
    other = {"voice": "emma", "model": "x/y", "language": "de"}
    said = parse(dialect, "input_transcript", transcript="Hi. ", generation_config=other, extra={"speed": 1.5})
    assert said == [Text("2", "Hi. ", "emma", audio, {"speed": 1.5, "language": "de"})]


def test_options_of_the_session_hold_for_texts_that_have_none(dialect: InferenceDialect) -> None:
    parse(dialect, "session.create", extra={"add_timestamps": True, "speed": "slow", "volume": 0.5})
    assert parse(dialect, "input_transcript", transcript="Hi. ") == [
        Text("1", "Hi. ", None, PCM, {"speed": 0.8, "volume": 0.5})
    ]
    assert tell(dialect, Words("1", 1, (TimedWord("Hi.", 0, 3, 0.0, 250.0),)))
    parse(dialect, "session.flush")
    said = parse(dialect, "input_transcript", transcript="Hi. ", extra={"speed": 2, "add_timestamps": False})
    assert said == [Text("2", "Hi. ", None, PCM, {"speed": 2.0, "volume": 0.5})]
    assert tell(dialect, Words("2", 1, (TimedWord("Hi.", 0, 3, 0.0, 250.0),))) == []


def test_a_turn_is_text_up_to_a_flush_and_each_flush_is_answered(dialect: InferenceDialect) -> None:
    assert parse(dialect, "input_transcript", transcript="One. ") == [Text("1", "One. ", None, PCM)]
    assert parse(dialect, "input_transcript", transcript="Two. ") == [Text("1", "Two. ", None, PCM)]
    assert parse(dialect, "session.flush") == [End("1")]
    assert parse(dialect, "session.flush") == [Text("2", "", None, PCM), End("2")]
    packets = AudioPackets("1", 1, 1, Packets((b"\x01\x02", b"\x03\x04"), 0, 960))
    assert tell(dialect, packets, ContextDone("1", 3, 80.0, 10, 5.0)) == [
        {"type": "output_audio", "audio": base64.b64encode(b"\x01\x02").decode()},
        {"type": "output_audio", "audio": base64.b64encode(b"\x03\x04").decode()},
        {"type": "done"},
    ]


def test_words_are_told_to_clients_that_ask_for_them(dialect: InferenceDialect) -> None:
    parse(dialect, "input_transcript", transcript="One. ")
    parse(dialect, "session.flush")
    parse(dialect, "input_transcript", transcript="One. ", extra={"add_timestamps": True})
    word = TimedWord("One.", 0, 4, 0.0, 250.0)
    assert tell(dialect, Words("1", 1, (word,)), Words("2", 1, (word,))) == [
        {"type": "output_alignment", "words": [{"word": "One.", "start": 0.0, "end": 0.25}]}
    ]


def test_a_client_is_kept_waiting_by_what_it_accepts_at_any_time(dialect: InferenceDialect) -> None:
    assert tell(dialect, KeepAlive(("1",))) == [{"type": "session.created"}]


def test_an_error_is_told_once_and_ends_the_turn(dialect: InferenceDialect) -> None:
    parse(dialect, "input_transcript", transcript="One. ")
    refusal = ErrorMessage("overloaded", "all streams are taken", True, "1")
    told = tell(dialect, refusal, ContextFailed("1", 3, "overloaded", "all streams are taken", True, 0, "", 0))
    assert told == [{"type": "error", "code": "overloaded", "message": "all streams are taken"}]
    assert parse(dialect, "input_transcript", transcript="and more ") == []
    assert parse(dialect, "session.flush") == []
    assert parse(dialect, "input_transcript", transcript="Next. ") == [Text("2", "Next. ", None, PCM)]


@pytest.mark.parametrize(
    ("frame", "error", "field"),
    [
        ("nonsense", InvalidMessage, None),
        ('{"type":"flush"}', InvalidMessage, "type"),
        ('{"type":{}}', InvalidMessage, "type"),
        ('{"type":"input_transcript"}', InvalidMessage, "transcript"),
        ('{"type":"input_transcript","transcript":"a","extra":1}', InvalidMessage, "extra"),
        ('{"type":"session.create","sample_rate":"fast"}', InvalidMessage, "sample_rate"),
        ('{"type":"session.create","sample_rate":"12345"}', UnsupportedAudioFormat, "audio.sample_rate"),
        ('{"type":"session.create","encoding":"mp3"}', UnsupportedAudioFormat, "encoding"),
    ],
)
def test_an_invalid_message_is_refused(
    dialect: InferenceDialect, frame: str, error: type[RealtimeTTSError], field: str | None
) -> None:
    with pytest.raises(error) as refused:
        dialect.parse(frame, 64 * 1024)
    assert refused.value.field == field
