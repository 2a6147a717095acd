"""Contexts of odd texts end exactly once, whatever is in them, and tell what nothing speaks."""

from __future__ import annotations

import pytest
import session_driver
from odd_texts import ODD_TEXTS
from session_config import session_config
from session_driver import Driver

from realtime_tts.session.messages import (
    ContextCancelled,
    ContextDone,
    ContextFailed,
    End,
    StartSpeech,
    Text,
    WarningMessage,
    Words,
)
from realtime_tts.text.planner import PlannerFactory

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.?!'-"

SILENT = ("xD", "<3", "<b>")  # on purpose


@pytest.mark.parametrize("charset", [None, LETTERS])
@pytest.mark.parametrize("text", ODD_TEXTS, ids=ascii)
def test_a_context_of_an_odd_text_ends_once(text: str, charset: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    planners = PlannerFactory(charset, 200, None)
    monkeypatch.setattr(session_driver, "FakePlanner", lambda stall_s, live: planners.make("en", text_type="text"))
    driver = Driver(session_config(model="starter"))
    driver.receive(*(Text("c", char) for char in text or [""]), End("c"))
    driver.wait(0)
    segments = [event.segment for event in driver.done(StartSpeech)]
    for segment in segments:
        driver.speak("c", segment.index, 20)
    driver.finish("c")
    driver.wait(60)
    endings = [
        message for message in driver.sent if isinstance(message, (ContextDone, ContextFailed, ContextCancelled))
    ]
    assert [type(ending) for ending in endings] == [ContextDone]
    told = [span for message in driver.of(WarningMessage) for span in message.spans]
    told += [(word.start, word.end) for message in driver.of(Words) for word in message.words]
    assert bool(told) or not any(map(str.isalnum, text)) or text in SILENT
