"""ElevenLabs' WebSockets under arbitrary messages: nothing raises but what is typed, and no context is left behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from fuzzed_dialect import HASTE, TEXTS, FuzzedDialect, junk
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect
from realtime_tts.session.messages import ClientMessage

NAMES = st.sampled_from(["a", "b", "c", ""])
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
JUNK = junk([*FIELDS, "type"])
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


class Connection(FuzzedDialect):
    """The connection of one client, until the session is closed."""

    wait_s = 2.5

    def __init__(self, multi: bool, query: dict[str, str], is_full: bool, forgives: bool) -> None:
        self.elevenlabs = ElevenLabsDialect("x", {"output_format": "opus_48000_64", **query}, multi)
        super().__init__(
            self.elevenlabs,
            is_full=is_full,
            max_text_chars=60,
            max_consecutive_errors=10**6 if forgives else 1,
            errors_end=self.elevenlabs.habits.errors_end,
        )

    def take(self, step: str | bytes) -> None:
        super().take(step)
        assert set(self.elevenlabs._turns) == set(self.driver.session.contexts.open)

    def hear(self, frame: str | bytes) -> Sequence[ClientMessage] | None:
        messages = super().hear(frame)
        assert messages is None or messages
        return messages

    def check(self, frame: str | bytes) -> None:
        answer = json.loads(frame)
        assert isinstance(frame, str)
        frame.encode()
        assert (
            set(answer) <= {"audio", "isFinal", "alignment", "normalizedAlignment", "contextId"}
            or (answer.get("isFinal") and set(answer) <= {"audio", "isFinal", "contextId", "realtime_tts_notice"})
            or ({"message", "error", "code"} <= set(answer) <= {"message", "error", "code", "contextId"})
        )

    def end(self) -> None:
        super().end()
        assert [*self.elevenlabs._turns, *self.elevenlabs._open, *self.elevenlabs._draining] == []
        assert len(self.elevenlabs._dead) <= 64


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


@settings(max_examples=15, **HASTE)
@given(**GIVEN)
def test_whatever_is_said_is_answered_and_leaves_nothing(multi, query, is_full, forgives, steps) -> None:
    Connection(multi, query, is_full, forgives).run(steps)


@pytest.mark.slow
@settings(max_examples=1_200, **HASTE)
@given(**GIVEN)
def test_whatever_is_said_at_length(multi, query, is_full, forgives, steps) -> None:
    Connection(multi, query, is_full, forgives).run(steps)
