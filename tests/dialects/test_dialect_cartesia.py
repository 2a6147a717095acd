"""Cartesia's wire format: what is understood, what is refused and how, and how messages look."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from session_config import session_config
from session_driver import Driver

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.base import Dialect
from realtime_tts.dialects.cartesia.stream import CartesiaDialect
from realtime_tts.errors import InvalidMessage, InvalidRequest, ModelNotFound, RealtimeTTSError, UnsupportedAudioFormat
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
    Flush,
    Flushed,
    KeepAlive,
    ServerMessage,
    Text,
    TimedWord,
    WarningMessage,
    Words,
)

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
PCM = AudioFormat("pcm_s16le", 24_000, 40)


def parse(dialect: Dialect, *, context_id: str | None = "c", **fields: Any) -> list[ClientMessage]:
    named = {} if context_id is None else {"context_id": context_id}
    return list(dialect.parse(json.dumps({**named, **fields}), 64 * 1024))


def request(transcript: str, continue_: bool = True, **fields: Any) -> dict[str, Any]:
    voice = {"mode": "id", "id": "v"}
    return {
        "model_id": "sonic-3", "voice": voice, "output_format": RAW, "transcript": transcript, "continue": continue_,
        **fields,
    }  # fmt: skip


def tell(dialect: Dialect, *messages: ServerMessage) -> list[dict[str, Any]]:
    return [json.loads(frame) for message in messages for frame in dialect.serialize(message)]


@pytest.fixture
def dialect() -> CartesiaDialect:
    return CartesiaDialect("r1")


def opened(dialect: CartesiaDialect, **fields: Any) -> CartesiaDialect:
    parse(dialect, **request("Hello ", **fields))
    return dialect


def test_inputs_that_go_on_and_the_last_one(dialect: CartesiaDialect) -> None:
    assert parse(dialect, **request("Hello ")) == [Text("c", "Hello ", "v", PCM)]
    assert parse(dialect, **request("there.")) == [Text("c", "there.")]
    assert parse(dialect, **request("", False)) == [Text("c", ""), End("c")]


def test_the_last_input_may_be_told_twice_but_not_be_followed_by_text(dialect: CartesiaDialect) -> None:
    parse(dialect, **request("Hello.", False))
    assert parse(dialect, **request("", False)) == []
    assert parse(dialect, **request(" ", True)) == []
    with pytest.raises(InvalidRequest) as refused:
        parse(dialect, **request("More.", False))
    assert refused.value.context_id == "c"


def test_a_whole_utterance_in_one_message(dialect: CartesiaDialect) -> None:
    fields = request("Hello.")
    del fields["continue"]
    assert parse(dialect, **fields) == [Text("c", "Hello.", "v", PCM), End("c")]


def test_a_message_without_a_context_has_one_of_its_own(dialect: CartesiaDialect) -> None:
    ids = [message.context_id for _ in range(2) for message in parse(dialect, context_id=None, **request("Hi.", False))]
    assert ids == ["context-1", "context-1", "context-2", "context-2"]


@pytest.mark.parametrize(("transcript", "spoken"), [("One.", "One. "), ("One. ", "One. "), ("One.\n", "One.\n")])
def test_without_buffering_each_message_is_spoken_as_one(
    dialect: CartesiaDialect, transcript: str, spoken: str
) -> None:
    first = parse(dialect, **request(transcript, max_buffer_delay_ms=0))
    assert first == [Text("c", spoken, "v", PCM), Flush("c")]
    assert parse(dialect, **request(" ", False, max_buffer_delay_ms=0)) == [Text("c", " "), End("c")]


def test_a_flush_is_one_and_the_last_input_needs_none(dialect: CartesiaDialect) -> None:
    assert parse(dialect, **request("", flush=True)) == [Text("c", "", "v", PCM), Flush("c")]
    assert parse(dialect, **request("Bye.", False, flush=True)) == [Text("c", "Bye."), End("c")]


@pytest.mark.parametrize("voice", ["v", {"mode": "id", "id": "v"}, {"id": "v"}])
def test_a_voice_is_a_name_in_one_form_or_another(dialect: CartesiaDialect, voice: object) -> None:
    [text] = parse(dialect, **request("Hi ", voice=voice))
    assert isinstance(text, Text)
    assert text.voice == "v"


@pytest.mark.parametrize("voice", [None, {"mode": "embedding", "embedding": [0.1, 0.2]}])
def test_a_voice_that_has_no_name_is_the_default_one(dialect: CartesiaDialect, voice: object) -> None:
    [text] = parse(dialect, **request("Hi ", voice=voice))
    assert isinstance(text, Text)
    assert text.voice is None


@pytest.mark.parametrize(
    ("encoding", "codec"),
    [("pcm_s16le", "pcm_s16le"), ("pcm_f32le", "pcm_f32le"), ("pcm_mulaw", "mulaw"), ("pcm_alaw", "alaw")],
)
@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_raw_formats(dialect: CartesiaDialect, encoding: str, codec: str, sample_rate: int) -> None:
    wanted = {"container": "raw", "encoding": encoding, "sample_rate": sample_rate}
    [text] = parse(dialect, **request("Hi ", output_format=wanted))
    assert isinstance(text, Text)
    assert text.audio == AudioFormat(codec, sample_rate, 40)


@pytest.mark.parametrize(
    ("fields", "language"), [({"language": "en"}, "en"), ({"locale": "en-GB"}, "en-GB"), ({"language": None}, None)]
)
def test_a_language_or_a_locale(dialect: CartesiaDialect, fields: dict[str, Any], language: str | None) -> None:
    [text] = parse(dialect, **request("Hi ", **fields))
    assert isinstance(text, Text)
    assert text.params.get("language") == language


@pytest.mark.parametrize(
    ("fields", "speed"),
    [
        ({"generation_config": {"speed": 1.2, "volume": 0.5, "emotion": "angry"}}, 1.2),
        ({"speed": "slow"}, 0.8),
        ({"speed": "normal"}, 1.0),
        ({"speed": "slow", "generation_config": {"speed": 1.5}}, 1.5),
        ({"generation_config": {}}, None),
    ],
)
def test_a_speed_as_a_number_or_a_name(dialect: CartesiaDialect, fields: dict[str, Any], speed: float | None) -> None:
    [text] = parse(dialect, **request("Hi ", **fields))
    assert isinstance(text, Text)
    assert text.params.get("speed") == speed


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"transcript": None}, InvalidMessage, "transcript"),
        ({"transcript": 7}, InvalidMessage, "transcript"),
        ({"output_format": None}, InvalidMessage, "output_format"),
        ({"output_format": {**RAW, "container": "mp3"}}, UnsupportedAudioFormat, "output_format.container"),
        ({"output_format": {**RAW, "encoding": "pcm_s24le"}}, UnsupportedAudioFormat, "output_format.encoding"),
        ({"output_format": {**RAW, "sample_rate": None}}, InvalidMessage, "output_format.sample_rate"),
        ({"output_format": {**RAW, "sample_rate": 12_345}}, UnsupportedAudioFormat, "audio.sample_rate"),
        ({"max_buffer_delay_ms": -1}, InvalidMessage, "max_buffer_delay_ms"),
        ({"max_buffer_delay_ms": 5001}, InvalidMessage, "max_buffer_delay_ms"),
        ({"continue": "yes"}, InvalidMessage, "continue"),
        ({"voice": 3}, InvalidMessage, "voice"),
        ({"language": "en", "locale": "de"}, InvalidMessage, "locale"),
        ({"cancel": "now"}, InvalidMessage, "cancel"),
        ({"speed": "hurried"}, InvalidMessage, "speed"),
        ({"generation_config": {"speed": "fast"}}, InvalidMessage, "generation_config.speed"),
    ],
)
def test_an_invalid_message_is_refused_and_its_context_named(
    dialect: CartesiaDialect, fields: dict[str, Any], error: type[RealtimeTTSError], field: str
) -> None:
    with pytest.raises(error) as refused:
        parse(dialect, **{**request("Hi."), **fields})
    assert (refused.value.field, refused.value.context_id) == (field, "c")


@pytest.mark.parametrize("context_id", ["", "x" * 129])
def test_a_context_that_cannot_be_named_is_not(dialect: CartesiaDialect, context_id: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse(dialect, context_id=context_id, **request("Hi."))
    assert refused.value.context_id is None


def test_an_unknown_model_is_refused_where_it_opens_a_context() -> None:
    def adapter_of(model: str | None) -> str | None:
        if model == "sonic-3":
            raise ModelNotFound("no")
        return "calm" if model == "starter:calm" else None

    dialect = CartesiaDialect("r1", adapter_of)
    with pytest.raises(ModelNotFound):
        opened(dialect)
    [first] = parse(dialect, **request("Hi ", model_id="starter:calm"))
    assert first.params == SpeechParams(adapter="calm")
    assert len(parse(dialect, **request("again"))) == 1


def test_audio_words_and_the_end(dialect: CartesiaDialect) -> None:
    opened(dialect, add_timestamps=True)
    words = (TimedWord("Hello", 0, 5, 40.0, 310.5), TimedWord("there.", 6, 12, 310.5, 800.0))
    chunk, times, done = tell(
        dialect,
        AudioPackets("c", 1, 1, Packets((b"\x00\xff",), 0, 960)),
        Words("c", 2, words),
        ContextDone("c", 3, 800, 12, 90),
    )
    assert chunk == {
        "type": "chunk", "context_id": "c", "data": base64.b64encode(b"\x00\xff").decode(), "done": False,
        "status_code": 206, "step_time": 0, "flush_id": 1,
    }  # fmt: skip
    assert times["word_timestamps"] == {"words": ["Hello", "there."], "start": [0.04, 0.3105], "end": [0.3105, 0.8]}
    assert (times["type"], times["done"], times["flush_id"]) == ("timestamps", False, 1)
    assert done == {"type": "done", "context_id": "c", "done": True, "status_code": 200}
    assert tell(dialect, AudioPackets("c", 4, 1, Packets((b"late",), 960, 960))) == []


def test_an_id_of_any_characters_is_sent_back_as_it_came(dialect: CartesiaDialect) -> None:
    name = 'a"b\\\x00 é🙂'
    parse(dialect, context_id=name, **request("Hi "))
    assert tell(dialect, AudioPackets(name, 1, 1, Packets((b"",), 0, 960)))[0]["context_id"] == name


def test_a_word_does_not_begin_before_the_end_of_the_one_before_it(dialect: CartesiaDialect) -> None:
    """A word's end is told before it is heard, and may have been taken for later than it was."""
    opened(dialect, add_timestamps=True)
    told = [
        *tell(dialect, Words("c", 1, (TimedWord("one", 0, 3, 0.0, 400.0), TimedWord("two", 4, 7, 320.0, 600.0)))),
        *tell(dialect, Words("c", 2, (TimedWord("three", 8, 13, 550.0, 590.0), TimedWord("4", 14, 15, 700.0, 800.0)))),
    ]
    times = [event["word_timestamps"] for event in told]
    assert [start for each in times for start in each["start"]] == [0.0, 0.4, 0.6, 0.7]
    assert [end for each in times for end in each["end"]] == [0.4, 0.6, 0.6, 0.8]


def test_words_are_sent_only_on_request(dialect: CartesiaDialect) -> None:
    opened(dialect)
    assert tell(dialect, Words("c", 1, (TimedWord("Hello", 0, 5, 0.0, 1.0),))) == []


def test_flushes_are_counted_and_audio_tells_which_one_it_belongs_to(dialect: CartesiaDialect) -> None:
    opened(dialect)
    packet = AudioPackets("c", 1, 1, Packets((b"",), 0, 960))
    told = tell(dialect, packet, Flushed("c", 2, None, 40), packet, Flushed("c", 4, None, 80))
    assert [(event["type"], event["flush_id"]) for event in told] == [
        ("chunk", 1), ("flush_done", 1), ("chunk", 2), ("flush_done", 2),
    ]  # fmt: skip
    assert told[1]["flush_done"] is True
    assert told[1]["done"] is False


def test_a_turn_whose_text_stalls_is_kept_alive(dialect: CartesiaDialect) -> None:
    opened(dialect)
    parse(dialect, context_id="d", **request("Hi "))
    told = tell(dialect, Flushed("d", 1, None, 40), KeepAlive(("c", "d", "unknown")))
    assert [(event["type"], event["context_id"], event["flush_id"], event["done"]) for event in told[1:]] == [
        ("flush_done", "c", 0, False), ("flush_done", "d", 1, False),
    ]  # fmt: skip


def test_a_cancelled_context_ends_and_takes_no_more_text(dialect: CartesiaDialect) -> None:
    opened(dialect)
    assert parse(dialect, cancel=True) == [CancelRequest("c")]
    assert parse(dialect, **request("too late")) == []
    assert parse(dialect, cancel=True) == []
    assert [event["type"] for event in tell(dialect, ContextCancelled("c", 1, 0, "", 0))] == ["done"]
    assert parse(dialect, **request("too late", False)) == []


def test_a_cancel_of_an_unknown_context_is_harmless(dialect: CartesiaDialect) -> None:
    assert parse(dialect, cancel=True) == [CancelRequest("c")]
    assert tell(dialect, CancelAcknowledged("c", "unknown")) == []
    assert parse(dialect, **request("Hello ")) == [Text("c", "Hello ", "v", PCM)]


@pytest.mark.parametrize(
    ("code", "status", "error_code"),
    [
        ("invalid_message", 400, "invalid_message"),
        ("voice_not_found", 404, "voice_not_found"),
        ("rate_limited", 429, "rate_limited"),
        ("too_many_contexts", 429, "concurrency_limited"),
        ("overloaded", 503, "concurrency_limited"),
    ],
)
def test_an_error_is_no_normal_end_and_ends_its_context(
    dialect: CartesiaDialect, code: str, status: int, error_code: str
) -> None:
    opened(dialect)
    [event] = tell(dialect, ErrorMessage(code, "it cannot be", False, "c"))
    assert {"type": "error", "done": False, "context_id": "c", "request_id": "r1"}.items() <= event.items()
    assert (event["status_code"], event["error_code"], event["message"]) == (status, error_code, "it cannot be")
    assert event["error"] == f"{event['title']}: it cannot be"
    later = (ErrorMessage(code, "again", False, "c"), AudioPackets("c", 1, 1, Packets((b"",), 0, 960)), ContextFailed(
        "c", 2, code, "again", False, 0, "", 0))  # fmt: skip
    assert tell(dialect, *later) == []


def test_text_for_a_context_that_has_failed_is_refused_each_time(dialect: CartesiaDialect) -> None:
    driver = Driver(session_config(errors_end=dialect.habits.errors_end, max_text_chars=9))

    def say(text: str, continue_: bool = True, **fields: Any) -> list[str]:
        try:
            sent = driver.receive(*parse(dialect, **request(text, continue_, **fields)))
        except RealtimeTTSError as error:
            driver.session.reject(error, driver.now)
            sent = driver.drain()
        return [event.get("error_code", event["type"]) for event in tell(dialect, *sent)]

    assert say("Too long a text.", flush=True) == ["text_too_long"]
    assert say("Hello.", flush=True) == say("Hello.", False) == ["context_closed"]
    assert say("", False) == say(" ") == say("", cancel=True) == []
    assert say("Hello.") == ["context_closed"]
    assert list(driver.session.contexts.open) == []


def test_a_context_that_fails_says_why(dialect: CartesiaDialect) -> None:
    opened(dialect)
    [event] = tell(dialect, ContextFailed("c", 1, "engine_lost", "the worker is gone", True, 0, "", 0))
    assert (event["type"], event["done"], event["status_code"]) == ("error", False, 503)
    assert parse(dialect, **request("", False)) == parse(dialect, cancel=True) == []


@pytest.mark.parametrize(
    "end",
    [
        ErrorMessage("rate_limited", "too many characters", True, "c"),
        ContextFailed("c", 1, "engine_lost", "the worker is gone", True, 0, "", 0),
    ],
)
def test_an_error_that_crosses_a_cancel_is_the_end_of_the_context(
    dialect: CartesiaDialect, end: ErrorMessage | ContextFailed
) -> None:
    opened(dialect)
    parse(dialect, cancel=True)
    [event] = tell(dialect, end, CancelAcknowledged("c", "failed"), end)
    assert (event["type"], event["context_id"]) == ("error", "c")
    assert not dialect._contexts


def test_an_error_of_no_context(dialect: CartesiaDialect) -> None:
    opened(dialect)
    [event] = tell(dialect, ErrorMessage("invalid_message", "not valid JSON", False))
    assert "context_id" not in event
    assert len(parse(dialect, **request("more"))) == 1


def test_contexts_that_are_over_are_evicted(dialect: CartesiaDialect) -> None:
    for index in range(2000):
        parse(dialect, context_id=str(index), **request("Hi "))
        parse(dialect, context_id=str(index), cancel=True)
        tell(dialect, ContextCancelled(str(index), 1, 0, "", 0))
    assert (len(dialect._over), len(dialect._contexts)) == (1024, 0)


def test_messages_without_a_form_in_this_dialect_are_not_sent(dialect: CartesiaDialect) -> None:
    opened(dialect)
    assert tell(dialect, ContextStarted("c", 0, 1, "slt", 7, PCM)) == []
    assert tell(dialect, CancelAcknowledged(None, "all")) == []


def test_a_warning_is_told_with_the_end_of_its_context(dialect: CartesiaDialect) -> None:
    opened(dialect)
    assert tell(dialect, WarningMessage("c", "unspeakable_text", "some is left out", ((0, 1),))) == []
    assert tell(dialect, WarningMessage("c", "unspeakable_text", "some is left out", ((5, 6),))) == []
    assert tell(dialect, WarningMessage("c", "ignored_markup", "a tag is ignored; so is another", ((7, 9),))) == []
    assert tell(dialect, WarningMessage("c", "ignored_markup", "a tag is ignored; so is another", ((11, 13),))) == []
    [done] = tell(dialect, ContextDone("c", 1, 160.0, 3, 10.0))
    assert (done["type"], done["realtime_tts_notice"]) == ("done", "some is left out; a tag is ignored; so is another")
