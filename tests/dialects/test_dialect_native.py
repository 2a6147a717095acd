"""The native wire format: what is understood, what is refused and how, and how messages look."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from session_config import session_config

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.base import Dialect
from realtime_tts.dialects.native import _TYPES, AUDIO_HEADER, NativeDialect
from realtime_tts.errors import InvalidMessage, UnsupportedAudioFormat
from realtime_tts.session import messages
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    CancelRequest,
    ClientMessage,
    Commit,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextHeld,
    ContextReleased,
    ContextStarted,
    End,
    ErrorMessage,
    Flush,
    Flushed,
    Hold,
    KeepAlive,
    Ping,
    PlaybackReport,
    Pong,
    Release,
    Resume,
    ResumedContext,
    ServerMessage,
    SessionResumed,
    SessionStarted,
    SpeechReport,
    StartSession,
    Text,
    TimedWord,
    WarningMessage,
    Words,
)

OPUS = AudioFormat()


NATIVE: Dialect = NativeDialect()


def parse(frame: str | bytes, max_bytes: int = 64 * 1024) -> ClientMessage:
    [message] = NATIVE.parse(frame, max_bytes)
    return message


def serialize(message: ServerMessage) -> str | bytes:
    [frame] = NATIVE.serialize(message)
    return frame


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ('{"type":"session.start"}', StartSession()),
        (
            '{"type":"session.start","voice":"slt","audio":{"codec":"pcm_s16le","sample_rate":16000,"frame_ms":40},'
            '"params":{"cfg":2,"steps":10,"seed":null,"language":"en"}}',
            StartSession("slt", AudioFormat("pcm_s16le", 16_000, 40), SpeechParams(cfg=2.0, steps=10, language="en")),
        ),
        (
            '{"type":"session.start","audio":{"bitrate":24000,"dtx":true,"fec":true}}',
            StartSession(audio=AudioFormat(bitrate=24_000, dtx=True, fec=True)),
        ),
        ('{"type":"session.start","audio":{"codec":"mulaw"}}', StartSession(audio=AudioFormat("mulaw", 8_000))),
        ('{"type":"text","context_id":"c","text":""}', Text("c", "")),
        (
            '{"type":"text","context_id":"c","text":"a","voice":"v","params":{"seed":5.0,"mode":"live"}}',
            Text("c", "a", "v", None, SpeechParams(seed=5, mode="live")),
        ),
        (
            '{"type":"text","context_id":"c","text":"a","params":{"volume":0.5,"sentence_pause_ms":250,"adapter":"",'
            '"lexicon":{"nginx":"engine x","\\ud800":"b"}}}',
            Text(
                "c",
                "a",
                params=SpeechParams(
                    volume=0.5, sentence_pause_ms=250.0, adapter="", lexicon={"nginx": "engine x", "\ufffd": "b"}
                ),
            ),
        ),
        ('{"type":"text","context_id":"c","text":"a","draft":true}', Text("c", "a", draft=True)),
        ('{"type":"commit","context_id":"c"}', Commit("c")),
        ('{"type":"commit","context_id":"c","text":"a"}', Commit("c", "a")),
        ('{"type":"flush","context_id":"c"}', Flush("c")),
        ('{"type":"flush","context_id":"c","flush_id":"f"}', Flush("c", "f")),
        ('{"type":"end","context_id":"c"}', End("c")),
        ('{"type":"cancel"}', CancelRequest(None)),
        ('{"type":"cancel","context_id":"c"}', CancelRequest("c")),
        ('{"type":"hold","context_id":"c"}', Hold("c")),
        ('{"type":"hold","context_id":"c","at":"word","played_ms":20.5}', Hold("c", played_ms=20.5)),
        ('{"type":"hold","context_id":"c","at":"now"}', Hold("c", at="now")),
        ('{"type":"release","context_id":"c"}', Release("c")),
        ('{"type":"release","context_id":"c","clause_after_ms":0}', Release("c", 0)),
        ('{"type":"playback","context_id":"c","played_ms":1240}', PlaybackReport("c", 1240.0)),
        ('{"type":"playback","context_id":"c","played_ms":-1e300}', PlaybackReport("c", -1e300)),
        ('{"type":"session.resume","session_id":"s"}', Resume("s", {})),
        (
            '{"type":"session.resume","session_id":"s","contexts":{"a":5,"b":null,"c":-1}}',
            Resume("s", {"a": 5, "b": -1, "c": -1}),
        ),
        ('{"type":"ping","id":"7"}', Ping("7")),
    ],
)
def test_messages_are_understood(frame: str, message: Any) -> None:
    assert parse(frame) == message
    assert parse(frame.encode()) == message


def test_unknown_fields_are_ignored_and_the_last_of_repeated_fields_counts() -> None:
    assert parse('{"type":"end","context_id":"a","context_id":"b","x":[1,{"y":2}]}') == End("b")


def test_text_arrives_exactly_as_sent() -> None:
    text = 'quo"te \\ \u0000 \u200b é e\u0301 🙂 中文 \n\t {[}]'
    assert parse(json.dumps({"type": "text", "context_id": "c", "text": text})) == Text("c", text)
    assert parse(json.dumps({"type": "text", "context_id": "c", "text": text}, ensure_ascii=False)) == Text("c", text)


def test_lone_surrogates_are_replaced_one_for_one_and_pairs_kept() -> None:
    frame = r'{"type":"text","context_id":"c\udc00","text":"a\ud83d b\ude42 \ud83d\ude42"}'
    assert parse(frame) == Text("c\ufffd", "a\ufffd b\ufffd 🙂")


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("", None),
        ("hello", None),
        ("{", None),
        ('{"type":"end"', None),
        ('{"type":"end","context_id":"', None),
        ('{"type":"end","context_id":"c"} x', None),
        ("[]", None),
        ('"text"', None),
        ("null", None),
        ("17", None),
        ("{}", "type"),
        ('{"type":null}', "type"),
        ('{"type":5}', "type"),
        ('{"type":["text"]}', "type"),
        ('{"type":"speak"}', "type"),
        ('{"type":"' + "x" * 5000 + '"}', "type"),
        ('{"type":"text","text":"a"}', "context_id"),
        ('{"type":"text","context_id":"c"}', "text"),
        ('{"type":"text","context_id":7,"text":"a"}', "context_id"),
        ('{"type":"text","context_id":"c","text":["a"]}', "text"),
        ('{"type":"text","context_id":"c","text":"a","voice":1}', "voice"),
        ('{"type":"text","context_id":"c","text":"a","params":[]}', "params"),
        ('{"type":"text","context_id":"c","text":"a","params":{"cfg":"2"}}', "params.cfg"),
        ('{"type":"text","context_id":"c","text":"a","params":{"cfg":true}}', "params.cfg"),
        ('{"type":"text","context_id":"c","text":"a","params":{"steps":2.5}}', "params.steps"),
        ('{"type":"text","context_id":"c","text":"a","params":{"steps":1e300}}', "params.steps"),
        ('{"type":"text","context_id":"c","text":"a","params":{"seed":18446744073709551616}}', "params.seed"),
        ('{"type":"text","context_id":"c","text":"a","params":{"seed":true}}', "params.seed"),
        ('{"type":"text","context_id":"c","text":"a","params":{"seed":"1"}}', "params.seed"),
        ('{"type":"session.start","audio":"opus"}', "audio"),
        ('{"type":"session.start","audio":{"dtx":1}}', "audio.dtx"),
        ('{"type":"session.start","audio":{"sample_rate":"48000"}}', "audio.sample_rate"),
        ('{"type":"flush","context_id":"c","flush_id":3}', "flush_id"),
        ('{"type":"cancel","context_id":{}}', "context_id"),
        ('{"type":"hold"}', "context_id"),
        ('{"type":"hold","context_id":"c","at":"end"}', "at"),
        ('{"type":"release","context_id":"c","clause_after_ms":"soon"}', "clause_after_ms"),
        ('{"type":"playback","context_id":"c"}', "played_ms"),
        ('{"type":"playback","context_id":"c","played_ms":"5"}', "played_ms"),
        ('{"type":"playback","context_id":"c","played_ms":false}', "played_ms"),
        ('{"type":"playback","context_id":"c","played_ms":NaN}', None),
        ('{"type":"playback","context_id":"c","played_ms":-Infinity}', None),
        ('{"type":"playback","context_id":"c","played_ms":1e999}', "played_ms"),
        ('{"type":"playback","context_id":"c","played_ms":' + "9" * 400 + "}", "played_ms"),
        ('{"type":"playback","context_id":"c","played_ms":' + "9" * 60_000 + "}", None),
        ('{"type":"session.resume"}', "session_id"),
        ('{"type":"session.resume","session_id":"s","contexts":["a"]}', "contexts"),
        ('{"type":"session.resume","session_id":"s","contexts":{"a":"1"}}', "contexts.a"),
        ('{"type":"session.resume","session_id":"s","contexts":{"a":-1e300}}', "contexts.a"),
        ('{"type":"session.resume","session_id":"s","contexts":{"\\ud800":"1"}}', "contexts.\ufffd"),
        (json.dumps({"type": "session.resume", "session_id": "s", "contexts": dict.fromkeys(map(str, range(1025)))}),
         "contexts"),
        ("[" * 60_000, None),
        ('{"a":' * 10_000, None),
        ('{"type":"end","context_id":"c","x":' + "[" * 250 + "]" * 250 + "}", None),
        ('[[[[[[[[["' + '\\"' * 30_000, None),
        ("[[[[[[[[[" + '"' * 50_001, None),
        ('[[[[[[[[["' + "\\" * 50_001, None),
        ('{"type":"ping","id":"' + "x" * 65_536 + '"}', None),
        ('{"type":"ping","id":"' + "中" * 30_000 + '"}', None),
        (b'{"type":"ping","id":"\xff"}', None),
        (b"\x00\x01\x02", None),
    ],
)  # fmt: skip
def test_bad_frames_are_refused_with_the_field_at_fault(frame: str | bytes, field: str | None) -> None:
    with pytest.raises(InvalidMessage) as caught:
        parse(frame)
    assert caught.value.field == field
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("context_id", ["c", None, 5])
def test_a_refused_message_names_its_context(context_id: object) -> None:
    with pytest.raises(InvalidMessage) as caught:
        parse(json.dumps({"type": "text", "context_id": context_id, "text": 5}))
    assert caught.value.context_id == ("c" if context_id == "c" else None)


def test_a_missing_type_is_not_called_unknown() -> None:
    with pytest.raises(InvalidMessage, match="type is missing"):
        parse("{}")


def test_brackets_within_strings_are_not_nesting() -> None:
    text = '[{"' * 1000
    assert parse(json.dumps({"type": "text", "context_id": "c", "text": text})) == Text("c", text)


def test_nesting_up_to_the_limit_is_fine() -> None:
    assert parse('{"type":"ping","x":' + "[" * 7 + "]" * 7 + ',"y":[[],[],[]]}') == Ping()


def test_the_size_limit_counts_bytes_not_characters() -> None:
    frame = '{"type":"ping","id":"' + "é" * 50 + '"}'
    assert parse(frame, max_bytes=len(frame.encode())) == Ping("é" * 50)
    with pytest.raises(InvalidMessage):
        parse(frame, max_bytes=len(frame.encode()) - 1)


def test_an_audio_format_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnsupportedAudioFormat, match="got 44100") as caught:
        parse('{"type":"session.start","audio":{"codec":"opus","sample_rate":44100}}')
    assert caught.value.field == "audio.sample_rate"


def test_pieces_of_a_file_are_no_packets() -> None:
    with pytest.raises(UnsupportedAudioFormat, match="got 'ogg_opus'") as caught:
        parse('{"type":"session.start","audio":{"codec":"ogg_opus"}}')
    assert caught.value.field == "audio.codec"


def test_an_audio_frame_is_a_header_and_the_packet() -> None:
    frame = serialize(AudioPackets("c", 7, 3, Packets((b"opus",), 2**40, 960)))
    assert frame == bytes.fromhex("0101000000000003000000070000010000000000") + b"opus"
    assert AUDIO_HEADER.size == 20


def test_packets_that_leave_together_are_frames_of_their_own() -> None:
    packets = AudioPackets("c", 7, 3, Packets((b"one", b"two"), 960, 960))
    first, second = NativeDialect().serialize(packets)
    assert first == serialize(packets.between(0, 1))
    assert second == serialize(packets.between(1))
    assert AUDIO_HEADER.unpack(bytes(second)[:20]) == (1, 1, 0, 3, 8, 1920)


LIMITS = session_config().limits


@pytest.mark.parametrize(
    ("message", "rendered"),
    [
        (
            SessionStarted("s", "m", "v", OPUS, SpeechParams(cfg=2.0), LIMITS),
            {
                "type": "session.started",
                "session_id": "s",
                "model": "m",
                "voice": "v",
                "audio": {"codec": "opus", "sample_rate": 48000, "frame_ms": 20, "bitrate": 32000, "dtx": False,
                          "fec": False},
                "params": {"cfg": 2.0, "steps": None, "seed": None, "language": None, "instructions": None,
                           "mode": None, "speed": None, "volume": None, "sentence_pause_ms": None,
                           "text_type": None, "adapter": None, "openings": None},
                "limits": {"max_contexts": 16, "max_text_chars": 20_000, "max_message_bytes": 65_536,
                           "max_lead_s": 3.0, "keepalive_s": 3.0, "idle_timeout_s": 300.0, "resume_window_s": 10.0},
            },
        ),
        (
            SessionResumed("s", (ResumedContext("c", "open", 1, 12, True, 2),)),
            {
                "type": "session.resumed",
                "session_id": "s",
                "contexts": [{"context_id": "c", "state": "open", "number": 1, "received_chars": 12, "ended": True,
                              "num_flushes": 2, "draft": False}],
            },
        ),
        (
            ContextStarted("c", 0, 1, "v", 9, AudioFormat("mulaw", 8000)),
            {"type": "context.started", "context_id": "c", "sequence": 0, "number": 1, "voice": "v", "seed": 9,
             "audio": {"codec": "mulaw", "sample_rate": 8000, "frame_ms": 20}},
        ),
        (
            Words("c", 1, (TimedWord("Hi 🙂", 0, 4, 0.0, 100 / 3),)),
            {"type": "words", "context_id": "c", "sequence": 1, "timing": "estimated",
             "words": [{"text": "Hi 🙂", "start": 0, "end": 4, "start_ms": 0, "end_ms": 33.333}]},
        ),
        (
            Words("c", 1, (TimedWord("Hi", 0, 2, 0.0, 100.0, measured=True),)),
            {"type": "words", "context_id": "c", "sequence": 1, "timing": "measured",
             "words": [{"text": "Hi", "start": 0, "end": 2, "start_ms": 0, "end_ms": 100}]},
        ),
        (
            Flushed("c", 2, None, 20.0),
            {"type": "flushed", "context_id": "c", "sequence": 2, "flush_id": None, "audio_ms": 20},
        ),
        (
            ContextDone("c", 3, 20.0, 5, 3.0, SpeechReport(draft_used=True, opening_used=False, mended=2)),
            {"type": "context.done", "context_id": "c", "sequence": 3, "audio_ms": 20, "characters": 5,
             "ttfa_ms": 3, "draft_used": True, "opening_used": False, "mended": 2},
        ),
        (
            ContextDone("c", 3, 20.0, 5, None),
            {"type": "context.done", "context_id": "c", "sequence": 3, "audio_ms": 20, "characters": 5,
             "ttfa_ms": None, "mended": 0},
        ),
        (
            ContextCancelled("c", 3, 0.5, "Hi", 2, 0.25),
            {"type": "context.cancelled", "context_id": "c", "sequence": 3, "played_ms": 0.5, "spoken_text": "Hi",
             "spoken_chars": 2, "word_share": 0.25},
        ),
        (
            ContextFailed("c", 3, "engine_lost", "gone", True, 40, "Hi", 2),
            {"type": "context.failed", "context_id": "c", "sequence": 3, "code": "engine_lost", "message": "gone",
             "retryable": True, "audio_ms": 40, "spoken_text": "Hi", "spoken_chars": 2},
        ),
        (
            ContextHeld("c", 0.5, "Hi", 2, 0.0, 30.0),
            {"type": "context.held", "context_id": "c", "played_ms": 0.5, "spoken_text": "Hi", "spoken_chars": 2,
             "word_share": 0, "timeout_s": 30},
        ),
        (ContextReleased("c", 0.5), {"type": "context.released", "context_id": "c", "from_ms": 0.5}),
        (
            CancelAcknowledged(None, "all"),
            {"type": "cancel.acknowledged", "context_id": None, "state": "all", "played_ms": 0, "spoken_text": "",
             "spoken_chars": 0, "word_share": 0},
        ),
        (
            ErrorMessage("invalid_message", "no", False),
            {"type": "error", "code": "invalid_message", "message": "no", "retryable": False},
        ),
        (
            ErrorMessage("rate_limited", "no", True, "c", None, 1.5, (3, 7)),
            {"type": "error", "code": "rate_limited", "message": "no", "retryable": True, "context_id": "c",
             "retry_after_s": 1.5, "span": [3, 7]},
        ),
        (
            ErrorMessage("text_too_long", "no", False, "c", "text"),
            {"type": "error", "code": "text_too_long", "message": "no", "retryable": False, "context_id": "c",
             "field": "text"},
        ),
        (
            WarningMessage("c", "unspeakable_text", "no", ((3, 4), (9, 12))),
            {"type": "warning", "context_id": "c", "code": "unspeakable_text", "message": "no",
             "spans": [[3, 4], [9, 12]]},
        ),
        (KeepAlive(("a", "b")), {"type": "keepalive", "context_ids": ["a", "b"]}),
        (Pong("x"), {"type": "pong", "id": "x"}),
    ],
)  # fmt: skip
def test_server_messages_on_the_wire(message: Any, rendered: dict[str, Any]) -> None:
    frame = serialize(message)
    assert isinstance(frame, str)
    assert json.loads(frame) == rendered


def test_limits_are_what_the_configuration_says() -> None:
    assert session_config(max_contexts=3, max_lead_s=1).limits == {
        "max_contexts": 3,
        "max_text_chars": 20_000,
        "max_message_bytes": 65_536,
        "max_lead_s": 1,
        "keepalive_s": 3,
        "idle_timeout_s": 300,
        "resume_window_s": 10,
    }


def test_every_message_of_a_session_has_a_type_on_the_wire() -> None:
    classes = [each for each in vars(messages).values() if isinstance(each, type)]
    numbered = {each for each in classes if issubclass(each, messages.ContextMessage)}
    assert set(_TYPES) == {*get_args(messages.SessionMessage), *numbered} - {messages.ContextMessage, AudioPackets}
