"""Deepgram's wire format: what is understood, what is refused and how, and how messages look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.dialects.deepgram.stream import DeepgramDialect, model_uuid
from realtime_tts.errors import InvalidMessage, InvalidRequest, RealtimeTTSError, UnsupportedAudioFormat
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    CancelRequest,
    ClientMessage,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    End,
    ErrorMessage,
    KeepAlive,
    Leave,
    ServerMessage,
    Text,
    WarningMessage,
)

PCM = AudioFormat("pcm_s16le", 24_000, 40)
METADATA = {
    "type": "Metadata", "request_id": "r1", "model_name": "starter", "model_version": "starter",
    "model_uuid": model_uuid("starter"),
}  # fmt: skip


def parse(dialect: DeepgramDialect, kind: str, **fields: Any) -> list[ClientMessage]:
    return dialect.parse(json.dumps({"type": kind, **fields}), 64 * 1024)


def tell(dialect: DeepgramDialect, *messages: ServerMessage) -> list[Any]:
    frames = [frame for message in messages for frame in dialect.serialize(message)]
    return [frame if isinstance(frame, bytes) else json.loads(frame) for frame in frames]


@pytest.fixture
def dialect() -> DeepgramDialect:
    return DeepgramDialect({}, "r1", "starter")


def test_words_one_by_one_are_one_turn_up_to_the_flush(dialect: DeepgramDialect) -> None:
    assert parse(dialect, "Speak", text="Hello ") == [Text("1", "Hello ", None, PCM)]
    assert parse(dialect, "Speak", text="there. ") == [Text("1", "there. ", None, PCM)]
    assert parse(dialect, "Flush") == [End("1")]
    assert parse(dialect, "Speak", text="Next. ") == [Text("2", "Next. ", None, PCM)]


def test_a_flush_of_nothing_is_answered_too(dialect: DeepgramDialect) -> None:
    assert parse(dialect, "Flush") == [Text("1", "", None, PCM), End("1")]
    assert parse(dialect, "Flush") == [Text("2", "", None, PCM), End("2")]
    assert tell(dialect, ContextDone("1", 1, 0, 0, None), ContextDone("2", 1, 0, 0, None)) == [
        {"type": "Flushed", "sequence_id": 0}, {"type": "Flushed", "sequence_id": 1},
    ]  # fmt: skip


def test_after_a_clear_another_turn_begins(dialect: DeepgramDialect) -> None:
    parse(dialect, "Speak", text="Hello ")
    assert parse(dialect, "Clear") == [CancelRequest(None)]
    told = tell(
        dialect,
        ContextCancelled("1", 1, 0, "", 0),
        CancelAcknowledged("0", "done"),
        CancelAcknowledged(None, "all"),
    )
    assert told == [{"type": "Cleared", "sequence_id": 0}]
    assert parse(dialect, "Speak", text="Next. ") == [Text("2", "Next. ", None, PCM)]


def test_a_close_leaves_at_once(dialect: DeepgramDialect) -> None:
    assert parse(dialect, "Close") == [Leave(at_once=True)]


@pytest.mark.parametrize(
    ("query", "voice", "audio"),
    [
        ({"model": "aura-2-thalia-en"}, "aura-2-thalia-en", PCM),
        ({"encoding": "linear16", "sample_rate": "48000"}, None, AudioFormat("pcm_s16le", 48_000, 40)),
        ({"encoding": "mulaw"}, None, AudioFormat("mulaw", 8_000, 40)),
        ({"encoding": "alaw", "sample_rate": "16000", "container": "none"}, None, AudioFormat("alaw", 16_000, 40)),
        ({"mip_opt_out": "true", "tag": "x"}, None, PCM),
    ],
)
def test_the_address_says_voice_and_format(query: dict[str, str], voice: str | None, audio: AudioFormat) -> None:
    assert parse(DeepgramDialect(query, "r1", "starter"), "Speak", text="Hi ") == [Text("1", "Hi ", voice, audio)]


def test_the_address_says_how_fast() -> None:
    [text] = parse(DeepgramDialect({"speed": "1.25"}, "r1", "starter"), "Speak", text="Hi ")
    assert isinstance(text, Text)
    assert text.params["speed"] == 1.25


@pytest.mark.parametrize(
    ("query", "error", "field"),
    [
        ({"encoding": "mp3"}, UnsupportedAudioFormat, "encoding"),
        ({"container": "wav"}, UnsupportedAudioFormat, "container"),
        ({"sample_rate": "24k"}, InvalidRequest, "sample_rate"),
        ({"sample_rate": "-1"}, InvalidRequest, "sample_rate"),
        ({"sample_rate": "9" * 5000}, InvalidRequest, "sample_rate"),
        ({"sample_rate": "12345"}, UnsupportedAudioFormat, "audio.sample_rate"),
        ({"speed": "nan"}, InvalidRequest, "speed"),
    ],
)
def test_an_invalid_address_is_refused(query: dict[str, str], error: type[RealtimeTTSError], field: str) -> None:
    with pytest.raises(error) as refused:
        DeepgramDialect(query, "r1", "starter")
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b'{"type":"Flush"}', None),
        ("Flush", None),
        ("{}", "type"),
        ('{"type":"Configure"}', "type"),
        ('{"type":"Speak"}', "text"),
        ('{"type":"Speak","text":["Hi"]}', "text"),
    ],
)
def test_an_invalid_message_is_refused(dialect: DeepgramDialect, frame: str | bytes, field: str | None) -> None:
    with pytest.raises(InvalidMessage) as refused:
        dialect.parse(frame, 64 * 1024)
    assert refused.value.field == field


def test_metadata_is_sent_at_once_and_while_a_turn_stalls(dialect: DeepgramDialect) -> None:
    assert [json.loads(frame) for frame in dialect.welcome] == [METADATA]
    assert tell(dialect, KeepAlive(("1",))) == [METADATA]


def test_audio_is_sent_without_a_header(dialect: DeepgramDialect) -> None:
    assert tell(
        dialect, ContextStarted("1", 0, 1, "slt", 7, PCM), AudioPackets("1", 1, 1, Packets((b"\x01",), 0, 960))
    ) == [b"\x01"]


def test_a_warning(dialect: DeepgramDialect) -> None:
    [warning] = tell(dialect, WarningMessage("1", "unspeakable_text", "parts cannot be spoken", ((0, 1),)))
    assert warning["type"] == "Warning"
    assert warning["code"] == warning["warn_code"] == "unspeakable_text"
    assert warning["description"] == warning["warn_msg"] == "parts cannot be spoken"


def test_an_error_is_told_once_and_ends_the_turn(dialect: DeepgramDialect) -> None:
    parse(dialect, "Speak", text="Hello ")
    refusal = ErrorMessage("overloaded", "all streams are taken", True, "1", retry_after_s=1)
    told = tell(dialect, refusal, refusal)
    assert [(error["type"], error["err_code"], error["err_msg"]) for error in told] == [
        ("Error", "overloaded", "all streams are taken")
    ]
    assert parse(dialect, "Speak", text="and more ") == []
    assert parse(dialect, "Flush") == [Text("2", "", None, PCM), End("2")]
    assert parse(dialect, "Speak", text="Next. ") == [Text("3", "Next. ", None, PCM)]


def test_an_error_of_a_turn_that_was_flushed_leaves_the_next_one_alone(dialect: DeepgramDialect) -> None:
    parse(dialect, "Speak", text="Hello ")
    parse(dialect, "Flush")
    parse(dialect, "Speak", text="Next ")
    failed = ContextFailed("1", 3, "engine_lost", "the worker is gone", True, 0, "", 0)
    assert [error["err_code"] for error in tell(dialect, failed)] == ["engine_lost"]
    assert parse(dialect, "Speak", text="one. ") == [Text("2", "one. ", None, PCM)]


def test_an_error_of_no_turn_ends_none(dialect: DeepgramDialect) -> None:
    parse(dialect, "Speak", text="Hello ")
    refusal = ErrorMessage("invalid_message", "not valid JSON", False)
    assert len(tell(dialect, refusal, refusal)) == 2
    assert parse(dialect, "Speak", text="there. ") == [Text("1", "there. ", None, PCM)]
