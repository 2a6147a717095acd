"""The Realtime session without sockets: any order of messages, audio and reports."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from realtime_tts_client import Word
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from realtime_server.core import Core
from realtime_server.ear import WINDOW_MS, Ear
from realtime_server.history import Speech, chat_messages
from realtime_server.orders import BeginEarly, Generate, Judge, Transcribe

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
WORDS = ["One", "two", "three", "four", "five,", "six", "seven."]
WORD_MS = 300.0
TEXT = " ".join(WORDS)


@dataclass
class Told:
    text: str = ""
    words: list[Word] = field(default_factory=list)


def timed() -> Told:
    """Return the text with the times of its words."""
    told, start = Told(TEXT), 0
    for number, word in enumerate(WORDS):
        at_ms = number * WORD_MS
        told.words.append(Word(word, start, start + len(word), at_ms, at_ms + WORD_MS - 20))
        start += len(word) + 1
    return told


class Session:
    """A core, with a clock, a loudness in place of silero, and the reports of a driver that obeys at once."""

    def __init__(self, **options: Any) -> None:
        numbers = itertools.count()
        ear = Ear(lambda window: float(np.sqrt(np.mean(window**2)) > 0.05))
        self.core = Core(ear, lambda prefix: f"{prefix}_{next(numbers)}", **options)
        self.now = 0.0
        self.events: list[dict[str, Any]] = []
        self.orders: list[Any] = []
        self.source: Told | None = None
        self.is_writing = False

    def receive(self, kind: str, **fields: Any) -> None:
        for _ in self.core.receive(json.dumps({"type": kind, **fields}), self.now):
            self.obey()
        self.obey()

    def hear(self, level: float, duration_ms: int) -> None:
        samples = np.random.default_rng(0).normal(0, level, 24 * duration_ms).astype(np.int16)
        self.now += duration_ms / 1000
        self.receive("input_audio_buffer.append", audio=base64.b64encode(samples.tobytes()).decode())

    def obey(self) -> None:
        for order in self.core.orders:
            self.orders.append(order)
            if isinstance(order, Generate):
                self.source, self.is_writing = None, True
            elif order == "stop":
                self.source, self.is_writing = None, False
        self.core.orders.clear()
        for event in self.core.events:
            SERVER_EVENT.validate_python(event)
        self.events += self.core.events
        self.core.events.clear()

    def hear_out(self, text: str = "Hello") -> None:
        """Report the texts of all recordings."""
        for order in [order for order in self.orders if isinstance(order, Transcribe)]:
            self.orders.remove(order)
            self.core.transcribed(order.item_id, text, 1.0)
        self.obey()

    def speak(self, duration_ms: float) -> None:
        """Report speech, if there is a response."""
        if not self.is_writing:
            return
        if self.source is None:
            self.source = timed()
            self.core.begin_message(self.source)
        for _ in range(int(duration_ms // 20)):
            self.core.spoke(b"x", 20.0, self.now)
            self.now += 0.02
        self.obey()

    def end(self) -> None:
        if self.is_writing:
            self.core.written()
            self.core.finish((1, 1))
            self.source, self.is_writing = None, False
        self.obey()

    def truncate(self, audio_end_ms: int) -> None:
        """Truncate the last message of the assistant, if there is one."""
        for item in [item for item in self.core.items if item["role"] == "assistant"][-1:]:
            place = {"item_id": item["id"], "content_index": 0, "audio_end_ms": audio_end_ms}
            self.receive("conversation.item.truncate", **place)

    def detect(self, interrupts: bool | None) -> None:
        detection = None if interrupts is None else {"type": "server_vad", "interrupt_response": interrupts}
        audio = {"input": {"turn_detection": detection}}
        self.receive("session.update", session={"type": "realtime", "audio": audio})

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


STEPS = st.one_of(
    st.tuples(st.just("hear"), st.sampled_from([0.0, 6_000.0]), st.integers(20, 900)),
    st.tuples(st.just("hear_out"), st.sampled_from(["", "Hello"])),
    st.tuples(st.just("speak"), st.integers(20, 900)),
    st.tuples(st.just("end")),
    st.tuples(
        st.just("receive"),
        st.sampled_from(
            ["response.create", "response.cancel", "input_audio_buffer.commit", "input_audio_buffer.clear"]
        ),
    ),
    st.tuples(st.just("truncate"), st.integers(0, 2_500)),
    st.tuples(st.just("detect"), st.sampled_from([None, True, False])),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(["hold", "now"]), st.lists(STEPS, max_size=25))
def test_each_response_item_and_turn_ends_once(barge_in: str, steps: list[tuple[Any, ...]]) -> None:
    session = Session(barge_in=barge_in)
    for name, *arguments in steps:
        getattr(session, name)(*arguments)
    session.hear_out()
    session.end()
    created = Counter(event["response"]["id"] for event in session.all("response.created"))
    done = Counter(event["response"]["id"] for event in session.all("response.done"))
    if session.core._response is None:
        assert created == done
    assert not done or max(done.values()) == 1
    items = Counter(event["item"]["id"] for event in session.all("conversation.item.added"))
    ended = Counter(event["item"]["id"] for event in session.all("conversation.item.done"))
    assert not items or max(items.values()) == 1
    if session.core._response is None:
        assert items == ended
    for item in session.core.items:
        if item["role"] == "assistant" and item["status"] != "in_progress":
            assert TEXT.startswith(item["content"][0]["transcript"])
    last = None
    for event in session.events:  # sounds begin and end in turn, or end with a commit or a clear
        kind = event["type"].rpartition(".")[2]
        if kind == "speech_started":
            assert last != "speech_started"
        if kind in ("speech_started", "committed", "cleared"):
            last = kind
    for event in session.all("error"):
        assert event["error"]["code"] in (
            "conversation_already_has_active_response",
            "response_cancel_not_active",
            "input_audio_buffer_commit_empty",
            "rate_limit_exceeded",
            "invalid_value",  # truncate beyond the end
        )


@given(st.floats(0, 3_000), st.integers(0, 120))
def test_what_was_heard_is_whole_words_up_to_the_position(position_ms: float, num_packets: int) -> None:
    speech = Speech(timed(), "resp", sent_ms=num_packets * 20.0)
    text = speech.text_until(position_ms)
    words = speech.source.words
    assert TEXT.startswith(text)
    num_heard = len(text.split())
    assert all(word.end_ms <= position_ms + 0.5 for word in words[:num_heard])
    assert num_heard == len(words) or words[num_heard].end_ms > position_ms


def test_the_transcript_follows_the_words() -> None:
    session = Session()
    session.receive("response.create")
    session.speak(280)
    assert [event["delta"] for event in session.all("response.output_audio_transcript.delta")] == ["One"]
    session.speak(60)
    assert session.all("response.output_audio_transcript.delta")[-1]["delta"] == " two"
    session.end()
    assert "".join(event["delta"] for event in session.all("response.output_audio_transcript.delta")) == TEXT
    assert session.all("response.output_audio_transcript.done")[0]["transcript"] == TEXT


@pytest.mark.parametrize(
    ("sound_ms", "actions"),
    [
        (300, ["hold", "release"]),
        (700, ["hold", "stop"]),
    ],
)
def test_a_short_sound_holds_and_a_longer_one_interrupts(sound_ms: int, actions: list[str]) -> None:
    session = Session()
    session.receive("response.create")
    session.speak(600)
    for _ in range(sound_ms // 20):
        session.hear(6_000, 20)
    for _ in range(15):
        session.hear(0, 20)
    assert [order for order in session.orders if isinstance(order, str)] == actions
    is_over = actions[-1] == "stop"
    assert len(session.all("input_audio_buffer.speech_started")) == int(is_over)
    assert len(session.all("response.done")) == int(is_over)
    if is_over:
        [item] = session.core.items
        heard_ms = session.core.items.speeches[item["id"]].cut_ms
        assert item["content"][0]["transcript"] == " ".join(WORDS[: int((heard_ms + 20) // WORD_MS)])


def test_a_sound_that_is_no_interruption_of_a_silent_bot_is_a_turn() -> None:
    session = Session()
    session.hear(6_000, 200)
    session.hear(0, 600)
    [started], [stopped] = (session.all(f"input_audio_buffer.speech_{kind}") for kind in ("started", "stopped"))
    assert started["item_id"] == stopped["item_id"]
    assert stopped["audio_end_ms"] == pytest.approx(200 + 500, abs=2 * WINDOW_MS)


def test_semantic_turns_end_when_the_judge_says_so_or_after_the_longest_pause() -> None:
    session = Session(judges=True)
    detection = {"type": "semantic_vad", "eagerness": "high"}
    session.receive("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}})
    session.hear(6_000, 500)
    session.hear(0, 400)
    [first] = [order for order in session.orders if isinstance(order, Judge)]
    session.core.judged(first.pause, is_over=False)
    session.hear(6_000, 300)
    session.core.judged(first.pause, is_over=True)  # too late
    session.obey()
    assert not session.all("input_audio_buffer.speech_stopped")
    session.hear(0, 400)
    second = session.orders[-1]
    session.core.judged(second.pause, is_over=True)
    session.obey()
    assert len(session.all("input_audio_buffer.committed")) == 1
    session.hear(6_000, 500)
    session.hear(0, 2_100)
    assert len(session.all("input_audio_buffer.committed")) == 2


def test_semantic_turns_without_a_judge_end_after_half_a_second_of_quiet() -> None:
    session = Session()
    audio = {"input": {"turn_detection": {"type": "semantic_vad"}}}
    session.receive("session.update", session={"type": "realtime", "audio": audio})
    session.hear(6_000, 500)
    session.hear(0, 600)
    assert len(session.all("input_audio_buffer.committed")) == 1
    assert not [order for order in session.orders if isinstance(order, Judge)]


def test_a_turn_that_is_detected_while_the_recogniser_works_is_answered_with_it() -> None:
    session = Session()
    for _ in range(2):
        session.hear(6_000, 300)
        session.hear(0, 600)
    session.hear_out()
    assert len(session.all("response.created")) == 1
    [order] = [order for order in session.orders if isinstance(order, Generate)]
    assert [message["content"] for message in order.messages] == ["Hello", "Hello"]


def test_an_answer_is_begun_once_in_a_pause_and_is_the_one_that_the_end_of_the_turn_orders() -> None:
    session = Session(eager_ms=200)
    for _ in range(2):
        session.hear(6_000, 300)
        for _ in range(20):
            session.hear(0, 20)
    kinds = [order if isinstance(order, str) else type(order) for order in session.orders]
    assert kinds == ["stop", BeginEarly, "discard", BeginEarly]
    early = session.core.early_answer(session.orders[-1].item_id, "Hello")
    assert early is not None
    assert session.core.early_answer(session.orders[-1].item_id, "") is None
    session.hear(0, 200)
    session.hear_out("Hello")
    assert session.orders[-1] == replace(early, response_id=session.orders[-1].response_id)
    assert not session.core.items[1:]


@pytest.mark.parametrize("barge_in", ["hold", "now"])
def test_no_answer_is_begun_for_a_turn_that_gets_none(barge_in: str) -> None:
    session = Session(eager_ms=200, barge_in=barge_in)
    detection = {"type": "server_vad", "create_response": False}
    session.receive("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}})
    session.hear(6_000, 300)
    session.hear(0, 600)
    session.detect(False)
    session.receive("response.create")
    session.hear_out()
    session.speak(600)
    session.hear(6_000, 300)  # while a response is active
    session.hear(0, 400)
    assert not [order for order in session.orders if isinstance(order, BeginEarly)]


def test_updates_change_what_they_name() -> None:
    session = Session()
    before = session.core.session
    audio = {
        "input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}},
        "output": {"voice": "ann"},
    }
    session.receive("session.update", session={"type": "realtime", "audio": audio, "tools": None})
    after = session.core.session
    detection = {**before["audio"]["input"]["turn_detection"], "silence_duration_ms": 200}
    assert after["audio"]["input"] == {**before["audio"]["input"], "turn_detection": detection}
    assert after["audio"]["output"] == {**before["audio"]["output"], "voice": "ann"}
    assert after["tools"] == []
    assert session.core._ear.activity.stop_ms == 200


@pytest.mark.parametrize(
    "detection", [{"type": "semantic_vad", "eagerness": None}, {"type": "server_vad", "threshold": None}]
)
def test_null_in_a_turn_detection_is_the_default(detection: dict[str, Any]) -> None:
    session = Session(judges=True)
    for update in (None, detection):
        audio = {"input": {"turn_detection": update}}
        session.receive("session.update", session={"type": "realtime", "audio": audio})
    session.hear(6_000, 300)
    assert "input_audio_buffer.speech_started" in [event["type"] for event in session.events]
    assert None not in [session.core.session["audio"]["input"]["turn_detection"][name] for name in detection]


def test_calls_without_their_output_are_not_told_to_the_model() -> None:
    def call(call_id: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}

    items = [call("a"), call("b"), {"type": "function_call_output", "call_id": "a", "output": "done"}]
    messages = chat_messages("Be brief.", items)
    assert [message["role"] for message in messages] == ["system", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "a"
