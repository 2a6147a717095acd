"""ElevenLabs' WebSockets: what a client's messages ask of a session, and what it is told, in its service's words."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from session_config import session_config
from session_driver import Driver

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.base import Dialect
from realtime_tts.dialects.elevenlabs.formats import parse_packet_format
from realtime_tts.dialects.elevenlabs.requests import elevenlabs_problem
from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect
from realtime_tts.errors import InvalidMessage, InvalidRequest, Overloaded, Unauthorized, UnsupportedAudioFormat
from realtime_tts.session.messages import CancelRequest, End, Flush, Leave, Ping, StartSpeech, Text

MAX_BYTES = 64 * 1024


class Talk:
    """A connection: the dialect over a session whose engine speaks what it is given when `speak` is called."""

    def __init__(self, multi: bool = True, refuse=lambda: None, config: dict[str, Any] | None = None, **query: str):
        self.dialect = ElevenLabsDialect("rachel", {"output_format": "opus_48000_64", **query}, multi)
        typed: Dialect = self.dialect
        wanted = {"errors_end": typed.habits.errors_end, "resume_window_s": 0.0, **(config or {})}
        self.driver = Driver(session_config(max_consecutive_errors=1, **wanted), refuse=refuse)
        self.answers: list[dict[str, Any]] = []
        self._num_done: dict[str, int] = {}

    def say(self, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        """Send messages; what is answered at once."""
        answers: list[dict[str, Any]] = []
        for message in messages:
            for parsed in self.dialect.parse(json.dumps(message), MAX_BYTES):
                answers += self._told(self.driver.receive(parsed))
        return answers

    def speak(self, ms_per_segment: float = 200) -> list[dict[str, Any]]:
        """The engine speaks all that it was given; what is heard of that."""
        answers: list[dict[str, Any]] = []
        for start in self.driver.done(StartSpeech):
            key, index = start.context_id, start.segment.index
            if index == self._num_done.get(key, 0):
                self._num_done[key] = index + 1
                answers += self._told(self.driver.speak(key, index, ms_per_segment))
        for event in self.driver.did:
            if type(event).__name__ == "EndOfSegments" and event.context_id not in self._finished:
                self._finished.add(event.context_id)
                answers += self._told(self.driver.finish(event.context_id))
        return answers + self._told(self.driver.wait(5))

    @property
    def _finished(self) -> set[str]:
        return self.__dict__.setdefault("finished", set())

    def _told(self, messages) -> list[dict[str, Any]]:
        answers = [json.loads(frame) for message in messages for frame in self.dialect.serialize(message)]
        self.answers += answers
        return answers


def text_of(answers: list[dict[str, Any]], name: str = "alignment") -> str:
    return "".join(char for answer in answers if answer.get(name) for char in answer[name]["chars"])


def finals(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["contextId"] for answer in answers if answer["isFinal"]]


def parsed(dialect: ElevenLabsDialect, **message: Any) -> list[Any]:
    return list(dialect.parse(json.dumps(message), MAX_BYTES))


# ---- what is asked ---------------------------------------------------------------------------------------------------


def test_a_space_opens_a_context_and_is_no_text() -> None:
    dialect = ElevenLabsDialect("rachel", {"output_format": "pcm_24000", "language_code": "de", "seed": "7"}, True)
    [opened] = parsed(dialect, text=" ", context_id="a", voice_settings={"stability": 0.5, "speed": 1.1})
    audio = AudioFormat("pcm_s16le", 24_000, 40)
    assert opened == Text("1", "", "rachel", audio, SpeechParams(seed=7, language="de", speed=1.1))
    assert parsed(dialect, text="Hello ", context_id="a") == [Text("1", "Hello ")]


def test_a_first_message_with_words_opens_a_context_too() -> None:
    opened, text, flush = parsed(ElevenLabsDialect("x", {}, True), text="Hello ", context_id="a", flush=True)
    assert (opened.text, text.text, flush) == ("", "Hello ", Flush("1"))


def test_names_are_told_in_either_spelling_or_not_at_all() -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    parsed(dialect, text=" ", contextId="a")
    assert parsed(dialect, text="Yes ", context_id="a") == [Text("1", "Yes ")]
    assert parsed(dialect, text="No ")[0].context_id == "2"
    assert parsed(dialect, text="Or ") == [Text("2", "Or ")]


def test_keep_alives_ask_for_nothing_and_open_nothing() -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    for message in ({"text": ""}, {"text": "", "context_id": "a"}, {"context_id": "a", "flush": True}, {}):
        assert parsed(dialect, **message) == [Ping()]
    parsed(dialect, text="Hello ", context_id="a")
    parsed(dialect, context_id="a", close_context=True)
    assert parsed(dialect, text="", context_id="a") == [Ping()]


def test_closing_a_context_cuts_off_what_was_not_flushed() -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    parsed(dialect, text="Hello ", context_id="a", flush=True)
    assert parsed(dialect, context_id="a", close_context=True) == [CancelRequest("1")]
    parsed(dialect, text="Hello ", context_id="a")  # the name is free again
    assert parsed(dialect, context_id="a", close_context=True) == [CancelRequest("2")]
    assert parsed(dialect, context_id="a", close_context=True) == [Ping()]


@pytest.mark.parametrize("flush", [{"text": "", "flush": True}, {"flush": True}])
def test_closing_a_flushed_context_lets_it_end_and_closing_it_again_cuts_it_off(flush: dict[str, Any]) -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    parsed(dialect, text="Hello ", context_id="a")
    assert parsed(dialect, context_id="a", **flush) == [Flush("1")]
    assert parsed(dialect, text="", context_id="a") == [Ping()]  # a keep-alive changes nothing
    assert parsed(dialect, context_id="a", close_context=True) == [End("1")]
    assert parsed(dialect, context_id="a", close_context=True) == [CancelRequest("1")]


def test_text_after_a_flush_goes_on_and_is_cut_off() -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    parsed(dialect, text="Hello ", context_id="a")
    parsed(dialect, context_id="a", flush=True)
    assert parsed(dialect, text="and more ", context_id="a") == [Text("1", "and more ")]
    assert parsed(dialect, context_id="a", close_context=True) == [CancelRequest("1")]


def test_in_auto_mode_each_message_is_spoken_by_itself() -> None:
    dialect = ElevenLabsDialect("x", {"auto_mode": "true"}, True)
    parsed(dialect, text=" ", context_id="a")
    assert parsed(dialect, text="One.", context_id="a") == [Text("1", "One. "), Flush("1")]
    assert parsed(dialect, text="Two. ", context_id="a", flush=True) == [Text("1", "Two. "), Flush("1")]
    assert parsed(dialect, text="三。", context_id="a") == [Text("1", "三。"), Flush("1")]


def test_otherwise_messages_are_put_together_and_the_last_word_is_ended() -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    parsed(dialect, text=" ", context_id="a")
    assert parsed(dialect, text="Hel", context_id="a") == [Text("1", "Hel")]
    assert parsed(dialect, text="lo", context_id="a") == [Text("1", "lo")]
    assert parsed(dialect, text=" ", context_id="a") == [Text("1", " ")]
    assert parsed(dialect, text="you", context_id="a") == [Text("1", "you")]
    assert parsed(dialect, text="", context_id="a", flush=True) == [Text("1", " "), Flush("1")]
    assert parsed(dialect, text=" ", context_id="a", voice_settings={}) == [Ping()]  # opened again: it is open


def test_closing_the_socket_lets_all_that_was_said_be_spoken() -> None:
    dialect = ElevenLabsDialect("x", {}, True)
    parsed(dialect, text="Hello ", context_id="a")
    parsed(dialect, text="Hello ", context_id="b")
    assert parsed(dialect, close_socket=True) == [End("1"), End("2"), Leave()]
    assert parsed(dialect, text="more ", context_id="c") == [Ping()]


def test_one_context_ends_with_an_empty_text_and_so_does_its_connection() -> None:
    dialect = ElevenLabsDialect("x", {}, False)
    parsed(dialect, text=" ", voice_settings=None, generation_config={"chunk_length_schedule": [50]})
    assert parsed(dialect, text="Hello ", try_trigger_generation=True) == [Text("1", "Hello ")]
    assert parsed(dialect, text=" ", flush=True) == [Flush("1")]
    assert parsed(dialect, text="") == [End("1"), Leave()]


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ('{"text":7}', "text"),
        ('{"text":"a","context_id":[]}', "context_id"),
        ('{"text":"a","flush":"yes"}', "flush"),
        ('{"close_context":1,"context_id":"a"}', "close_context"),
        ('{"close_socket":"x"}', "close_socket"),
        ('{"text":" ","voice_settings":7}', "voice_settings"),
        ('{"text":" ","voice_settings":{"speed":"fast"}}', "voice_settings.speed"),
        ("[]", None),
        (b"\xff", None),
        ("{", None),
    ],
)
def test_what_is_no_message_is_refused_by_name(frame: str | bytes, field: str | None) -> None:
    with pytest.raises(InvalidMessage) as caught:
        ElevenLabsDialect("x", {}, True).parse(frame, MAX_BYTES)
    assert caught.value.field == field


# ---- what is answered ------------------------------------------------------------------------------------------------


def turn(name: str, *texts: str) -> list[dict[str, Any]]:
    """As a plugin says it: opened, text, flushed, closed."""
    said: list[dict[str, Any]] = [{"text": " ", "context_id": name, "voice_settings": {}}]
    said += [{"text": text, "context_id": name} for text in texts]
    return [*said, {"text": "", "context_id": name, "flush": True}, {"context_id": name, "close_context": True}]


def test_a_turn_is_heard_with_all_of_its_characters_and_ends_once() -> None:
    talk = Talk()
    talk.say(*turn("a", "Hello there. ", "How are you?"))
    answers = talk.speak()
    assert text_of(answers) == text_of(answers, "normalizedAlignment") == "Hello there. How are you? "
    assert {answer["contextId"] for answer in answers} == {"a"}
    assert finals(answers) == ["a"]
    assert answers[-1]["isFinal"]
    assert b"".join(base64.b64decode(answer["audio"] or "") for answer in answers) == b"".join(
        index.to_bytes(4, "big") for index in range(20)
    )


@pytest.mark.parametrize("absolute", [True, False])
def test_times_count_from_the_start_or_from_what_was_told_before(absolute: bool) -> None:
    talk = Talk(sync_alignment=str(absolute).lower())
    talk.say(*turn("a", "Hello there. ", "How are you?"))
    clock, starts = 0, []
    for alignment in (answer["alignment"] for answer in talk.speak() if answer.get("alignment")):
        begins, lasts = alignment["charStartTimesMs"], alignment["charDurationsMs"]
        assert len(begins) == len(lasts) == len(alignment["chars"])
        starts += [clock + begin for begin in begins]
        clock += 0 if absolute else begins[-1] + lasts[-1]
    assert starts == sorted(starts)
    # "Hello" has 5 of 10 letters of its segment, and each segment lasts 200 ms.
    text = "Hello there. How are you? "
    assert [starts[text.index(word)] for word in ("Hello", "there", "How", "are")] == [0, 100, 200, 267]


def test_the_context_that_is_closed_before_its_end_is_final_too() -> None:
    talk = Talk()
    talk.say({"text": "Hello there. ", "context_id": "a"})
    assert finals(talk.say({"context_id": "a", "close_context": True})) == ["a"]
    assert talk.speak() == []


def test_a_name_that_is_used_again_is_another_context() -> None:
    talk = Talk()
    talk.say({"text": "One. ", "context_id": "a"}, {"context_id": "a", "close_context": True}, *turn("a", "Two. "))
    assert text_of(talk.speak()) == "Two. "
    assert finals(talk.answers) == ["a", "a"]


def test_any_number_of_contexts_that_were_spoken_and_not_closed() -> None:
    talk = Talk(config={"max_contexts": 2})
    for index in range(9):
        talk.say({"text": "Yes. ", "context_id": f"c{index}"}, {"context_id": f"c{index}", "flush": True})
        talk.speak()
    assert [answer for answer in talk.answers if "error" in answer] == []
    assert len(finals(talk.answers)) >= 7


def test_silence_is_filled_while_a_context_is_open() -> None:
    talk = Talk()
    talk.say({"text": " ", "context_id": "a"})
    nothing = {"audio": "", "isFinal": False, "alignment": None, "normalizedAlignment": None, "contextId": "a"}
    assert talk.speak() == [nothing]


def test_a_context_that_is_refused_fails_and_its_text_opens_no_other() -> None:
    full = True
    talk = Talk(refuse=lambda: Overloaded("full") if full else None)
    error, final = talk.say({"text": " ", "context_id": "a"})
    assert (error["error"], error["contextId"]) == ("system_busy", "a")
    assert final == {"audio": None, "isFinal": True, "contextId": "a"}
    full = False
    assert talk.say({"text": "there. ", "context_id": "a"}) == []
    talk.say(*turn("a", "Hello. "))
    assert text_of(talk.speak()) == "Hello. "


def test_names_of_failed_contexts_are_forgotten_in_the_end() -> None:
    talk = Talk(refuse=lambda: Overloaded("full"))
    for index in range(100):
        talk.say({"text": "Hello. ", "context_id": str(index)})
    assert len(talk.dialect._dead) == 64
    assert talk.say({"text": "there. ", "context_id": "99"}) == []


def test_text_that_is_refused_fails_its_context_and_closes_the_connection() -> None:
    talk = Talk(config={"max_text_chars": 9})
    talk.say({"text": "Hi. ", "context_id": "a"}, {"text": "Hello ", "context_id": "b"})
    error, *rest = talk.say({"text": "there ", "context_id": "b"})
    assert (error["error"], error["contextId"], error["code"]) == ("max_character_limit_exceeded", "b", 1008)
    assert sorted(finals([answer for answer in rest if "isFinal" in answer])) == ["a", "b"]
    assert talk.driver.session.state.value == "closed"


def test_one_context_is_told_without_a_name() -> None:
    talk = Talk(multi=False)
    talk.say({"text": " "}, {"text": "Hello. "}, {"text": ""})
    answers = talk.speak()
    assert text_of(answers) == "Hello. "
    assert answers[-1] == {"audio": None, "isFinal": True}
    assert all("contextId" not in answer for answer in answers)
    assert talk.driver.session.state.value == "closed"


def test_an_end_without_any_text_is_answered_too() -> None:
    talk = Talk(multi=False)
    assert talk.say({"text": ""}) == [{"audio": None, "isFinal": True}]
    assert talk.driver.session.state.value == "closed"


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mp3_22050_32", ("mp3", 22_050, 32_000)),
        ("mp3_44100", ("mp3", 44_100, 128_000)),
        ("mp3_44100_192", ("mp3", 44_100, 192_000)),
        ("opus_48000_96", ("ogg_opus", 48_000, 96_000)),
        ("pcm_8000", ("pcm_s16le", 8_000, None)),
        ("pcm_48000", ("pcm_s16le", 48_000, None)),
        ("ulaw_8000", ("mulaw", 8_000, None)),
        ("alaw_8000", ("alaw", 8_000, None)),
    ],
)
def test_formats_have_names(name: str, expected: tuple[str, int, int | None]) -> None:
    audio = parse_packet_format(name)
    assert (audio.codec, audio.sample_rate) == expected[:2]
    assert expected[2] in (None, audio.bitrate)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mp3",
        "mp3_22050_192",
        "mp3_44100_33",
        "mp3_96000_128",
        "mp3_44100_128_1",
        "mp3_8000_32",
        "wav_24000",
        "opus_44100_64",
        "opus_48000_999",
        "pcm_24000_16",
        "pcm_7",
        "pcm_-8000",
        "pcm_2400٠",
        "flac_44100",
        "ulaw_" + "8" * 5000,
    ],
)
def test_other_names_are_none(name: str) -> None:
    with pytest.raises(UnsupportedAudioFormat) as caught:
        ElevenLabsDialect("x", {"output_format": name}, True)
    assert caught.value.field == "output_format"


def test_a_seed_is_a_number() -> None:
    with pytest.raises(InvalidRequest):
        ElevenLabsDialect("x", {"seed": "1.5"}, True)


def test_errors_are_details() -> None:
    body = {"detail": {"status": "invalid_api_key", "message": "no key"}}
    assert elevenlabs_problem(Unauthorized("no key")) == (401, body)
