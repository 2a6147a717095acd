"""What raises unexpectedly costs the context that it met, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from session_driver import Closed, Driver, FakePlanner

from realtime_tts.errors import InternalError
from realtime_tts.session.connection import SessionState
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    Crashed,
    End,
    ErrorMessage,
    Flush,
    Pong,
    Resume,
    ServerMessage,
    Text,
    Words,
)


def broken(*args: object, **kwargs: object) -> Any:
    raise IndexError("something of a user's text")


def crashes(driver: Driver) -> list[type[BaseException]]:
    return [type(event.error) for event in driver.done(Crashed)]


@pytest.mark.parametrize("method", ["push", "flush", "end", "take_skipped", "next_deadline"])
def test_a_planner_that_raises_ends_its_context_alone(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    driver.say("well", "One two. ")
    with monkeypatch.context() as patched:
        patched.setattr(FakePlanner, method, broken)
        driver.receive(Text("bad", "Three. "), Flush("bad"), End("bad"))
    (failed,) = driver.of(ContextFailed)
    assert (failed.context_id, failed.code, failed.retryable) == ("bad", "internal_error", False)
    assert "user" not in failed.message
    assert crashes(driver) == [IndexError]
    driver.receive(End("well"))
    driver.speak("well", 0, 100)
    driver.finish("well")
    assert [done.context_id for done in driver.of(ContextDone)] == ["well"]


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_words_that_cannot_be_placed_at_a_cancel_end_their_context_alone(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    driver.receive(Text("bad", "One. "), Text("well", "Two. "))
    monkeypatch.setattr(driver.session.contexts.open["bad"].sender.aligner, "commit_until", broken)
    driver.receive(CancelRequest(None)) if how == "cancel" else driver.session.close(driver.now, 1001, "draining")
    driver.drain()
    assert [failed.context_id for failed in driver.of(ContextFailed)] == ["bad"]
    assert [cancelled.context_id for cancelled in driver.of(ContextCancelled)] == ["well"]
    assert crashes(driver) == [IndexError]
    assert len(driver.done(Closed)) == (how == "close")


def test_a_planner_that_raises_at_its_deadline_ends_its_context_alone(
    make_driver: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(stall_s=0.5)
    driver.say("bad", "Three")
    monkeypatch.setattr(FakePlanner, "tick", broken)
    driver.wait(1)
    assert [failed.context_id for failed in driver.of(ContextFailed)] == ["bad"]
    assert crashes(driver) == [IndexError]
    assert driver.session.state is SessionState.CONNECTED


def test_a_planner_that_raises_when_its_context_times_out_ends_it_alone(
    make_driver: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(stall_s=5.0, draft_timeout_s=5.0)
    driver.receive(Text("well", "One."), Text("bad", "Three", draft=True))
    monkeypatch.setattr(FakePlanner, "tick", broken)
    driver.wait(6)
    assert [failed.context_id for failed in driver.of(ContextFailed)] == ["bad"]
    assert not driver.of(ContextCancelled)
    assert crashes(driver) == [IndexError]


def test_a_fault_before_the_context_is_opened_is_answered(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakePlanner, "__init__", broken)
    driver.say("bad", "Three. ")
    (error,) = driver.of(ErrorMessage)
    assert (error.code, error.context_id) == ("internal_error", "bad")
    assert not driver.of(ContextStarted)
    assert crashes(driver) == [IndexError]


def test_words_that_cannot_be_placed_end_their_context_alone(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.say("well", "One two. ")
    driver.say("bad", "Three. ")
    aligner = driver.session.contexts.open["bad"].sender.aligner
    monkeypatch.setattr(aligner, "commit_until", broken)
    driver.give("bad", 2)
    driver.give("well", 2)
    assert [failed.context_id for failed in driver.of(ContextFailed)] == ["bad"]
    assert driver.sent_ms("well") == 40
    assert len(crashes(driver)) == 1


def unsendable(driver: Driver, message: ServerMessage) -> list[ServerMessage]:
    driver.session.unsendable(message, ValueError("out of range"), driver.now)
    return driver.drain()


def test_a_message_that_cannot_be_written_is_replaced_by_the_end_of_its_context(driver: Driver) -> None:
    driver.say("bad", "One two. ")
    driver.say("well", "One two. ")
    sent = driver.give("bad", 3)
    words = next(message for message in sent if isinstance(message, Words))
    unsendable(driver, words)
    (failed,) = driver.of(ContextFailed)
    assert (failed.context_id, failed.code, failed.sequence) == ("bad", "internal_error", words.sequence)
    assert crashes(driver) == [ValueError]
    driver.session.connection_lost(driver.now)
    driver.session.resume(Resume("s1", {"bad": words.sequence - 1, "well": 0}), driver.now)
    resent = [message for message in driver.drain() if getattr(message, "context_id", "") == "bad"]
    assert resent == [failed]
    assert driver.give("well", 1)


def test_an_answer_that_cannot_be_written_is_left_out(driver: Driver) -> None:
    driver.say("well", "One two. ")
    assert unsendable(driver, Pong("x")) == []
    assert crashes(driver) == [ValueError]
    assert any(isinstance(message, AudioPackets) for message in driver.give("well", 1))


def test_without_its_terminal_message_a_client_would_wait_for_ever(driver: Driver) -> None:
    driver.say("bad", "One two. ")
    driver.say("other", "One two. ")
    (cancelled,) = driver.receive(CancelRequest("bad"))
    unsendable(driver, cancelled)
    assert [(failed.context_id, failed.code) for failed in driver.of(ContextFailed)] == [("other", "internal_error")]
    assert driver.done(Closed) == [Closed(1011, "internal_error")]


def test_a_session_can_be_closed_for_a_reason_that_its_contexts_learn(driver: Driver) -> None:
    driver.say("c", "One two. ")
    driver.session.close(driver.now, 1011, "internal_error", InternalError("a reason"))
    driver.drain()
    assert driver.of(ContextFailed)[0].message == "a reason"
