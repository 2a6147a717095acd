"""WebSockets of Cartesia, Deepgram, jambonz and LiveKit Inference under arbitrary messages: all that raises is typed,
each turn ends once at most, and nothing is left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_config import session_config
from session_driver import Driver

from realtime_tts.dialects.base import Dialect
from realtime_tts.dialects.cartesia.stream import CartesiaDialect
from realtime_tts.dialects.deepgram.flux import FluxDialect
from realtime_tts.dialects.deepgram.stream import DeepgramDialect
from realtime_tts.dialects.jambonz import JambonzDialect
from realtime_tts.dialects.livekit import InferenceDialect
from realtime_tts.errors import InvalidRequest, Overloaded
from realtime_tts.session.connection import SessionState
from realtime_tts.session.messages import Crashed, EndOfSegments, StartSpeech, StopSpeech

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 48_000}  # the driver's packets are 20 ms of that
TEXTS = st.one_of(st.sampled_from(["", " ", "Hello. ", "Wait", "🙂 \ud800 "]), st.text(max_size=30))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FORMATS = st.sampled_from([RAW] * 5 + [{**RAW, "encoding": "pcm_mulaw"}, {**RAW, "container": "mp3"}, {}])
INPUTS = st.fixed_dictionaries(
    {"transcript": TEXTS, "output_format": FORMATS},
    optional={
        "context_id": st.sampled_from(["a", "b", "c", "", "x" * 200]),
        "voice": st.sampled_from(["v", "nobody", {"mode": "id", "id": "v"}, {"embedding": [0.5]}, None]),
        "continue": st.sampled_from([True, True, True, False]),
        "flush": st.booleans(),
        "max_buffer_delay_ms": st.sampled_from([0, 3000, -1, 10**9]),
        "add_timestamps": st.booleans(),
        "language": st.just("en"),
        "cancel": st.sampled_from([False, False, True]),
    },
)
COMMANDS = st.one_of(
    st.fixed_dictionaries({"type": st.just("Speak"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.sampled_from(["Flush", "Flush", "Clear", "Speak", "Configure"])}),
)
OFFSETS = st.sampled_from([{"type": "time_ms", "value": 0}, {"type": "time_ms", "value": 1e9}, {"value": -1}, 7, None])
FLUX_COMMANDS = st.one_of(
    COMMANDS,
    st.fixed_dictionaries({"type": st.sampled_from(["Interrupt", "Configure"]), "speed": st.sampled_from([1, 0, "x"])}),
    st.fixed_dictionaries({"type": st.just("Interrupt"), "playback_offset": OFFSETS}),
    st.fixed_dictionaries({"type": st.sampled_from(["Speak", "Speak", "Close"]), "text": TEXTS}),
)
JAMBONZ_COMMANDS = st.one_of(
    st.fixed_dictionaries({"type": st.just("stream"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.sampled_from(["flush"] * 5 + ["stream", "stop"])}),
)
EXTRAS = st.sampled_from([{"add_timestamps": True}, {"speed": 2}, {"speed": 99}, {"speed": "fast"}, {"volume": -1}, 7])
CHOICES = st.sampled_from([{"voice": "v"}, {"voice": "nobody"}, {"voice": 7}, {"language": "tlh"}, None])
RATES = st.sampled_from([48_000, "48000", 12_345, 2**64, "fast"])
LIVEKIT_COMMANDS = st.one_of(
    st.fixed_dictionaries({"type": st.just("input_transcript"), "transcript": TEXTS}),
    st.fixed_dictionaries(
        {"type": st.just("input_transcript"), "transcript": TEXTS},
        optional={"extra": EXTRAS, "generation_config": CHOICES},
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["session.flush", "session.flush", "input_transcript"])}),
    st.fixed_dictionaries({"type": st.just("session.create")}, optional={"sample_rate": RATES, "extra": EXTRAS}),
)
JUNK = st.one_of(
    st.dictionaries(st.sampled_from(["type", "text", "transcript", "context_id", "cancel"]), ANYTHING).map(json.dumps),
    ANYTHING.map(json.dumps),
    st.text(max_size=20),
    st.binary(max_size=20),
)
MESSAGES = {
    "cartesia": INPUTS.map(json.dumps),
    "deepgram": COMMANDS.map(json.dumps),
    "flux": FLUX_COMMANDS.map(json.dumps),
    "jambonz": JAMBONZ_COMMANDS.map(json.dumps),
    "livekit": LIVEKIT_COMMANDS.map(json.dumps),
}
RATE = {"sample_rate": "48000"}
DIALECTS: dict[str, Callable[[], Dialect]] = {
    "cartesia": lambda: CartesiaDialect("r"),
    "deepgram": lambda: DeepgramDialect(RATE, "r", "starter"),
    "flux": lambda: FluxDialect(RATE, "r", "starter"),
    "jambonz": lambda: JambonzDialect(RATE),
    "livekit": lambda: InferenceDialect("r"),
}
FLUX_ANSWERS = {"Connected", "SpeechStarted", "Flushed", "SpeechMetadata", "SpeechInterrupted", "Warning", "Error"}
FLUX_ANSWERS |= {"ConfigureSuccess", "ConfigureFailure", "SessionMetadata"}
ANSWERS = {
    "cartesia": {"chunk", "timestamps", "flush_done", "done", "error"},
    "deepgram": {"Metadata", "Flushed", "Cleared", "Warning", "Error"},
    "flux": FLUX_ANSWERS,
    "jambonz": {"connect", "error"},
    "livekit": {"session.created", "output_audio", "output_alignment", "done", "error"},
}
FLUSHES = {"deepgram": "Flush", "flux": "Flush", "jambonz": "flush", "livekit": "session.flush"}
FLUSH_ANSWERS = {"deepgram": ("Flushed", "Error"), "livekit": ("done", "error")}


class Connection:
    """A dialect over a session, with an engine that speaks a segment at a time."""

    def __init__(self, name: str, is_full: bool) -> None:
        self.name, self.dialect = name, DIALECTS[name]()
        habits = self.dialect.habits
        config = session_config(
            max_contexts=3,
            max_text_chars=80,
            resume_window_s=0,
            max_consecutive_errors=10**6,
            in_turn=habits.in_turn,
            refusals_are_final=habits.refusals_are_final,
        )
        self.is_full = is_full
        self.driver = Driver(config, refuse=lambda: Overloaded("full") if self.is_full else None)
        self.engine: dict[str, list[int]] = {}  # segments to speak; -1: the end
        self.ends: dict[str, str] = {}  # what the client was told last of a context
        self.told: Counter[str] = Counter()
        self.num_flushes = 0

    def take(self, step: str | bytes) -> None:
        if step == "speak":
            for key in list(self.engine):
                self._speak(key)
        elif step == "wait":
            self._tell(self.driver.wait(4))
        elif step == "fail":
            for key in list(self.engine)[:1]:
                self.driver.session.contexts.failed(key, Overloaded("lost"), self.driver.now)
                self._tell(self.driver.drain())
        elif step == "fill":
            self.is_full = not self.is_full
        else:
            self._hear(step)
        self._follow()
        if isinstance(self.dialect, CartesiaDialect):
            assert set(self.dialect._contexts) == set(self.driver.session.contexts.open)

    def _hear(self, frame: str | bytes) -> None:
        try:
            messages = self.dialect.parse(frame, 64 * 1024)
        except InvalidRequest as error:
            self.driver.session.reject(error, self.driver.now)
            self._tell(self.driver.drain())
            return
        if self.name in FLUSHES and json.loads(frame)["type"] == FLUSHES[self.name]:
            self.num_flushes += 1
        for message in messages:
            self._tell(self.driver.receive(message))

    def _follow(self) -> None:
        self._tell(self.driver.wait(0))
        events, self.driver.did = self.driver.did, []
        for event in events:
            assert not isinstance(event, Crashed)
            if isinstance(event, StartSpeech):
                self.engine.setdefault(event.context_id, []).append(event.segment.index)
            elif isinstance(event, EndOfSegments):
                self.engine[event.context_id].append(-1)
            elif isinstance(event, StopSpeech):
                self.engine.pop(event.context_id, None)

    def _speak(self, key: str) -> None:
        if segments := self.engine[key]:
            index = segments.pop(0)
            self._tell(self.driver.finish(key) if index < 0 else self.driver.speak(key, index, 60))

    def _tell(self, messages: list[Any]) -> None:
        for message in messages:
            for frame in self.dialect.serialize(message):
                if isinstance(frame, bytes):
                    assert self.name not in ("cartesia", "livekit")
                else:
                    frame.encode()
                    self._check(json.loads(frame))

    def _check(self, answer: dict[str, Any]) -> None:
        self.told[answer["type"]] += 1
        assert answer["type"] in ANSWERS[self.name]
        if (context_id := answer.get("context_id")) is not None:
            # Text for a context that is done is a mistake, of which the client is told once.
            assert self.ends.get(context_id) is None or (self.ends[context_id], answer["type"]) == ("done", "error")
            if answer["type"] in ("done", "error"):
                self.ends[context_id] = answer["type"]
        if self.name == "cartesia":
            assert answer["done"] is (answer["type"] == "done")

    @property
    def is_closed(self) -> bool:
        return self.driver.session.state is SessionState.CLOSED

    def end(self) -> None:
        """What is open is spoken to its end; then the socket goes."""
        self.is_full = False
        if self.name == "cartesia":
            for context_id in list(self.driver.session.contexts.open):
                self._hear(json.dumps({"context_id": context_id, "transcript": "", "continue": False}))
        elif not self.is_closed:
            self._hear(json.dumps({"type": FLUSHES[self.name]}))
        for _ in range(400):
            self._follow()
            for key in list(self.engine):
                self._speak(key)
            if not self.driver.session.contexts.open:
                break
            self._tell(self.driver.wait(1))
        assert not self.driver.session.contexts.open
        if not self.is_closed:
            self._check_turns()
        self.driver.session.connection_lost(self.driver.now, clean=True)
        self._follow()
        assert not self.engine

    def _check_turns(self) -> None:
        if self.name in FLUSH_ANSWERS:
            # Each flush has one answer, unless a `Clear` took it.
            done, error = FLUSH_ANSWERS[self.name]
            assert self.told[done] <= self.num_flushes
            assert self.told["Cleared"] or self.told[done] + self.told[error] >= self.num_flushes
        if isinstance(self.dialect, FluxDialect):
            # Each turn that began has ended, unless it waited behind one that was interrupted.
            ended = self.told["SpeechMetadata"] + self.told["SpeechInterrupted"]
            assert self.told["SpeechStarted"] <= ended
            assert self.dialect._active is None
            assert not self.dialect._replies
        elif isinstance(self.dialect, CartesiaDialect):
            assert not self.dialect._contexts
        elif isinstance(self.dialect, InferenceDialect):
            assert not self.dialect._times


STEPS = ["said"] * 30 + ["speak"] * 12 + ["wait", "wait", "fail", "fill", "junk", "junk"]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[str | bytes]]:
    name = draw(st.sampled_from(list(DIALECTS)))
    kinds = draw(st.lists(st.sampled_from(STEPS), min_size=15, max_size=40))
    said = {"said": MESSAGES[name], "junk": JUNK}
    return name, [draw(said[kind]) if kind in said else kind for kind in kinds]


def run(name: str, steps: list[str | bytes]) -> None:
    connection = Connection(name, is_full=False)
    for step in steps:
        if connection.is_closed:
            break
        connection.take(step)
    connection.end()


HASTE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=60, **HASTE)
@given(conversations())
def test_whatever_is_said_is_answered_and_leaves_nothing(conversation: tuple[str, list[str | bytes]]) -> None:
    run(*conversation)


@pytest.mark.slow
def test_whatever_is_said_at_length() -> None:
    """To each dialect 5,000 messages and more."""
    num_said: Counter[str] = Counter()

    @settings(max_examples=2500, **HASTE)
    @given(conversations())
    def converse(conversation: tuple[str, list[str | bytes]]) -> None:
        name, steps = conversation
        run(name, steps)
        num_said[name] += sum(step not in STEPS for step in steps)

    converse()
    assert min(num_said.values()) >= 5000
