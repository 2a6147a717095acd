"""The client's protocol without sockets: what is said again after a lost connection, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realtime_tts_client import events
from realtime_tts_client.errors import ConnectionLost, ContextClosed, Overloaded, ProtocolError, RateLimited, ResumeGap
from realtime_tts_client.markup import is_ssml, open_tags
from realtime_tts_client.protocol import ClientProtocol, State
from realtime_tts_client.wire import AUDIO_HEADER

AUDIO = {"codec": "opus", "sample_rate": 48000, "frame_ms": 20}


def said(protocol: ClientProtocol) -> list[dict[str, Any]]:
    frames = []
    while (frame := protocol.take_outgoing()) is not None:
        frames.append(json.loads(frame))
    return frames


def hear(protocol: ClientProtocol, kind: str, **fields: Any) -> list[events.Event]:
    return protocol.receive(json.dumps({"type": kind, **fields}))


def started(protocol: ClientProtocol) -> list[events.Event]:
    return hear(protocol, "session.started", session_id="s", limits={}, model="m", voice="v")


def accepted(protocol: ClientProtocol, context_id: str = "c", number: int = 1) -> list[events.Event]:
    return hear(
        protocol, "context.started", context_id=context_id, sequence=0, number=number, voice="v", seed=1, audio=AUDIO
    )


def audio(sequence: int, pts_samples: int, number: int = 1) -> bytes:
    return AUDIO_HEADER.pack(1, 1, 0, number, sequence, pts_samples) + b"packet"


def _word(text: str, start: int, end: int, start_ms: float, end_ms: float) -> dict[str, Any]:
    return {"text": text, "start": start, "end": end, "start_ms": start_ms, "end_ms": end_ms}


def resumed(protocol: ClientProtocol, **states: dict[str, Any]) -> list[events.Event]:
    contexts = [
        {"context_id": key, "number": 1, "received_chars": 0, "ended": False, "num_flushes": 0, **state}
        for key, state in states.items()
    ]
    return hear(protocol, "session.resumed", session_id="s", contexts=contexts)


@pytest.fixture
def protocol() -> ClientProtocol:
    made = ClientProtocol({})
    made.connection_made(resume=False)
    started(made)
    said(made)
    return made


def reconnect(protocol: ClientProtocol) -> dict[str, Any]:
    protocol.connection_lost()
    protocol.connection_made(resume=True)
    (resume,) = said(protocol)
    return resume


def test_nothing_but_the_start_is_said_before_the_session_is_ready() -> None:
    protocol = ClientProtocol({"voice": "v"})
    protocol.open("c", {})
    protocol.send_text("c", "early")
    protocol.connection_made(resume=True)  # nothing to resume yet: a start
    protocol.send_text("c", " bird")
    assert said(protocol) == [{"type": "session.start", "voice": "v"}]
    started(protocol)
    assert said(protocol) == [{"type": "text", "context_id": "c", "text": "early bird"}]


@given(
    actions=st.lists(st.one_of(st.text("ab 👋", min_size=1, max_size=5), st.none()), max_size=12),
    received=st.integers(0, 60),
    ends=st.booleans(),
)
def test_resuming_makes_the_server_whole_wherever_it_stopped(
    actions: list[str | None], received: int, ends: bool
) -> None:
    """None flushes. The server got a prefix of the messages; with the rest it has each of them once."""
    protocol = ClientProtocol({})
    protocol.connection_made(resume=False)
    started(protocol)
    protocol.open("c", {"voice": "x"})
    for action in actions:
        if action is None:
            protocol.flush("c")
        else:
            protocol.send_text("c", action)
    if ends:
        protocol.end("c")
    everything = said(protocol)[1:]
    before = everything[:received]
    if before:
        accepted(protocol)
    resume = reconnect(protocol)
    assert resume["contexts"] == {"c": 0 if before else -1}
    if before:
        chars = sum(len(m["text"]) for m in before if m["type"] == "text")
        flushes = sum(m["type"] == "flush" for m in before)
        ended = any(m["type"] == "end" for m in before)
        resumed(protocol, c={"state": "open", "received_chars": chars, "num_flushes": flushes, "ended": ended})
    else:
        resumed(protocol, c={"state": "unknown"})
    assert meaning(before + said(protocol)) == meaning(everything)


def meaning(messages: list[dict[str, Any]]) -> list[str]:
    """Text joined, flushes and ends in their places, and the voice where it was said."""
    result: list[str] = []
    for message in messages:
        result += [f"voice {message['voice']}"] if "voice" in message else []
        result += list(message["text"]) if message["type"] == "text" else [message["type"]]
    return result


def test_what_was_opened_while_resuming_is_said_afterwards(protocol: ClientProtocol) -> None:
    reconnect(protocol)
    protocol.open("new", {})
    protocol.send_text("new", "Hi.")
    protocol.end("new")
    assert said(protocol) == []
    resumed(protocol)
    assert [m["type"] for m in said(protocol)] == ["text", "end"]


def test_a_finished_context_is_only_listened_to(protocol: ClientProtocol) -> None:
    protocol.open("c", {})
    protocol.send_text("c", "Hi.")
    accepted(protocol)
    reconnect(protocol)
    assert resumed(protocol, c={"state": "finished"}) == [events.SessionReady(resumed=True)]
    assert said(protocol) == []
    (done,) = hear(protocol, "context.done", context_id="c", sequence=1, audio_ms=0, characters=3, ttfa_ms=1.5)
    assert isinstance(done, events.ContextDone)
    assert reconnect(protocol)["contexts"] == {}


def test_a_cancel_whose_answer_was_lost_is_said_again(protocol: ClientProtocol) -> None:
    protocol.open("c", {})
    protocol.send_text("c", "Hi.")
    accepted(protocol)
    hear(protocol, "context.done", context_id="c", sequence=1, audio_ms=0, characters=3)
    protocol.cancel("c", 12.5)
    assert [m["type"] for m in said(protocol)] == ["playback", "cancel"]
    assert reconnect(protocol)["contexts"] == {}
    resumed(protocol)
    assert [m["type"] for m in said(protocol)] == ["cancel"]
    heard = {"played_ms": 12.5, "spoken_text": "Hi.", "spoken_chars": 3}
    (event,) = hear(protocol, "cancel.acknowledged", context_id="c", state="done", **heard)
    assert isinstance(event, events.ContextCancelled)
    assert hear(protocol, "cancel.acknowledged", context_id="c", state="done", **heard) == []


@pytest.mark.parametrize("state", ["lost", "unknown", "a later state"])
def test_what_the_server_cannot_continue_fails(protocol: ClientProtocol, state: str) -> None:
    protocol.open("c", {})
    protocol.send_text("c", "Hi.")
    accepted(protocol)
    reconnect(protocol)
    _, failed = resumed(protocol, c={"state": state})
    assert isinstance(failed, events.ContextFailed)
    assert isinstance(failed.error, ResumeGap)
    assert hear(protocol, "context.done", context_id="c", sequence=1, audio_ms=0, characters=3) == []


def test_a_forgotten_session_is_begun_anew(protocol: ClientProtocol) -> None:
    for context_id in ("spoken", "unheard", "cancelled"):
        protocol.open(context_id, {})
        protocol.send_text(context_id, "Hi.")
    accepted(protocol, "spoken")
    protocol.cancel("cancelled", 0.0)
    reconnect(protocol)
    restarted, *failed = hear(protocol, "error", code="session_not_found", message="gone", retryable=False)
    assert isinstance(restarted, events.ContextRestarted)
    assert {event.context_id for event in failed} == {"cancelled"}
    assert all(isinstance(event.error, ConnectionLost) for event in failed)
    assert [m["type"] for m in said(protocol)] == ["session.start"]
    started(protocol)
    assert {(m["type"], m["context_id"]) for m in said(protocol)} == {("text", "spoken"), ("text", "unheard")}


@pytest.mark.parametrize("text_type", [None, "ssml"])
def test_ssml_goes_on_in_a_new_session_with_what_was_open(protocol: ClientProtocol, text_type: str | None) -> None:
    outer = "" if text_type else "<speak>"
    protocol.open("c", {"params": {"text_type": text_type}} if text_type else {})
    text = f'{outer}One <prosody rate="80%">two three'
    protocol.send_text("c", text)
    protocol.flush("c")
    protocol.send_text("c", "</prosody>.")
    protocol.end("c")
    accepted(protocol)
    one, two = len(outer), text.index("two")
    words = [_word("One", one, one + 3, 0, 300), _word("two", two, two + 3, 300, 600)]
    hear(protocol, "words", context_id="c", sequence=1, timing="measured", words=words)
    for index in range(20):
        protocol.receive(audio(index + 2, index * 960))
    reconnect(protocol)
    hear(protocol, "error", code="session_not_found", message="gone", retryable=False)
    said(protocol)
    started(protocol)
    opened = f'{outer}<prosody rate="80%">'
    again = said(protocol)
    assert [m.get("text", m["type"]) for m in again] == [f"{opened}two three", "flush", "</prosody>.", "end"]
    accepted(protocol)
    words = [_word("two", len(opened), len(opened) + 3, 0, 300)]
    (event,) = hear(protocol, "words", context_id="c", sequence=1, timing="measured", words=words)
    assert (event.words[0].start, event.words[0].end) == (two, two + 3)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 5, "num_flushes": 0, "ended": False})
    assert said(protocol)[0]["text"] == f"{opened}two three"[5:]
    facts = {"played_ms": 0, "spoken_text": opened[:2], "spoken_chars": 2}
    protocol.played("c", 500.0)
    protocol.cancel("c", 500.0)
    (event,) = hear(protocol, "context.cancelled", context_id="c", sequence=2, **facts)
    assert (event.spoken.text, event.spoken.chars) == (text[:two], two)


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("plain <b>text", "<b>"),
        ('<?xml version="1.0"?><!DOCTYPE speak><speak a="x > y"><break/>', '<speak a="x > y">'),
        ("<speak><!-- <p> --><![CDATA[<s>]]><p><s>one</s>", "<speak><p>"),
        ("<speak>a</speak> <speak>b", "<speak>"),
        ("<speak>2 < 3 </other>", "<speak>"),
    ],
)
def test_open_tags(text: str, opened: str) -> None:
    assert open_tags(text) == opened


def test_what_is_ssml() -> None:
    assert [is_ssml(" <speak>a", kind) for kind in ("auto", "text", "ssml")] == [True, False, True]
    assert [is_ssml("a <b>c", kind) for kind in ("auto", "text", "ssml")] == [False, False, True]


def test_what_was_heard_in_part_goes_on_in_a_new_session_from_the_word_that_was_begun(
    protocol: ClientProtocol,
) -> None:
    """The context continues in the same voice; time and text go on where they were."""
    protocol.open("c", {"params": {"speed": 1.5}})
    protocol.send_text("c", "One two three.")
    protocol.flush("c")
    accepted(protocol)
    words = [_word("One", 0, 3, 0, 300), _word("two", 4, 7, 300, 600), _word("three.", 8, 14, 700, 1000)]
    hear(protocol, "words", context_id="c", sequence=1, timing="measured", words=words)
    for index in range(32):  # 640 ms: "two" has been heard, "three" not begun
        protocol.receive(audio(index + 2, index * 960))
    protocol.send_text("c", " Four.")
    protocol.end("c")
    reconnect(protocol)
    (restarted,) = hear(protocol, "error", code="session_not_found", message="gone", retryable=False)
    assert restarted == events.ContextRestarted("c", 640.0)
    said(protocol)
    started(protocol)
    again = said(protocol)
    assert [m["type"] for m in again] == ["text", "flush", "text", "end"]
    assert "".join(m.get("text", "") for m in again) == "two three. Four."
    assert again[0]["voice"] == "v"
    assert again[0]["params"] == {"speed": 1.5, "seed": 1}
    assert accepted(protocol) == []  # that is no news for the program
    (event,) = hear(
        protocol, "words", context_id="c", sequence=1, timing="measured", words=[_word("two", 0, 3, 0, 300)]
    )
    assert (event.words[0].start, event.words[0].end, event.words[0].start_ms) == (4, 7, 640.0)
    (event,) = protocol.receive(audio(2, 0))
    assert event.packet.pts_samples == 32 * 960
    protocol.played("c", 700.0)
    assert said(protocol)[-1]["played_ms"] == 60.0
    # Lost once more: what is known counts from the beginning of the text.
    asked = reconnect(protocol)
    assert asked["contexts"] == {"c": 2}
    resumed(protocol, c={"state": "open", "received_chars": 10, "num_flushes": 1, "ended": False})
    assert [(m["type"], m.get("text")) for m in said(protocol)] == [("text", " Four."), ("end", None)]
    (event,) = hear(
        protocol, "context.cancelled", context_id="c", sequence=3, played_ms=400, spoken_text="two", spoken_chars=3
    )
    assert (event.spoken.played_ms, event.spoken.text, event.spoken.chars) == (1040.0, "One two", 7)


def test_a_resume_refused_for_another_reason_fails_the_session(protocol: ClientProtocol) -> None:
    reconnect(protocol)
    (event,) = hear(protocol, "error", code="overloaded", message="full", retryable=True)
    assert isinstance(event, events.SessionFailed)
    assert isinstance(event.error, Overloaded)


def test_messages_that_came_before_are_not_taken_twice(protocol: ClientProtocol) -> None:
    protocol.open("c", {})
    protocol.send_text("c", "Hi.")
    accepted(protocol)
    assert len(hear(protocol, "words", context_id="c", sequence=1, words=[])) == 1
    assert hear(protocol, "words", context_id="c", sequence=1, words=[]) == []
    with pytest.raises(ProtocolError, match="missing"):
        hear(protocol, "flushed", context_id="c", sequence=3, audio_ms=0)


def test_unasked_answers(protocol: ClientProtocol) -> None:
    with pytest.raises(ProtocolError):
        resumed(protocol)
    assert hear(protocol, "context.done", context_id="nobody", sequence=5, audio_ms=0, characters=0) == []
    (refused,) = hear(protocol, "error", code="invalid_message", message="what?", retryable=False)
    assert isinstance(refused, events.Refused)


def test_text_that_must_wait_says_how_long(protocol: ClientProtocol) -> None:
    protocol.open("c", {})
    protocol.send_text("c", "Hi.")
    accepted(protocol)
    fields = {"code": "rate_limited", "message": "later", "retryable": True, "context_id": "c", "retry_after_s": 2.5}
    (refused,) = hear(protocol, "error", **fields)
    assert isinstance(refused, events.Refused)
    assert isinstance(refused.error, RateLimited)
    assert (refused.error.retryable, refused.error.retry_after_s) == (True, 2.5)


def test_text_that_was_refused_is_not_kept(protocol: ClientProtocol) -> None:
    """Neither after a resume nor in a new session, where the server counts from the word that was heard."""
    protocol.open("c", {})
    for piece in ("one two ", "three ", "four ", "five ", "six"):
        protocol.send_text("c", piece)
        protocol.flush("c")
    accepted(protocol)
    refused = {"code": "rate_limited", "message": "later", "retryable": True, "context_id": "c"}
    hear(protocol, "error", **refused, span=[8, 14])
    (event,) = hear(protocol, "error", **refused, span=[13, 18])
    assert isinstance(event, events.Refused)
    assert event.span == (13, 18)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 9, "num_flushes": 2})
    assert [frame.get("text", frame["type"]) for frame in said(protocol)] == ["our ", "flush", "flush", "six", "flush"]
    hear(protocol, "words", context_id="c", sequence=1, words=[_word("one", 0, 3, 0, 10), _word("two", 4, 7, 10, 20)])
    protocol.receive(audio(2, 0))
    protocol.connection_lost()
    protocol.connection_made(resume=False)
    said(protocol)
    started(protocol)
    assert [frame.get("text", frame["type"]) for frame in said(protocol)][:2] == ["two ", "flush"]
    accepted(protocol)
    (event,) = hear(protocol, "error", **refused, span=[9, 12])
    assert isinstance(event, events.Refused)
    assert event.span == (13, 16)
    reconnect(protocol)
    resumed(protocol, c={"state": "open"})
    assert "".join(frame.get("text", "") for frame in said(protocol)) == "two four "


def test_a_lost_race_is_no_error(protocol: ClientProtocol) -> None:
    protocol.open("c", {})
    protocol.send_text("c", "Hi.")
    accepted(protocol)
    assert hear(protocol, "error", code="context_closed", message="late", retryable=False, context_id="c") == []
    protocol.end("c")
    with pytest.raises(ContextClosed):
        protocol.send_text("c", "more")


def test_offline_nothing_is_queued(protocol: ClientProtocol) -> None:
    protocol.open("c", {})
    protocol.connection_lost()
    protocol.send_text("c", "Hi.")
    protocol.flush("c")
    protocol.end("c")
    protocol.played("c", 1.0)
    protocol.ping()
    protocol.cancel("c", 1.0)
    assert (protocol.state, protocol.num_outgoing) == (State.OFFLINE, 0)


@pytest.mark.parametrize("spans", [None, {}, [3, 4], [[3]], [[3, 4, 5]], [[-1, 2]], [["3", "4"]]])
def test_a_warning_whose_places_are_none_is_malformed(protocol: ClientProtocol, spans: Any) -> None:
    with pytest.raises(ProtocolError):
        hear(protocol, "warning", context_id="c", code="unspeakable_text", message="", spans=spans)
