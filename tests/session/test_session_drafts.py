"""Drafts: contexts of which nothing is heard until they are committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from session_config import session_config
from session_driver import Driver

from realtime_tts.errors import Overloaded, RateLimited
from realtime_tts.session import messages
from realtime_tts.session.messages import (
    AudioPackets,
    Commit,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    DraftSpeech,
    End,
    ErrorMessage,
    ExtendSpeech,
    Flush,
    Flushed,
    Hold,
    PriorityChanged,
    Release,
    SpeechReport,
    StartSpeech,
    StopSpeech,
    Text,
    WarningMessage,
)

TEXT = "Sure, one moment. Then more"


MakeDriver = Callable[..., Driver]


def draft(driver: Driver, text: str = TEXT, context_id: str = "c") -> None:
    driver.receive(Text(context_id, text, draft=True))


def errors(driver: Driver) -> list[str]:
    return [error.code for error in driver.of(ErrorMessage)]


def test_a_draft_is_made_ahead_up_to_its_first_segment_and_nothing_of_it_is_spoken(driver: Driver) -> None:
    draft(driver)
    (event,) = driver.done(DraftSpeech)
    assert event.segment.text == "Sure, one moment."
    assert driver.of(ContextStarted, "c")
    driver.receive(Text("c", " And more. And more."), End("c"))
    assert driver.wait(5.0)
    assert len(driver.done(DraftSpeech)) == 1
    assert not driver.done(StartSpeech)


@pytest.mark.parametrize("close", [Flush("c"), End("c")], ids=["flush", "end"])
def test_a_draft_in_pieces_is_made_when_its_first_segment_is_complete(driver: Driver, close: object) -> None:
    draft(driver, "Sure,")
    driver.receive(Text("c", " one moment"))
    assert not driver.done(DraftSpeech)
    driver.receive(close)
    (event,) = driver.done(DraftSpeech)
    assert event.segment.text == "Sure, one moment"


def test_a_committed_draft_is_spoken_as_any_context(driver: Driver) -> None:
    draft(driver)
    driver.wait(2.0)
    driver.receive(Commit("c"), Text("c", " to say."), End("c"))
    starts = driver.done(StartSpeech)
    assert [start.segment.text for start in starts] == ["Sure, one moment.", " Then more to say."]
    assert len(driver.of(ContextStarted)) == 1
    driver.wait(0.05)
    for index in range(2):
        driver.speak("c", index, 100)
    driver.session.contexts.audio_finished("c", driver.now, SpeechReport(draft_used=True))
    driver.drain()
    (done,) = driver.of(ContextDone)
    assert done.report.draft_used
    assert done.characters == len(TEXT) + len(" to say.")
    assert done.ttfa_ms == pytest.approx(50), "from the commit on"
    assert driver.done(StopSpeech)


def test_a_commit_with_another_text_replaces_the_drafts(driver: Driver) -> None:
    draft(driver)
    driver.receive(Commit("c", "No. Never."), End("c"))
    assert [start.segment.text for start in driver.done(StartSpeech)] == ["No.", " Never."]
    driver.speak("c", 0, 100)
    driver.speak("c", 1, 100)
    driver.finish("c")
    (done,) = driver.of(ContextDone)
    assert done.report.draft_used is False
    assert done.characters == len("No. Never.")


def test_a_draft_that_has_ended_stays_ended_unless_its_text_is_replaced(driver: Driver) -> None:
    draft(driver, "No.")
    driver.receive(End("c"), Commit("c"), Text("c", "more"))
    assert errors(driver) == ["context_closed"]
    draft(driver, "No.", "d")
    driver.receive(End("d"), Commit("d", "No."), Text("d", " Never."), End("d"))
    assert [start.segment.text for start in driver.done(StartSpeech)] == ["No.", "No.", " Never."]
    assert len(errors(driver)) == 1


def test_a_committed_draft_without_speech_is_done_at_once(driver: Driver) -> None:
    draft(driver, "")
    driver.receive(End("c"), Commit("c"))
    (done,) = driver.of(ContextDone)
    assert done.report.draft_used is False


def test_a_context_that_was_no_draft_says_nothing_of_drafts(driver: Driver) -> None:
    driver.receive(Text("c", "Hello."), Text("c", " Bye.", draft=True), End("c"))
    assert len(driver.done(StartSpeech)) == 2
    driver.receive(Commit("c"))
    assert errors(driver) == ["invalid_request"]
    for index in range(2):
        driver.speak("c", index, 100)
    driver.finish("c")
    assert driver.of(ContextDone)[0].report.draft_used is None


def test_flushes_of_a_draft_have_no_answer_and_do_not_count(driver: Driver) -> None:
    draft(driver, "Sure")
    driver.receive(Flush("c", "f"), Commit("c"), Flush("c", "g"), End("c"))
    driver.speak("c", 0, 100)
    driver.finish("c")
    assert [flushed.flush_id for flushed in driver.of(Flushed)] == ["g"]


def test_text_that_cannot_be_spoken_is_reported_once_and_not_for_a_draft(driver: Driver) -> None:
    draft(driver, "Sure 😀. Then")
    assert not driver.of(WarningMessage)
    driver.receive(Commit("c"), End("c"))
    assert len(driver.of(WarningMessage)) == 1


def test_a_live_text_is_made_ahead_when_its_first_segment_is_final(driver: Driver) -> None:
    driver.receive(messages.StartSession(params={"mode": "live"}))
    for piece in ("Sure, ", "one ", "moment", "."):
        driver.receive(Text("c", piece, draft=True))
    (event,) = driver.done(DraftSpeech)
    assert event.segment.final
    driver.receive(Commit("c"))
    (start,) = driver.done(StartSpeech)
    assert start.segment == event.segment
    assert not driver.done(ExtendSpeech)


def test_a_draft_times_out(make_driver: MakeDriver) -> None:
    driver = make_driver(draft_timeout_s=4.0)
    draft(driver)
    driver.wait(3.9)
    assert not driver.of(ContextCancelled)
    driver.wait(0.2)
    assert [cancelled.by_client for cancelled in driver.of(ContextCancelled)] == [False]
    assert driver.done(StopSpeech)
    driver.receive(Commit("c"))
    assert errors(driver) == ["context_closed"]
    draft(driver, context_id="d")
    driver.receive(Commit("d"))
    driver.wait(10.0)
    assert len(driver.of(ContextCancelled)) == 1, "a committed one does not"


def test_a_dropped_draft_is_cancelled_and_is_no_interruption(driver: Driver) -> None:
    draft(driver)
    driver.receive(messages.CancelRequest("c"))
    (cancelled,) = driver.of(ContextCancelled)
    assert (cancelled.spoken_text, cancelled.by_client) == ("", False)
    assert len(driver.done(StopSpeech)) == 1


def test_a_draft_has_no_part_in_the_priorities_of_contexts(driver: Driver) -> None:
    driver.receive(Text("old", "Hello."))
    draft(driver)
    assert not driver.done(PriorityChanged)
    driver.receive(Commit("c"))
    assert [(event.context_id, event.priority) for event in driver.done(PriorityChanged)] == [("old", 1)]


@pytest.mark.parametrize("message", [Hold("c"), Release("c")], ids=["hold", "release"])
def test_a_draft_cannot_be_held(driver: Driver, message: object) -> None:
    draft(driver)
    driver.receive(message)
    assert errors(driver) == ["invalid_request"]
    driver.receive(Commit("c"))
    assert driver.done(StartSpeech)


def test_a_draft_is_refused_where_a_context_would_be_and_fails_if_its_commit_is_refused() -> None:
    refusals: list[Overloaded] = []
    driver = Driver(session_config(), refuse=lambda: refusals[0] if refusals else None)
    draft(driver)
    refusals.append(Overloaded("full"))
    draft(driver, context_id="d")
    assert errors(driver) == ["overloaded"]
    driver.receive(Commit("c"))
    (failed,) = driver.of(ContextFailed)
    assert (failed.context_id, failed.code) == ("c", "overloaded")
    assert driver.done(StopSpeech)
    assert not driver.done(StartSpeech)


def test_a_commit_with_too_much_text_changes_nothing(make_driver: MakeDriver) -> None:
    driver = make_driver(max_text_chars=20)
    draft(driver, "Sure, one moment.")
    driver.receive(Commit("c", "x" * 21))
    assert errors(driver) == ["text_too_long"]
    driver.receive(Commit("c"))
    assert [start.segment.text for start in driver.done(StartSpeech)] == ["Sure, one moment."]


def test_a_commit_with_too_much_text_does_not_prolong_the_draft(make_driver: MakeDriver) -> None:
    driver = make_driver(max_text_chars=20, draft_timeout_s=10.0)
    draft(driver, "Sure, one moment.")
    driver.wait(9)
    driver.receive(Commit("c", "x" * 21))
    driver.wait(2)
    assert driver.of(messages.ContextCancelled, "c")


def test_a_drafts_characters_count_when_it_is_committed() -> None:
    charged: list[int] = []
    driver = Driver(session_config(model="starter"), charge=charged.append)
    draft(driver)
    driver.receive(Text("c", " more"), Text("c", " on"), Commit("c"), Text("c", "more"))
    assert charged == [0, 0, 0, len(TEXT + " more on"), 4]
    draft(driver, context_id="d")
    driver.receive(Commit("d", "No."), Commit("d"), Commit("unknown", "more"), Text("new", "more"))
    assert charged[5:] == [0, 3, 4]


def test_characters_that_are_refused_open_no_context_and_fail_a_draft() -> None:
    def charge(num_chars: int) -> RateLimited | None:
        return RateLimited("too much") if num_chars > len(TEXT) else None

    driver = Driver(session_config(model="starter"), charge=charge)
    driver.receive(Text("c", TEXT + "!"))
    assert errors(driver) == ["rate_limited"]
    assert not driver.of(ContextStarted)
    draft(driver, context_id="d")
    driver.receive(Text("d", "more"), Commit("d"))
    assert [failed.code for failed in driver.of(ContextFailed)] == ["rate_limited"]


def test_a_draft_survives_a_lost_connection_and_says_that_it_is_one(driver: Driver) -> None:
    draft(driver)
    driver.session.connection_lost(driver.now)
    driver.session.resume(messages.Resume("s1", {"c": 0}), driver.now)
    driver.drain()
    (resumed,) = driver.of(messages.SessionResumed)
    (found,) = resumed.contexts
    assert (found.state, found.draft, found.received_chars, found.num_flushes) == ("open", True, len(TEXT), 0)
    driver.receive(Commit("c"))
    driver.give("c", 2)
    assert driver.of(AudioPackets, "c")
    driver.session.connection_lost(driver.now)
    driver.session.resume(messages.Resume("s1", {"c": 1}), driver.now)
    driver.drain()
    assert driver.of(messages.SessionResumed)[-1].contexts[0].draft is False


def test_a_draft_ends_with_its_session(driver: Driver) -> None:
    draft(driver)
    driver.session.connection_lost(driver.now, clean=True)
    driver.drain()
    assert driver.done(StopSpeech)
