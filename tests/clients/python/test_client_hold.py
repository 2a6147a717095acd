"""Hold and release: what is said to the server, and what the program is given."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from client_fake_server import Connection, ramp, scripted
from realtime_tts_client import AudioFormat, ContextClosed, RateLimited, SessionClosed, Spoken, connect, events
from realtime_tts_client.protocol import ClientProtocol
from realtime_tts_client.session import Session
from test_client_protocol import accepted, audio, hear, reconnect, resumed, said, started

HELD = {"context_id": "c", "played_ms": 150.0, "spoken_text": "one", "spoken_chars": 3, "timeout_s": 30}
WORDS = [{"text": "one", "start": 0, "end": 3, "start_ms": 40, "end_ms": 150}]
NUM_FRAMES = 20


@pytest.fixture
def protocol() -> ClientProtocol:
    made = ClientProtocol({})
    made.connection_made(resume=False)
    started(made)
    made.open("c", {})
    made.send_text("c", "one two")
    accepted(made)
    said(made)
    return made


def frames_of(protocol: ClientProtocol, kind: str) -> list[dict[str, Any]]:
    return [frame for frame in said(protocol) if frame["type"] == kind]


def test_the_server_is_asked_and_answers(protocol: ClientProtocol) -> None:
    protocol.hold("c", 150.0)
    assert said(protocol) == [{"type": "hold", "context_id": "c", "at": "now", "played_ms": 150.0}]
    assert hear(protocol, "context.held", **HELD) == [events.ContextHeld("c", Spoken(150.0, "one", 3))]
    protocol.release("c", 500.0)
    assert said(protocol) == [{"type": "release", "context_id": "c", "clause_after_ms": 500.0}]
    assert hear(protocol, "context.released", context_id="c", from_ms=40.0) == [events.ContextReleased("c", 40.0)]
    assert hear(protocol, "context.held", **HELD) == []  # nothing was asked


def test_a_context_that_was_sent_completely_is_held(protocol: ClientProtocol) -> None:
    hear(protocol, "context.done", context_id="c", sequence=1, audio_ms=400, characters=7)
    protocol.hold("c", 150.0)
    assert [frame["type"] for frame in said(protocol)] == ["hold"]
    assert hear(protocol, "context.held", **HELD)
    protocol.release("c", 2000.0)
    assert hear(protocol, "context.released", context_id="c", from_ms=150.0)
    assert reconnect(protocol)["contexts"] == {}


def test_only_what_has_no_answer_is_asked_again(protocol: ClientProtocol) -> None:
    protocol.hold("c", 150.0)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 7})
    assert frames_of(protocol, "hold") == [{"type": "hold", "context_id": "c", "at": "now", "played_ms": 150.0}]
    hear(protocol, "context.held", **HELD)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 7})
    assert frames_of(protocol, "hold") == []
    protocol.release("c", 2000.0)
    reconnect(protocol)
    resumed(protocol, c={"state": "open", "received_chars": 7})
    assert len(frames_of(protocol, "release")) == 1


def test_a_new_session_holds_it_again_and_it_goes_on_where_it_stopped(protocol: ClientProtocol) -> None:
    receive_audio(protocol)
    protocol.hold("c", 150.0)
    hear(protocol, "context.held", **HELD)
    reconnect(protocol)
    hear(protocol, "error", code="session_not_found", message="", retryable=False)
    said(protocol)
    started(protocol)
    assert [frame["type"] for frame in said(protocol)] == ["text", "hold"]
    accepted(protocol)
    hear(protocol, "context.held", context_id="c", played_ms=0, spoken_text="", spoken_chars=0, timeout_s=30)
    protocol.release("c", 2000.0)
    assert hear(protocol, "context.released", context_id="c", from_ms=0) == [events.ContextReleased("c", 150.0)]


def receive_audio(protocol: ClientProtocol, num_packets: int = 20) -> None:
    for frame in range(num_packets):
        protocol.receive(audio(frame + 1, frame * 960))


def begin_anew(protocol: ClientProtocol) -> list[events.Event]:
    """The server ends the connection, for instance to restart; the next one has a new session."""
    protocol.connection_lost()
    protocol.connection_made(resume=False)
    said(protocol)
    return started(protocol)


def test_a_release_without_an_answer_is_asked_again_in_a_new_session(protocol: ClientProtocol) -> None:
    receive_audio(protocol)
    protocol.hold("c", 150.0)
    hear(protocol, "context.held", **HELD)
    protocol.release("c", 2000.0)
    begin_anew(protocol)
    assert [frame["type"] for frame in said(protocol)] == ["text", "release"]
    accepted(protocol)
    assert hear(protocol, "context.released", context_id="c", from_ms=0) == [events.ContextReleased("c", 150.0)]


def test_a_hold_after_the_last_packet_of_a_new_session_is_where_the_program_has_it(protocol: ClientProtocol) -> None:
    receive_audio(protocol)  # 400 ms
    begin_anew(protocol)
    accepted(protocol)
    hear(protocol, "context.done", context_id="c", sequence=1, audio_ms=200, characters=7)
    said(protocol)
    protocol.hold("c", 550.0)
    assert [frame["played_ms"] for frame in frames_of(protocol, "hold")] == [150.0]
    (held,) = hear(protocol, "context.held", **HELD)
    assert isinstance(held, events.ContextHeld)
    assert held.spoken.played_ms == 550.0
    protocol.release("c", 2000.0)
    hear(protocol, "context.released", context_id="c", from_ms=150.0)
    assert [type(event) for event in begin_anew(protocol)] == [events.SessionReady]


def test_what_waits_for_an_answer_that_no_server_has_fails(protocol: ClientProtocol) -> None:
    protocol.open("d", {})
    protocol.cancel("c", 0.0)
    hear(protocol, "context.done", context_id="d", sequence=0, audio_ms=0, characters=0)
    protocol.hold("d", 0.0)
    failed = [event for event in begin_anew(protocol) if isinstance(event, events.ContextFailed)]
    assert [event.context_id for event in failed] == ["c", "d"]


def test_a_refused_release_is_not_asked_again(protocol: ClientProtocol) -> None:
    protocol.hold("c", 150.0)
    hear(protocol, "context.held", **HELD)
    protocol.release("c", 2000.0)
    refusal = {"context_id": "c", "code": "context_closed", "message": "over", "retryable": False}
    (refused,) = hear(protocol, "error", **refusal)
    assert isinstance(refused, events.Refused)
    assert refused.is_answer
    said(protocol)
    reconnect(protocol)
    resumed(protocol, c={"state": "finished"})
    assert frames_of(protocol, "release") == []
    hear(protocol, "context.done", context_id="c", sequence=1, audio_ms=400, characters=7)
    assert [type(event) for event in begin_anew(protocol)] == [events.SessionReady]


def test_refused_text_is_no_answer_to_a_hold(protocol: ClientProtocol) -> None:
    protocol.hold("c", 150.0)
    fields = {"code": "rate_limited", "message": "later", "retryable": True, "context_id": "c", "retry_after_s": 2.5}
    (refused,) = hear(protocol, "error", **fields)
    assert isinstance(refused, events.Refused)
    assert not refused.is_answer
    assert hear(protocol, "context.held", **HELD) == [events.ContextHeld("c", Spoken(150.0, "one", 3))]


def test_a_context_that_was_not_opened_yet_is_opened(protocol: ClientProtocol) -> None:
    protocol.open("later", {})
    protocol.hold("later", 0.0)
    assert [frame["type"] for frame in said(protocol)] == ["text", "hold"]


# ---- with a server ---------------------------------------------------------------------------------------------------


class Holder:
    """A server that sends one context completely, and then answers holds and releases."""

    def __init__(
        self, from_ms: float = 40.0, *, is_over: bool = False, word: dict[str, Any] | None = None, end_ms: float = 1e9
    ) -> None:
        self.from_ms, self.is_over, self.end_ms = from_ms, is_over, end_ms
        self.words = [word or WORDS[0]]
        self.held: list[dict[str, Any]] = []

    async def __call__(self, connection: Connection) -> None:
        await connection.begin()
        await connection.read("end")
        await connection.accept("c")
        await connection.send("words", context_id="c", sequence=1, timing="measured", words=self.words)
        for frame in range(NUM_FRAMES):
            await connection.audio(frame + 2, frame)
        await connection.done("c", NUM_FRAMES + 2, NUM_FRAMES, 7)
        while True:
            message = await connection.read()
            if message["type"] == "hold" and self.is_over:
                error = {"code": "context_closed", "message": "the context is done", "retryable": False}
                await connection.send("error", context_id="c", **error)
            elif message["type"] == "hold":
                self.held.append(message)
                held_ms = min(message["played_ms"], self.end_ms)
                await connection.send("context.held", **HELD | {"played_ms": held_ms})
            elif message["type"] == "release":
                await connection.send("context.released", context_id="c", from_ms=self.from_ms)


def open_session(url: str) -> Session:
    return connect(url, audio=AudioFormat("pcm_s16le", sample_rate=8000), playback="consumed")


def number_of(payload: bytes) -> int:
    return int(np.frombuffer(payload, "<i2")[0]) // len(ramp(0))


@pytest.mark.parametrize(("from_ms", "goes_on_at"), [(40.0, 2), (150.0, 7)])
async def test_iteration_pauses_and_goes_on_from_where_the_server_says(from_ms: float, goes_on_at: int) -> None:
    server = Holder(from_ms)
    async with scripted(server) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        taken = [number_of((await anext(context)).payload) for _ in range(6)]
        holding = asyncio.ensure_future(context.hold())
        await asyncio.sleep(0)
        assert context.held_ms == 150.0  # before the server has answered: the end of the word at 120 ms
        assert await holding == Spoken(150.0, "one", 3)
        assert server.held[0]["played_ms"] == 150.0
        rest = asyncio.ensure_future(_numbers(context))
        await asyncio.sleep(0.05)
        assert not rest.done()
        assert await context.release() == from_ms
        assert context.held_ms is None
        assert await rest == [6, 7, *range(goes_on_at, NUM_FRAMES)]
        assert taken == list(range(6))
        assert context.played_ms == 400.0


async def test_a_word_ends_where_the_server_has_measured_it_since() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.read("end")
        await connection.accept("c")
        await connection.send("words", context_id="c", sequence=1, timing="measured", words=WORDS)
        await connection.send("words", context_id="c", sequence=2, timing="measured", words=[], previous_end_ms=170)
        for frame in range(NUM_FRAMES):
            await connection.audio(frame + 3, frame)
        await connection.read("hold")
        await connection.send("context.held", **HELD | {"played_ms": 170.0}, word_share=0.25)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        packets = [await anext(context) for _ in range(8)]
        assert [word.end_ms for word in context.words] == [word.end_ms for word in packets[0].words] == [170.0]
        held = await context.hold()
        assert context.held_ms == 170.0  # not the 150 that were told first
        assert held.word_share == 0.25


async def test_what_was_taken_to_the_end_is_given_again() -> None:
    async with scripted(Holder(120.0)) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        assert await _numbers(context) == list(range(NUM_FRAMES))
        session.played(context, 100.0)  # its player has that much behind it
        assert await context.hold() == Spoken(150.0, "one", 3)
        await context.release()
        assert await _numbers(context) == list(range(6, NUM_FRAMES))


async def test_a_position_far_ahead_of_the_audio_stops_no_iteration() -> None:
    async with scripted(Holder(120.0)) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c", playback="manual")
        session.played(context, 60_000.0)  # of a program that mistakes another context's position for this one's
        assert await _numbers(context) == list(range(NUM_FRAMES))


async def test_at_once_it_stops_where_playback_is() -> None:
    server = Holder()
    async with scripted(server) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        for _ in range(6):
            await anext(context)
        await context.hold("now")
        await context.hold()  # has no effect
        assert [message["played_ms"] for message in server.held] == [120.0, 120.0]


async def test_a_packet_of_which_next_to_nothing_is_before_the_hold_is_given() -> None:
    server = Holder(from_ms=160.0, word=WORDS[0] | {"end_ms": 140.004})
    async with scripted(server) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        taken = [number_of((await anext(context)).payload) for _ in range(6)]
        await context.hold()
        assert context.held_ms == 140.004
        taken += [number_of((await anext(context)).payload) for _ in range(2)]
        assert taken == list(range(8))  # up to 160 ms


@pytest.mark.parametrize("is_done", [False, True], ids=["done later", "done"])
async def test_a_hold_in_the_last_word_ends_with_the_audio(is_done: bool) -> None:
    word = WORDS[0] | {"end_ms": 500.0}  # an estimate; the audio has 400 ms
    async with scripted(Holder(400.0, word=word)) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        while is_done and context.done is None:
            await asyncio.sleep(0.001)
        taken = [number_of((await anext(context)).payload) for _ in range(6)]
        await context.hold()  # its answer comes after all audio
        assert context.held_ms == 400.0
        taken += [number_of((await anext(context)).payload) for _ in range(NUM_FRAMES - 6)]
        rest = asyncio.ensure_future(_numbers(context))
        assert await context.release() == 400.0
        assert await rest == []
        assert taken == list(range(NUM_FRAMES))


async def test_it_stops_where_the_server_stops_if_the_word_ends_sooner_than_was_told() -> None:
    server = Holder(140.0, word=WORDS[0] | {"end_ms": 300.0}, end_ms=140.0)
    async with scripted(server) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        taken = [number_of((await anext(context)).payload) for _ in range(6)]
        holding = asyncio.ensure_future(context.hold())
        await asyncio.sleep(0)
        assert context.held_ms == 300.0
        await holding
        assert context.held_ms == 140.0  # the server sends nothing behind it
        rest = asyncio.ensure_future(_numbers(context))
        await context.release()
        assert taken + await rest == list(range(NUM_FRAMES))


async def test_a_context_that_is_over_is_a_typed_error() -> None:
    async with scripted(Holder(is_over=True)) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        await _numbers(context)
        with pytest.raises(ContextClosed):
            await context.hold()
        assert context.held_ms is None


async def test_a_refused_hold_is_no_failure_of_what_was_sent() -> None:
    async with scripted(Holder(is_over=True)) as (url, _), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        while context.done is None:
            await asyncio.sleep(0.001)
        taken = [number_of((await anext(context)).payload) for _ in range(6)]
        with pytest.raises(ContextClosed):
            await context.hold()
        assert taken + await _numbers(context) == list(range(NUM_FRAMES))


async def test_a_held_context_is_cancelled_where_it_stopped() -> None:
    server = Holder()
    async with scripted(server) as (url, connections), open_session(url) as session:
        context = session.speak("one two", context_id="c")
        for _ in range(6):
            await anext(context)
        await context.hold()
        context.cancel_nowait()
        assert [packet async for packet in context] == []
        while not (reports := [m for m in connections[0].received if m["type"] == "playback"]):
            await asyncio.sleep(0.01)
        assert reports[-1]["played_ms"] == 150.0


async def test_the_end_of_the_session_ends_the_iteration_of_a_held_context() -> None:
    async with scripted(Holder()) as (url, _):
        session = open_session(url)
        async with session:
            context = session.speak("one two", context_id="c")
            for _ in range(6):
                await anext(context)
            await context.hold()
            rest = asyncio.ensure_future(_numbers(context))
            while context.done is None or context._packets[0].start_ms < 150.0:
                await asyncio.sleep(0.001)
        assert await asyncio.wait_for(rest, 10) == list(range(6, NUM_FRAMES))


async def test_text_that_was_refused_does_not_fail_a_hold() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.accept("c")
        error = {"code": "rate_limited", "message": "later", "retryable": True, "context_id": "c"}
        await connection.send("error", **error)
        await connection.audio(1, 0)
        await connection.read("hold")
        await connection.send("context.held", **HELD)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak(context_id="c")
        await context.send("one two")
        await anext(context)
        assert await context.hold() == Spoken(150.0, "one", 3)
        with pytest.raises(RateLimited):
            await context.send("three")


async def test_what_was_heard_of_a_closed_session_cannot_be_held() -> None:
    async with scripted(Holder()) as (url, _):
        async with open_session(url) as session:
            context = session.speak("one two", context_id="c")
            await _numbers(context)
        for ask in (context.hold, context.release):
            with pytest.raises(SessionClosed):
                await asyncio.wait_for(ask(), 10)
        assert context.held_ms is None


async def test_the_end_of_the_session_ends_a_wait() -> None:
    async def silent(connection: Connection) -> None:
        await connection.begin()
        await connection.until_closed()

    async with scripted(silent) as (url, _):
        session = open_session(url)
        async with session:
            holding = asyncio.ensure_future(session.speak("one", context_id="c").hold())
            await asyncio.sleep(0.05)
        with pytest.raises(Exception, match="closed"):
            await holding


async def _numbers(context: Any) -> list[int]:
    return [number_of(packet.payload) async for packet in context]
