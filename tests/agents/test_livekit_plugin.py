"""The LiveKit plugin against servers that follow a script, frame by frame; `test_plugins_alike` has more of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from client_fake_server import AUDIO, Connection, Voice, ramp, scripted
from livekit import rtc
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    SpeechCreatedEvent,
)
from livekit.agents import tts as livekit_tts
from livekit.agents.metrics import TTSMetrics
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString
from livekit.agents.voice import SpeechHandle
from livekit.plugins import realtime_tts
from livekit.plugins.realtime_tts.errors import to_api_error
from livekit.plugins.realtime_tts.tts import CERTAIN_EVERY_S
from realtime_tts_client import EngineError, ResumeGap, ServerError, Unauthorized
from scripted_voices import TalkingVoice, failing
from websockets.asyncio.server import serve

RATE_HZ = AUDIO["sample_rate"]
ONCE = APIConnectOptions(max_retry=0, timeout=5)
QUICK = APIConnectOptions(max_retry=2, retry_interval=0.01, timeout=5)


@pytest_asyncio.fixture
async def make_tts() -> AsyncIterator[Any]:
    made: list[realtime_tts.TTS] = []

    def make(url: str, **options: Any) -> realtime_tts.TTS:
        made.append(realtime_tts.TTS(url, sample_rate=RATE_HZ, **options))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


async def frames_of(stream: Any) -> list[livekit_tts.SynthesizedAudio]:
    return [event async for event in stream]


def samples_of(events: list[livekit_tts.SynthesizedAudio]) -> np.ndarray:
    return np.concatenate([np.frombuffer(event.frame.data, np.int16) for event in events])


def pieces_of(events: list[livekit_tts.SynthesizedAudio]) -> list[TimedString]:
    return [piece for event in events for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]


def whole_ramp(num_frames: int) -> np.ndarray:
    return np.concatenate([ramp(frame) for frame in range(num_frames)])


async def speak(stream: livekit_tts.SynthesizeStream, *deltas: str) -> list[livekit_tts.SynthesizedAudio]:
    for delta in deltas:
        stream.push_text(delta)
    stream.end_input()
    return await asyncio.wait_for(frames_of(stream), 10)


# ---- speaking --------------------------------------------------------------------------------------------------------


async def test_words_come_before_their_audio_and_make_up_the_text(make_tts: Any) -> None:
    text = "Well, this is one. And “two”! "
    async with scripted(TalkingVoice()) as (url, _):
        events = await speak(make_tts(url).stream(conn_options=ONCE), text[:7], text[7:8], text[8:])
    pieces = pieces_of(events)
    assert "".join(pieces) == text
    assert list(pieces)[:3] == ["Well,", " this", " is"]
    begun_s = 0.0
    for event in events:
        for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, []):
            assert piece.end_time >= begun_s, "a word whose audio had gone by"
        begun_s += event.frame.duration
    assert [piece.start_time for piece in pieces[:3]] == pytest.approx([0.0, 0.04, 0.08])


def test_what_the_server_calls_retryable_is_tried_again() -> None:
    assert isinstance(to_api_error(ResumeGap("the server no longer holds what was missed")), APIConnectionError)
    assert to_api_error(ServerError("busy", code="a code of tomorrow", retryable=True)).retryable
    assert not to_api_error(ServerError("no", code="a code of tomorrow")).retryable
    assert not to_api_error(Unauthorized("no")).retryable
    assert not to_api_error(EngineError("broken")).retryable


async def test_turns_at_a_time_share_a_connection_and_never_their_audio(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        tts = make_tts(url)
        texts = ["one two three.", "four five.", "six seven eight nine."]
        spoken = await asyncio.gather(*(speak(tts.stream(conn_options=ONCE), text) for text in texts))
        assert len(connections) == 1
    assert ["".join(pieces_of(events)) for events in spoken] == texts
    assert [len(samples_of(events)) for events in spoken] == [6 * 160, 4 * 160, 8 * 160]


async def test_a_flush_in_mid_turn_is_passed_on(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        stream = make_tts(url).stream(conn_options=ONCE)
        stream.push_text("one ")
        stream.flush()
        while not connections or not any(message["type"] == "flush" for message in connections[0].received):
            await asyncio.sleep(0.01)
        stream.end_input()
        await frames_of(stream)
        assert [message["type"] for message in connections[0].received].count("flush") == 1


async def test_a_turn_without_text_opens_no_context(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        assert await speak(make_tts(url).stream(conn_options=ONCE), "  ") == []
        assert [message["type"] for message in connections[0].received] == ["session.start"]


async def test_a_whole_text_that_cannot_be_spoken_is_no_failure(make_tts: Any) -> None:
    async with scripted(Voice(num_frames=0)) as (url, connections):
        events = await frames_of(make_tts(url).synthesize("👍", conn_options=QUICK))
        assert not samples_of(events).any()
        assert [message["type"] for message in connections[0].received].count("end") == 1  # asked once, not again


async def test_a_whole_text_is_as_fast_as_it_is_made(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        stream = make_tts(url).synthesize("one, two.", conn_options=ONCE)
        events = await frames_of(stream)
        assert np.array_equal(samples_of(events), whole_ramp(4))
        assert "".join(pieces_of(events)) == "one, two."
        assert len(connections) == 1


async def test_options_hold_from_the_next_turn_on_and_the_connection_stays(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        given = {"steps": 8, "cfg": 2.5, "language": "en", "mode": "live", "instructions": "softly", "speed": 1.2}
        given |= {"volume": 0.5, "sentence_pause_ms": 100, "lexicon": {"nginx": "engine x"}}
        given |= {"adapter": "warm", "openings": "on"}
        tts = make_tts(url, voice="slt", **given)
        before = tts.stream(conn_options=ONCE)
        tts.update_options(voice="rms", **dict.fromkeys(given), seed=7)
        tts.update_options(mode="clause")
        await speak(before, "one.")
        await speak(tts.stream(conn_options=ONCE), "two.")
        first, second = [message for message in connections[0].received if message["type"] == "text"]
        assert (first["voice"], first["params"]) == ("slt", given)
        assert (second["voice"], second["params"]) == ("rms", {"seed": 7, "mode": "clause"})
        assert len(connections) == 1


def test_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REALTIME_TTS_URL", "https://tts.example.org")
    monkeypatch.setenv("REALTIME_TTS_API_KEY", "secret")
    tts = realtime_tts.TTS()
    assert tts._connect(1.0)._endpoint.url == "wss://tts.example.org/v1/stream"
    assert tts._connect(1.0)._endpoint.api_key == "secret"
    assert (tts.capabilities.streaming, tts.capabilities.aligned_transcript) == (True, True)
    with pytest.raises(ValueError, match="address"):
        realtime_tts.TTS("ftp://localhost:8000")


async def test_fifty_turns_leave_nothing_behind(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        tts = make_tts(url)
        for turn in range(50):
            stream = tts.stream(conn_options=ONCE)
            if turn % 5 == 4:
                stream.push_text("Never mind")
                await asyncio.sleep(0)
            else:
                assert "".join(pieces_of(await speak(stream, f"turn {turn}."))) == f"turn {turn}."
            await stream.aclose()
        session = tts._shared._session
        assert len(connections) == 1
        while session._awaited or session._live:  # answers to the cancels, and what is still being heard
            await asyncio.sleep(0.01)
        assert session._protocol._contexts == {}


@pytest.mark.slow
async def test_a_language_model_may_think_for_twenty_seconds(make_tts: Any, fake_gateway: str) -> None:
    stream = make_tts(fake_gateway).stream(conn_options=ONCE)
    stream.push_text("Let me think about that, ")
    heard = asyncio.create_task(frames_of(stream))
    await asyncio.sleep(20)
    assert not heard.done()
    stream.push_text("and here is the answer.")
    stream.end_input()
    events = await asyncio.wait_for(heard, 20)
    await stream.aclose()
    assert "".join(pieces_of(events)) == "Let me think about that, and here is the answer."


# ---- interruption ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["text", "audio"])
async def test_a_turn_that_is_cancelled_says_so_at_once(make_tts: Any, moment: str) -> None:
    heard = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        if moment == "audio":
            for frame in range(30):
                await connection.audio(frame + 1, frame)
        heard.set()
        assert (await connection.read("cancel"))["context_id"] == context_id
        await connection.cancelled(context_id, 31 if moment == "audio" else 1)

    async with scripted(script) as (url, connections):
        tts = make_tts(url)
        stream = tts.stream(conn_options=ONCE)
        stream.push_text("One two three ")
        await asyncio.wait_for(heard.wait(), 20)
        if moment == "audio":
            await anext(stream)
        await asyncio.wait_for(stream.aclose(), 20)
        session = tts._shared._session
        assert not session.closed
        while session._awaited:  # the answer to the cancel
            await asyncio.sleep(0.01)
        assert [message["type"] for message in connections[0].received][-1] == "cancel"


async def test_the_cancel_waits_for_nothing(make_tts: Any) -> None:
    """Not for the framework's tasks, and not for the text's source: it is the first thing on the wire."""
    accepted = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        accepted.set()
        await connection.read("cancel")
        await connection.cancelled(context_id, 1)

    async with scripted(script) as (url, _):
        tts = make_tts(url)
        stream = tts.stream(conn_options=ONCE)
        stream.push_text("One two three ")
        await asyncio.wait_for(accepted.wait(), 20)
        session = tts._shared._session
        stream._task.cancel()
        for _ in range(5):  # turns of the event loop, no time
            await asyncio.sleep(0)
        assert session._awaited, "nothing was cancelled yet"
        await stream.aclose()


# ---- what goes wrong -------------------------------------------------------------------------------------------------


async def test_a_full_server_is_asked_again_with_the_whole_text(make_tts: Any) -> None:
    voice = TalkingVoice()
    voice.numbers["failed"] = 1  # that number is taken
    async with scripted(failing("overloaded", retryable=True, then=voice)) as (url, _):
        tts = make_tts(url)
        errors: list[livekit_tts.TTSError] = []
        tts.on("error", errors.append)
        events = await speak(tts.stream(conn_options=QUICK), "one ", "two.")
    assert "".join(pieces_of(events)) == "one two."
    assert [(error.recoverable, error.error.status_code) for error in errors] == [(True, 503)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "retryable", "status", "again"),
    [
        ("voice_not_found", True, 404, False),
        ("text_too_long", False, 413, False),
        ("a code of tomorrow", False, 400, False),
        ("slow_consumer", False, 408, True),
        ("rate_limited", True, 429, True),
        ("too_many_contexts", False, 429, True),
        ("internal_error", False, 500, False),
        ("engine_lost", True, 503, True),
    ],
)
async def test_a_failed_turn_is_livekits_error(
    make_tts: Any, code: str, retryable: bool, status: int, again: bool
) -> None:
    async with scripted(failing(code, retryable=retryable)) as (url, _):
        with pytest.raises(APIStatusError, match=f"because of {code}") as caught:
            await speak(make_tts(url).stream(conn_options=ONCE), "Hello.")
    assert (caught.value.status_code, caught.value.retryable) == (status, again)
    assert caught.value.body["code"] == code  # type: ignore[index]


async def test_a_piece_that_is_refused_ends_the_turn_with_the_reason(make_tts: Any) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        await connection.send(
            "error", code="text_too_long", message="enough", retryable=False, context_id=context_id, field="text"
        )
        await connection.read("cancel")
        await connection.cancelled(context_id, 1)

    async with scripted(script) as (url, _):
        stream = make_tts(url).stream(conn_options=QUICK)
        stream.push_text("Hello ")
        while not stream._task.done():  # the refusal is told with one of the pieces after it
            stream.push_text("again ")
            await asyncio.wait([stream._task], timeout=0.02)
        with pytest.raises(APIStatusError) as caught:
            await anext(stream)
        assert caught.value.status_code == 413
        await stream.aclose()


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_turn_that_the_server_ends_early_is_a_connection_error(make_tts: Any, has_ended: bool) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        if has_ended:
            await connection.read("end")
        await connection.audio(1, 0)
        await connection.cancelled(context_id, 2)

    async with scripted(script) as (url, _):
        stream = make_tts(url).stream(conn_options=ONCE)
        stream.push_text("Hello there. ")
        if has_ended:
            stream.end_input()
        with pytest.raises(APIConnectionError, match="ended the turn"):
            await asyncio.wait_for(frames_of(stream), 10)
        await stream.aclose()


async def test_an_unreachable_server_is_a_connection_error_and_prewarm_only_warns(
    make_tts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tts = make_tts("ws://127.0.0.1:9")
    tts.prewarm()
    with caplog.at_level(logging.WARNING, "livekit.plugins.realtime_tts"):
        await tts._prewarming
    assert "cannot be reached" in caplog.text
    with pytest.raises(APIConnectionError) as caught:
        await speak(tts.stream(conn_options=ONCE), "Hello.")
    assert caught.value.retryable


async def test_a_wrong_key_is_not_tried_again(make_tts: Any) -> None:
    num_asked = 0

    def refuse(connection: Any, request: Any) -> Any:
        nonlocal num_asked
        num_asked += 1
        return connection.respond(401, '{"code": "unauthorized", "message": "no such key"}')

    async with serve(lambda socket: None, "127.0.0.1", 0, process_request=refuse) as server:  # type: ignore[arg-type, return-value]
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(APIStatusError, match="no such key") as caught:
            await speak(make_tts(url).stream(conn_options=QUICK), "Hello.")
    assert (caught.value.status_code, caught.value.retryable, num_asked) == (401, False, 1)


async def test_a_server_that_takes_the_connection_and_says_nothing_is_a_timeout(make_tts: Any) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side has given up
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent:
        url = f"ws://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        with pytest.raises(APITimeoutError):
            await speak(make_tts(url).stream(conn_options=APIConnectOptions(max_retry=0, timeout=0.2)), "Hello.")


async def test_garbage_is_an_error_that_is_not_tried_again(make_tts: Any) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.socket.send("this is not JSON")

    async with scripted(script) as (url, _):
        with pytest.raises(APIError) as caught:
            await speak(make_tts(url).stream(conn_options=ONCE), "Hello.")
    assert not caught.value.retryable


async def test_a_session_that_is_gone_for_good_is_opened_anew(make_tts: Any) -> None:
    async def once(connection: Connection) -> None:
        await connection.begin()
        await connection.socket.close(1008, "slow_consumer")

    async with scripted(once, TalkingVoice()) as (url, connections):
        tts = make_tts(url)
        await tts._shared.get(5)
        while not tts._shared._session.closed:
            await asyncio.sleep(0.01)
        assert "".join(pieces_of(await speak(tts.stream(conn_options=ONCE), "one."))) == "one."
        assert len(connections) == 2


# ---- metrics ---------------------------------------------------------------------------------------------------------


async def test_metrics_name_the_model_and_tell_how_long_it_took(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, _):
        tts = make_tts(url)
        told: list[TTSMetrics] = []
        tts.on("metrics_collected", told.append)
        assert tts.model == "unknown"
        for text in ("one two three.", "four."):
            stream = tts.stream(conn_options=ONCE)
            await speak(stream, text)
            await stream.aclose()
    assert [metrics.characters_count for metrics in told] == [14, 5]
    assert [metrics.connection_reused for metrics in told] == [False, True]
    assert told[0].acquire_time > 0 == told[1].acquire_time
    assert all(0 < metrics.ttfb < metrics.duration for metrics in told)
    assert [metrics.audio_duration for metrics in told] == pytest.approx([0.12, 0.04])
    assert (told[0].metadata.model_name, told[0].metadata.model_provider) == ("m", "realtime-tts")  # type: ignore[union-attr]


# ---- early answers ---------------------------------------------------------------------------------------------------


def answer_created(tts: realtime_tts.TTS) -> SpeechHandle:
    """Have a session tell that it has created an answer, which is not scheduled yet."""
    session: Any = rtc.EventEmitter[str]()
    session.tts = tts
    realtime_tts.draft_early_answers(session)
    handle = SpeechHandle.create()
    session.emit(
        "speech_created", SpeechCreatedEvent(speech_handle=handle, user_initiated=True, source="generate_reply")
    )
    return handle


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "being written"])
async def test_an_early_answer_is_a_draft_until_its_turn_has_ended(make_tts: Any, is_written: bool) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        text = await connection.read("text")
        assert text["draft"]
        await connection.accept(text["context_id"])
        while {"commit", "end"} - {message["type"] for message in connection.received}:
            await connection.read()
        await connection.audio(1, 0)
        await connection.done(text["context_id"], 2, 1, 4)
        await connection.until_closed()

    async with scripted(script) as (url, connections):
        tts = make_tts(url)
        handle = answer_created(tts)
        stream = tts.stream(conn_options=ONCE)
        stream.push_text("one ")
        if is_written:
            stream.end_input()
        last = "end" if is_written else "text"
        while not connections or last not in [message["type"] for message in connections[0].received]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(3 * CERTAIN_EVERY_S)
        assert "commit" not in [message["type"] for message in connections[0].received]
        handle._mark_scheduled()
        if not is_written:
            stream.end_input()
        assert len(samples_of(await asyncio.wait_for(frames_of(stream), 20))) == len(ramp(0))


async def test_an_early_answer_of_which_a_piece_was_refused_ends_with_the_reason(make_tts: Any) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        await connection.read("text")
        refused = {"code": "rate_limited", "message": "too much", "retryable": True}
        await connection.send("error", context_id=context_id, **refused)
        await connection.read("cancel")
        await connection.cancelled(context_id, 1)

    async with scripted(script) as (url, _):
        tts = make_tts(url)
        handle = answer_created(tts)
        stream = tts.stream(conn_options=ONCE)
        stream.push_text("one ")
        stream.push_text("two ")
        while not any(context._refusal for session in [tts._shared._session] if session for context in session._live):
            await asyncio.sleep(0.01)
        handle._mark_scheduled()  # the language model is still writing
        with pytest.raises(APIStatusError) as caught:
            await asyncio.wait_for(frames_of(stream), 20)
        assert caught.value.status_code == 429
        await stream.aclose()


async def test_an_early_answer_whose_turn_goes_on_is_cancelled(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        tts = make_tts(url)
        answer_created(tts)
        stream = tts.stream(conn_options=ONCE)
        stream.push_text("one ")
        while not connections or "text" not in [message["type"] for message in connections[0].received]:
            await asyncio.sleep(0.01)
        await stream.aclose()
        while "cancel" not in (kinds := [message["type"] for message in connections[0].received]):
            await asyncio.sleep(0.01)
        assert "commit" not in kinds


async def test_an_answer_to_a_turn_that_has_ended_is_no_draft(make_tts: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections):
        tts = make_tts(url)
        answer_created(tts)._mark_scheduled()
        assert len(samples_of(await speak(tts.stream(conn_options=ONCE), "one."))) > 0
        assert not any(message.get("draft") for message in connections[0].received)


def test_drafts_need_a_session_that_speaks_through_the_plugin() -> None:
    session: Any = rtc.EventEmitter[str]()
    session.tts = None
    with pytest.raises(ValueError, match="realtime_tts"):
        realtime_tts.draft_early_answers(session)
