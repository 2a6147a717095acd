"""Drafts: what is said to the server, and what is said again after a lost connection."""

from __future__ import annotations

from typing import Any

import pytest
from realtime_tts_client import TextTooLong, events
from realtime_tts_client.protocol import ClientProtocol
from test_client_protocol import accepted, hear, reconnect, resumed, said, started


@pytest.fixture
def protocol() -> ClientProtocol:
    made = ClientProtocol({})
    made.connection_made(resume=False)
    started(made)
    made.open("c", {"voice": "v"}, is_draft=True)
    said(made)
    return made


def begin(protocol: ClientProtocol, *, ended: bool = True) -> list[dict[str, Any]]:
    protocol.send_text("c", "Sure.")
    if ended:
        protocol.end("c")
    frames = said(protocol)
    accepted(protocol)
    return frames


COMMIT = {"type": "commit", "context_id": "c"}
END = {"type": "end", "context_id": "c"}


def test_a_draft_is_opened_and_committed_as_it_is(protocol: ClientProtocol) -> None:
    opening = {"type": "text", "context_id": "c", "text": "Sure.", "voice": "v", "draft": True}
    assert begin(protocol) == [opening, END]
    protocol.commit("c", None)
    assert said(protocol) == [COMMIT]
    with pytest.raises(ValueError, match="not a draft"):
        protocol.commit("c", None)
    (event,) = hear(
        protocol,
        "context.done",
        context_id="c",
        sequence=1,
        audio_ms=1,
        characters=5,
        ttfa_ms=2,
        draft_used=True,
        opening_used=False,
        mended=1,
    )
    assert isinstance(event, events.ContextDone)
    assert (event.done.draft_used, event.done.opening_used, event.done.mended) == (True, False, 1)
    protocol.commit("c", None)
    assert said(protocol) == []


def test_another_text_takes_the_place_of_the_drafts_and_ends_if_that_had(protocol: ClientProtocol) -> None:
    begin(protocol)
    protocol.commit("c", "x" * 8_001)
    texts = [{**COMMIT, "text": "x" * 8_000}, {"type": "text", "context_id": "c", "text": "x"}]
    assert said(protocol) == [*texts, END]


def test_text_may_follow_the_commit_of_a_draft_that_has_not_ended(protocol: ClientProtocol) -> None:
    begin(protocol, ended=False)
    protocol.commit("c", "No.")
    protocol.send_text("c", " Never.")
    protocol.end("c")
    assert said(protocol) == [{**COMMIT, "text": "No."}, {"type": "text", "context_id": "c", "text": " Never."}, END]


def test_a_text_that_is_too_long_leaves_the_draft(protocol: ClientProtocol) -> None:
    begin(protocol)
    protocol.limits = {"max_text_chars": 10}
    with pytest.raises(TextTooLong):
        protocol.commit("c", "x" * 11)
    protocol.commit("c", None)
    assert said(protocol) == [COMMIT]


def test_a_draft_without_text_is_opened_when_it_is_committed(protocol: ClientProtocol) -> None:
    protocol.commit("c", "No.")
    assert said(protocol) == [{"type": "text", "context_id": "c", "text": "No.", "voice": "v"}]


def test_a_commit_that_was_lost_is_said_again_and_no_other(protocol: ClientProtocol) -> None:
    begin(protocol)
    protocol.commit("c", "No.")
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 5, "ended": True, "draft": True})
    assert said(protocol) == [{**COMMIT, "text": "No."}, END]
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 3, "ended": True, "draft": False})
    assert said(protocol) == []


def test_what_was_asked_after_a_commit_that_was_lost_is_asked_again_after_it(protocol: ClientProtocol) -> None:
    begin(protocol, ended=False)
    protocol.commit("c", "No.")
    protocol.flush("c")
    protocol.send_text("c", " Never.")
    protocol.end("c")
    protocol.hold("c", 0.0)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 5, "draft": True})
    flush, rest = {"type": "flush", "context_id": "c"}, {"type": "text", "context_id": "c", "text": " Never."}
    *frames, hold = said(protocol)
    assert frames == [{**COMMIT, "text": "No."}, flush, rest, END]
    assert hold["type"] == "hold"


def test_a_draft_that_is_none_yet_stays_one_on_a_new_connection_and_in_a_new_session(protocol: ClientProtocol) -> None:
    begin(protocol, ended=False)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 3, "draft": True})
    assert said(protocol) == [{"type": "text", "context_id": "c", "text": "e."}]
    reconnect(protocol)
    hear(protocol, "error", code="session_not_found", message="", retryable=False)
    said(protocol)
    started(protocol)
    (frame,) = said(protocol)
    assert (frame["text"], frame["draft"]) == ("Sure.", True)
    protocol.commit("c", None)
    assert said(protocol) == [COMMIT]


def test_a_flush_of_a_draft_is_not_repeated(protocol: ClientProtocol) -> None:
    begin(protocol, ended=False)
    protocol.flush("c")
    assert said(protocol) == [{"type": "flush", "context_id": "c"}]
    protocol.commit("c", None)
    said(protocol)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 5})
    assert said(protocol) == []
