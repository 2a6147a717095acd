"""A dialect under arbitrary messages: over a session, with an engine that speaks a segment at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st
from session_config import session_config
from session_driver import Driver

from realtime_tts.dialects.base import Dialect
from realtime_tts.errors import InvalidRequest, Overloaded
from realtime_tts.session.connection import SessionState
from realtime_tts.session.messages import ClientMessage, Crashed, EndOfSegments, StartSpeech, StopSpeech

TEXTS = st.one_of(st.sampled_from(["", " ", "Hello. ", "Wait", "🙂 \ud800 "]), st.text(max_size=30))
HASTE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def junk(names: Sequence[str]) -> st.SearchStrategy[str | bytes]:
    """Frames that are hardly messages: objects with some of these fields, other JSON, text, bytes."""
    objects = st.dictionaries(st.sampled_from(names), _ANYTHING)
    values = objects.map(json.dumps), _ANYTHING.map(json.dumps)
    return st.one_of(*values, st.text(max_size=20), st.binary(max_size=20))


class FuzzedDialect:
    """What a client says, and what it is told. Steps are frames, and what else happens: "speak", "wait", …"""

    wait_s = 4.0

    def __init__(self, dialect: Dialect, *, is_full: bool = False, **config: Any) -> None:
        self.dialect, self.is_full = dialect, is_full
        limits = session_config(max_contexts=3, resume_window_s=0, **config)
        self.driver = Driver(limits, refuse=lambda: Overloaded("full") if self.is_full else None)
        self.engine: dict[str, list[int]] = {}  # segments to speak; -1: the end

    @property
    def is_closed(self) -> bool:
        return self.driver.session.state is SessionState.CLOSED

    def run(self, steps: Iterable[str | bytes]) -> None:
        for step in steps:
            if self.is_closed:
                break
            self.take(step)
        self.end()

    def take(self, step: str | bytes) -> None:
        if step == "speak":
            self.speak()
        elif step == "wait":
            self.tell(self.driver.wait(self.wait_s))
        elif step == "fail":
            for key in list(self.engine)[:1]:
                self.driver.session.contexts.failed(key, Overloaded("lost"), self.driver.now)
                self.tell(self.driver.drain())
        elif step == "fill":
            self.is_full = not self.is_full
        else:
            self.hear(step)
        self.follow()

    def hear(self, frame: str | bytes) -> Sequence[ClientMessage] | None:
        """Return what the frame was read as; None: it was refused."""
        try:
            messages = self.dialect.parse(frame, 64 * 1024)
        except InvalidRequest as error:
            self.driver.session.reject(error, self.driver.now)
            self.tell(self.driver.drain())
            return None
        for message in messages:
            self.tell(self.driver.receive(message))
        return messages

    def follow(self) -> None:
        """What the session has asked of the engine."""
        self.tell(self.driver.wait(0))
        events, self.driver.did = self.driver.did, []
        for event in events:
            assert not isinstance(event, Crashed)
            if isinstance(event, StartSpeech):
                self.engine.setdefault(event.context_id, []).append(event.segment.index)
            elif isinstance(event, EndOfSegments):
                self.engine[event.context_id].append(-1)
            elif isinstance(event, StopSpeech):
                self.engine.pop(event.context_id, None)

    def speak(self) -> None:
        for key, segments in list(self.engine.items()):
            if segments:
                index = segments.pop(0)
                self.tell(self.driver.finish(key) if index < 0 else self.driver.speak(key, index, 60))

    def tell(self, messages: Iterable[Any]) -> None:
        for message in messages:
            for frame in self.dialect.serialize(message):
                self.check(frame)

    def check(self, frame: str | bytes) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """The socket is gone, or the session has closed it: nothing is left."""
        self.driver.session.connection_lost(self.driver.now, clean=True)
        self.follow()
        assert not any(self.engine.values())
