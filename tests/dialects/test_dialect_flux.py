"""Deepgram's second WebSocket format (Flux): turns, positions of interruptions, and what cannot be done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.dialects.deepgram.flux import FluxDialect
from realtime_tts.dialects.deepgram.stream import model_uuid
from realtime_tts.errors import InvalidMessage
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    CancelRequest,
    ClientMessage,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    End,
    ErrorMessage,
    KeepAlive,
    Leave,
    Ping,
    PlaybackReport,
    Pong,
    ServerMessage,
    Text,
    WarningMessage,
)

PCM = AudioFormat("pcm_s16le", 24_000, 40)
CONNECTED = {
    "type": "Connected", "request_id": "r1", "model_name": "starter", "model_version": "starter",
    "model_uuids": [model_uuid("starter")],
}  # fmt: skip
ALL = CancelAcknowledged(None, "all")


def parse(dialect: FluxDialect, kind: str, **fields: Any) -> list[ClientMessage]:
    return dialect.parse(json.dumps({"type": kind, **fields}), 64 * 1024)


def interrupt(dialect: FluxDialect, at_ms: float | None = None) -> list[ClientMessage]:
    fields = {} if at_ms is None else {"playback_offset": {"type": "time_ms", "value": at_ms}}
    return parse(dialect, "Interrupt", **fields)


def tell(dialect: FluxDialect, *messages: ServerMessage) -> list[Any]:
    frames = [frame for message in messages for frame in dialect.serialize(message)]
    return [frame if isinstance(frame, bytes) else json.loads(frame) for frame in frames]


def kinds(told: list[Any]) -> list[str]:
    return ["audio" if isinstance(frame, bytes) else frame["type"] for frame in told]


def audio(turn: int, num_packets: int = 10) -> AudioPackets:
    """Packets of 40 ms."""
    return AudioPackets(str(turn), 1, turn, Packets((b"\x01",) * num_packets, 0, 960))


def done(turn: int) -> ContextDone:
    return ContextDone(str(turn), 2, 400.0, 5, 10.0)


def say(dialect: FluxDialect, *texts: str) -> None:
    """Whole turns."""
    for text in texts:
        parse(dialect, "Speak", text=text)
        parse(dialect, "Flush")


@pytest.fixture
def dialect() -> FluxDialect:
    return FluxDialect({"model": "flux-haley-en"}, "r1", "starter")


def test_a_client_is_greeted_and_told_again_while_a_turn_stalls(dialect: FluxDialect) -> None:
    assert [json.loads(frame) for frame in dialect.welcome] == tell(dialect, KeepAlive(("1",))) == [CONNECTED]


def test_a_turn_is_text_up_to_a_flush_between_its_start_and_its_metadata(dialect: FluxDialect) -> None:
    assert parse(dialect, "Speak", text="Hel") == [Text("1", "Hel", "flux-haley-en", PCM)]
    assert parse(dialect, "Speak", text="lo") == [Text("1", "lo", "flux-haley-en", PCM)]
    assert parse(dialect, "Flush") == [End("1")]
    told = tell(dialect, audio(1, 2), audio(1, 8), done(1))
    assert kinds(told) == ["SpeechStarted", *["audio"] * 10, "Flushed", "SpeechMetadata"]
    assert len({frame["speech_id"] for frame in told if not isinstance(frame, bytes)}) == 1
    controls = {"pronunciations_applied": 0, "breaks_applied": 0, "pronunciation_warnings": 0}
    assert told[-1] == {
        "type": "SpeechMetadata", "speech_id": told[0]["speech_id"], "audio_duration_ms": 400,
        "input_character_count": 5, "billable_character_count": 5, "controls_applied": controls,
    }  # fmt: skip
    assert parse(dialect, "Speak", text="Next") == [Text("2", "Next", "flux-haley-en", PCM)]


def test_a_flush_of_nothing_is_warned_of(dialect: FluxDialect) -> None:
    assert parse(dialect, "Flush") == [Ping()]
    assert [frame["code"] for frame in tell(dialect, Pong())] == ["NO_ACTIVE_SPEECH"]


def test_an_interrupt_reports_what_was_heard_of_the_turn_that_it_falls_into(dialect: FluxDialect) -> None:
    say(dialect, "One two", "Three four")
    parse(dialect, "Speak", text="Five")
    tell(dialect, audio(1), done(1), audio(2, 5))
    assert interrupt(dialect, 500.4) == [PlaybackReport("2", pytest.approx(100.4)), CancelRequest()]
    told = tell(
        dialect,
        ContextCancelled("2", 1, 100.4, "Three", 5, 0.5, True, " four"),
        ContextCancelled("3", 1, 0, "", 0, 0.0, True, "Five"),
        CancelAcknowledged("1", "done", 400.0, "One two", 7),
        ALL,
    )
    assert kinds(told) == ["SpeechInterrupted"]
    assert (told[0]["audio_played_ms"], told[0]["text_spoken"], told[0]["text_remaining"]) == (500, "Three", " four")
    assert (told[0]["metadata"]["audio_duration_ms"], told[0]["metadata"]["input_character_count"]) == (200, 10)


def test_a_turn_that_is_over_can_still_be_interrupted_while_it_plays(dialect: FluxDialect) -> None:
    say(dialect, "One two", "Three")
    tell(dialect, audio(1), done(1), audio(2), done(2))
    assert interrupt(dialect, 250) == [PlaybackReport("1", 250), CancelRequest()]
    [told] = tell(
        dialect,
        CancelAcknowledged("1", "done", 250.0, "One", 3, 0.0, " two"),
        CancelAcknowledged("2", "done", 0.0, "", 0, 0.0, "Three"),
        ALL,
    )
    assert (told["text_spoken"], told["text_remaining"]) == ("One", " two")


def test_positions_go_on_from_where_the_client_was_interrupted(dialect: FluxDialect) -> None:
    say(dialect, "One two")
    tell(dialect, audio(1))
    interrupt(dialect, 100)
    tell(dialect, ContextCancelled("1", 1, 100.0, "", 0), ALL)
    say(dialect, "Three")
    tell(dialect, audio(3))
    assert interrupt(dialect, 300) == [PlaybackReport("3", 200), CancelRequest()]
    tell(dialect, ContextCancelled("3", 1, 200.0, "", 0), ALL)
    say(dialect, "Four")
    assert interrupt(dialect, 299) == [Ping()]
    assert [frame["code"] for frame in tell(dialect, Pong())] == ["INVALID_INTERRUPT_OFFSET"]


def test_without_a_position_the_text_is_not_divided(dialect: FluxDialect) -> None:
    say(dialect, "One two")
    tell(dialect, audio(1))
    assert interrupt(dialect) == [CancelRequest()]
    [told] = tell(dialect, ContextCancelled("1", 1, 30.0, "One", 3, 0.0, True, " two"), ALL)
    assert told["audio_played_ms"] == 400
    assert "text_spoken" not in told
    assert "text_remaining" not in told


@pytest.mark.parametrize("at_ms", [None, 0])
def test_a_turn_without_audio_is_interrupted_too(dialect: FluxDialect, at_ms: float | None) -> None:
    parse(dialect, "Speak", text="One")
    assert interrupt(dialect, at_ms) == [CancelRequest()]
    told = tell(dialect, ContextCancelled("1", 1, 0.0, "", 0, 0.0, True, "One"), ALL)
    assert kinds(told) == ["SpeechInterrupted"]
    assert parse(dialect, "Speak", text="Two") == [Text("2", "Two", "flux-haley-en", PCM)]


def test_an_interrupt_of_nothing_is_warned_of(dialect: FluxDialect) -> None:
    assert interrupt(dialect) == [Ping()]
    say(dialect, "One")
    tell(dialect, audio(1), done(1))
    assert [interrupt(dialect), interrupt(dialect, 400)] == [[Ping()], [Ping()]]
    told = tell(dialect, Pong(), Pong(), Pong())
    assert [frame["code"] for frame in told] == ["NO_AUDIO_GENERATED", "NO_ACTIVE_SPEECH", "NO_ACTIVE_SPEECH"]


def test_one_interrupt_at_a_time(dialect: FluxDialect) -> None:
    say(dialect, "One")
    interrupt(dialect)
    say(dialect, "Two")
    assert interrupt(dialect) == [Ping()]
    told = tell(dialect, ContextCancelled("1", 1, 0.0, "", 0), ALL, Pong())
    assert kinds(told) == ["SpeechInterrupted", "Warning"]
    assert told[1]["code"] == "INTERRUPT_IN_PROGRESS"


def test_a_configured_speed_is_that_of_the_next_turn(dialect: FluxDialect) -> None:
    parse(dialect, "Configure", speed=1.15)
    parse(dialect, "Configure", speed=40)
    parse(dialect, "Configure")
    assert tell(dialect, Pong(), Pong(), Pong()) == [
        {"type": "ConfigureSuccess", "applied": {"speed": 1.15}},
        {
            "type": "ConfigureFailure", "code": "SPEED_OUT_OF_RANGE", "field": "speed", "value": 40,
            "description": "speed must be between 0.25 and 4, got 40",
        },
        {"type": "ConfigureSuccess", "applied": {"speed": 1.15}},
    ]  # fmt: skip
    [text] = parse(dialect, "Speak", text="Hi")
    assert isinstance(text, Text)
    assert text.params["speed"] == 1.15


def test_to_close_is_to_have_all_said_and_to_be_told_the_totals(dialect: FluxDialect) -> None:
    say(dialect, "One")
    parse(dialect, "Speak", text="Two")
    assert parse(dialect, "Close") == [End("2"), Leave()]
    told = tell(dialect, audio(1), done(1), audio(2, 5), done(2))
    assert kinds(told[:10]).count("SessionMetadata") == 0
    assert told[-1] == {
        "type": "SessionMetadata", "total_audio_duration_ms": 600,
        "total_input_character_count": 6, "total_billable_character_count": 6,
    }  # fmt: skip


def test_text_after_close_is_refused_and_what_came_before_is_spoken(dialect: FluxDialect) -> None:
    say(dialect, "One")
    parse(dialect, "Speak", text="Two")
    parse(dialect, "Close")
    [late] = parse(dialect, "Speak", text="Three")
    assert isinstance(late, Text)
    refusal = ErrorMessage("context_closed", "the session closes", False, late.context_id)
    assert kinds(tell(dialect, refusal, audio(1, 1), done(1), audio(2, 1), done(2))) == [
        "Error", "SpeechStarted", "audio", "Flushed", "SpeechMetadata",
        "SpeechStarted", "audio", "Flushed", "SpeechMetadata", "SessionMetadata",
    ]  # fmt: skip


def test_to_close_at_rest_is_answered_at_once(dialect: FluxDialect) -> None:
    assert parse(dialect, "Close") == [Ping(), Leave()]
    assert kinds(tell(dialect, Pong())) == ["SessionMetadata"]


def test_an_error_ends_its_turn_and_the_next_one_is_spoken(dialect: FluxDialect) -> None:
    parse(dialect, "Speak", text="One")
    failed = ContextFailed("1", 3, "engine_lost", "the worker is gone", True, 0, "", 0)
    told = tell(dialect, failed)
    assert kinds(told) == ["Error", "SpeechStarted", "SpeechMetadata"]
    assert (told[0]["code"], told[0]["description"]) == ("engine_lost", "the worker is gone")
    assert parse(dialect, "Speak", text=" and more") == []
    assert parse(dialect, "Flush") == [Ping()]
    assert parse(dialect, "Speak", text="Next") == [Text("2", "Next", "flux-haley-en", PCM)]


def test_an_error_of_a_turn_that_waits_leaves_the_spoken_one_alone(dialect: FluxDialect) -> None:
    say(dialect, "One", "Two")
    refusal = ErrorMessage("too_many_contexts", "at most 1", False, "2")
    assert kinds(tell(dialect, audio(1, 1), refusal, audio(1, 1), done(1))) == [
        "SpeechStarted", "audio", "Error", "audio", "Flushed", "SpeechMetadata",
    ]  # fmt: skip


def test_a_warning(dialect: FluxDialect) -> None:
    told = tell(dialect, WarningMessage("1", "unspeakable_text", "parts cannot be spoken", ((0, 1),)))
    assert told == [{"type": "Warning", "code": "UNSPEAKABLE_TEXT", "description": "parts cannot be spoken"}]


def test_of_turns_that_are_over_only_the_last_are_kept(dialect: FluxDialect) -> None:
    for turn in range(1, 200):
        say(dialect, "One")
        tell(dialect, audio(turn), done(turn))
    assert len(dialect._turns) <= 32


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b'{"type":"Flush"}', None),
        ('{"type":"Clear"}', "type"),
        ('{"type":["Flush"]}', "type"),
        ('{"type":"Speak"}', "text"),
        ('{"type":"Configure","speed":"fast"}', "speed"),
        ('{"type":"Interrupt","playback_offset":100}', "playback_offset"),
        ('{"type":"Interrupt","playback_offset":{"type":"time_ms"}}', "playback_offset.value"),
        ('{"type":"Interrupt","playback_offset":{"type":"time_ms","value":-1}}', "playback_offset.value"),
        ('{"type":"Interrupt","playback_offset":{"type":"bytes","value":1}}', "playback_offset.type"),
    ],
)
def test_an_invalid_message_is_refused(dialect: FluxDialect, frame: str | bytes, field: str | None) -> None:
    with pytest.raises(InvalidMessage) as refused:
        dialect.parse(frame, 64 * 1024)
    assert refused.value.field == field
