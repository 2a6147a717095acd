"""ElevenLabs' WebSockets under arbitrary messages: nothing raises but what is typed, and no context is left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_config import session_config
from session_driver import Driver

from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect
from realtime_tts.errors import InvalidRequest, Overloaded
from realtime_tts.session.messages import StartSpeech, StopSpeech

NAMES = st.sampled_from(["a", "b", "c", ""])
TEXTS = st.one_of(st.sampled_from(["", " ", "Hello. ", "Wait", "🙂 \ud800 "]), st.text(max_size=30))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "context_id": NAMES,
    "contextId": NAMES,
    "flush": st.booleans(),
    "close_context": st.booleans(),
    "close_socket": st.just(False),
    "voice_settings": st.just({"speed": 1.0, "stability": 0.5}),
    "generation_config": st.just({"chunk_length_schedule": [50]}),
}
SAID = st.fixed_dictionaries({}, optional=FIELDS).map(json.dumps)
JUNK = st.one_of(
    st.dictionaries(st.sampled_from([*FIELDS, "type"]), ANYTHING, max_size=3).map(json.dumps),
    ANYTHING.map(json.dumps),
    st.text(max_size=20),
    st.binary(max_size=20),
)
TURN = [{"text": " "}, {"text": "Hello there. "}, {"text": "", "flush": True}, {"close_context": True}]
KINDS = ["said"] * 24 + ["turn"] * 8 + ["speak"] * 12 + ["wait"] * 3 + ["fail", "junk", "junk", "leave"]


@st.composite
def conversations(draw: st.DrawFn) -> list[str | bytes]:
    steps: list[str | bytes] = []
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=15, max_size=40)):
        if kind == "turn":
            name = draw(NAMES)
            steps += [json.dumps({**message, "context_id": name}) for message in TURN]
        elif kind == "leave":
            steps += ['{"close_socket":true}'] if draw(st.integers(0, 4)) == 4 else []
        else:
            steps.append(draw(SAID) if kind == "said" else draw(JUNK) if kind == "junk" else kind)
    return steps


class Connection:
    """The dialect over a session, with an engine that speaks a little at a time, until the session is closed."""

    def __init__(self, multi: bool, query: dict[str, str], is_full: bool, forgives: bool) -> None:
        self.dialect = ElevenLabsDialect("x", {"output_format": "opus_48000_64", **query}, multi)
        config = session_config(
            max_contexts=3,
            max_text_chars=60,
            resume_window_s=0,
            max_consecutive_errors=10**6 if forgives else 1,
            refusals_are_final=True,
            failures_close=self.dialect.habits.failures_close,
        )
        self.driver = Driver(config, refuse=lambda: Overloaded("full") if is_full else None)
        self.engine: dict[str, list[int]] = {}  # segments to speak

    @property
    def is_closed(self) -> bool:
        return self.driver.session.state.value == "closed"

    def take(self, step: str | bytes) -> None:
        if step == "speak":
            self._speak()
        elif step == "wait":
            self._told(self.driver.wait(2.5))
        elif step == "fail":
            for key in list(self.engine)[:1]:
                self.driver.session.contexts.failed(key, Overloaded("lost"), self.driver.now)
                self._told(self.driver.drain())
        else:
            self._hear(step)
        self._follow()
        assert set(self.dialect._turns) == set(self.driver.session.contexts.open)

    def _hear(self, frame: str | bytes) -> None:
        try:
            messages = self.dialect.parse(frame, 64 * 1024)
        except InvalidRequest as error:
            self.driver.session.reject(error, self.driver.now)
            self._told(self.driver.drain())
            return
        assert messages
        for message in messages:
            self._told(self.driver.receive(message))

    def _follow(self) -> None:
        """What the session has asked of the engine."""
        events, self.driver.did = self.driver.did, []
        for event in events:
            if isinstance(event, StartSpeech):
                self.engine.setdefault(event.context_id, []).append(event.segment.index)
            elif isinstance(event, StopSpeech):
                self.engine.pop(event.context_id, None)
            elif type(event).__name__ == "EndOfSegments":
                self.engine.setdefault(event.context_id, []).append(-1)

    def _speak(self) -> None:
        for key, segments in list(self.engine.items()):
            if not segments:
                continue
            index = segments.pop(0)
            if index < 0:
                self._told(self.driver.finish(key))
            else:
                self._told(self.driver.speak(key, index, 60))

    def _told(self, messages: list[Any]) -> None:
        for message in messages:
            for frame in self.dialect.serialize(message):
                answer = json.loads(frame)
                frame.encode()
                assert (
                    set(answer) <= {"audio", "isFinal", "alignment", "normalizedAlignment", "contextId"}
                    or (
                        answer.get("isFinal")
                        and set(answer) <= {"audio", "isFinal", "contextId", "realtime_tts_notice"}
                    )
                    or ({"message", "error", "code"} <= set(answer) <= {"message", "error", "code", "contextId"})
                )

    def end(self) -> None:
        """The socket is gone, or the session has closed it: nothing is left."""
        self.driver.session.connection_lost(self.driver.now, clean=True)
        self._told(self.driver.drain())
        self._follow()
        assert [*self.dialect._turns, *self.dialect._open, *self.dialect._draining] == []
        assert not any(self.engine.values())
        assert len(self.dialect._dead) <= 64


def _fuzz(multi: bool, query: dict[str, str], is_full: bool, forgives: bool, steps: list[str | bytes]) -> None:
    connection = Connection(multi, query, is_full, forgives)
    for step in steps:
        if connection.is_closed:
            break
        connection.take(step)
    connection.end()


QUERIES = st.fixed_dictionaries(
    {}, optional={"auto_mode": st.sampled_from(["true", "false"]), "sync_alignment": st.just("true")}
)
GIVEN = {
    "multi": st.sampled_from([True, True, True, False]),
    "query": QUERIES,
    "is_full": st.sampled_from([False] * 5 + [True]),
    "forgives": st.sampled_from([True, True, True, False]),
    "steps": conversations(),
}
HASTE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=15, **HASTE)
@given(**GIVEN)
def test_whatever_is_said_is_answered_and_leaves_nothing(multi, query, is_full, forgives, steps) -> None:
    _fuzz(multi, query, is_full, forgives, steps)


@pytest.mark.slow
@settings(max_examples=1_200, **HASTE)
@given(**GIVEN)
def test_whatever_is_said_at_length(multi, query, is_full, forgives, steps) -> None:
    _fuzz(multi, query, is_full, forgives, steps)
