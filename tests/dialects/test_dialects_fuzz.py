"""WebSockets of Cartesia, Deepgram, jambonz and LiveKit Inference under arbitrary messages: all that raises is typed,
each turn ends once at most, and nothing is left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fuzzed_dialect import HASTE, TEXTS, FuzzedDialect, junk
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.dialects.base import Dialect
from realtime_tts.dialects.cartesia.stream import CartesiaDialect
from realtime_tts.dialects.deepgram.flux import FluxDialect
from realtime_tts.dialects.deepgram.stream import DeepgramDialect
from realtime_tts.dialects.jambonz import JambonzDialect
from realtime_tts.dialects.livekit import InferenceDialect
from realtime_tts.session.messages import ClientMessage

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 48_000}  # the driver's packets are 20 ms of that
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
    st.fixed_dictionaries({"type": st.sampled_from(["flush"] * 5 + ["stream", "stop", "keepalive"])}),
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
JUNK = junk(["type", "text", "transcript", "context_id", "cancel"])
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


class Connection(FuzzedDialect):
    def __init__(self, name: str) -> None:
        dialect = DIALECTS[name]()
        super().__init__(
            dialect,
            max_text_chars=80,
            max_consecutive_errors=10**6,
            in_turn=dialect.habits.in_turn,
            errors_end=dialect.habits.errors_end,
        )
        self.name = name
        self.ends: dict[str, str] = {}  # what the client was told last of a context
        self.told: Counter[str] = Counter()
        self.num_flushes = 0

    def take(self, step: str | bytes) -> None:
        super().take(step)
        if isinstance(self.dialect, CartesiaDialect):
            assert set(self.dialect._contexts) == set(self.driver.session.contexts.open)

    def hear(self, frame: str | bytes) -> Sequence[ClientMessage] | None:
        messages = super().hear(frame)
        if messages is not None and self.name in FLUSHES and json.loads(frame)["type"] == FLUSHES[self.name]:
            self.num_flushes += 1
        return messages

    def check(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            assert self.name not in ("cartesia", "livekit")
        else:
            frame.encode()
            self._check(json.loads(frame))

    def _check(self, answer: dict[str, Any]) -> None:
        self.told[answer["type"]] += 1
        assert answer["type"] in ANSWERS[self.name]
        if (context_id := answer.get("context_id")) is not None:
            # Text for a context that is over is a mistake, of which the client is told.
            assert self.ends.get(context_id) is None or answer["type"] == "error"
            if answer["type"] in ("done", "error"):
                self.ends[context_id] = answer["type"]
        if self.name == "cartesia":
            assert answer["done"] is (answer["type"] == "done")

    def end(self) -> None:
        """What is open is spoken to its end; then the socket goes."""
        self.is_full = False
        if self.name == "cartesia":
            for context_id in list(self.driver.session.contexts.open):
                self.hear(json.dumps({"context_id": context_id, "transcript": "", "continue": False}))
        elif not self.is_closed:
            self.hear(json.dumps({"type": FLUSHES[self.name]}))
        for _ in range(400):
            self.follow()
            self.speak()
            if not self.driver.session.contexts.open:
                break
            self.tell(self.driver.wait(1))
        assert not self.driver.session.contexts.open
        if not self.is_closed:
            self._check_turns()
        super().end()
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


@settings(max_examples=60, **HASTE)
@given(conversations())
def test_whatever_is_said_is_answered_and_leaves_nothing(conversation: tuple[str, list[str | bytes]]) -> None:
    name, steps = conversation
    Connection(name).run(steps)


@pytest.mark.slow
def test_whatever_is_said_at_length() -> None:
    """To each dialect 5,000 messages and more."""
    num_said: Counter[str] = Counter()

    @settings(max_examples=2500, **HASTE)
    @given(conversations())
    def converse(conversation: tuple[str, list[str | bytes]]) -> None:
        name, steps = conversation
        Connection(name).run(steps)
        num_said[name] += sum(step not in STEPS for step in steps)

    converse()
    assert min(num_said.values()) >= 5000
