"""The client against a scripted server over real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import numpy as np
import pytest
import realtime_tts_client as client
from client_fake_server import AUDIO, HEADER, Connection, Voice, ramp, scripted
from client_harness import until
from realtime_tts_client import AudioFormat, Spoken, connect
from realtime_tts_client.handshake import Endpoint
from realtime_tts_client.session import Session

FORMAT = AudioFormat("pcm_s16le", sample_rate=8000)


def open_session(url: str, **options) -> Session:
    return connect(url, audio=FORMAT, **{"playback": "consumed", **options})


async def samples_of(context: client.Context) -> np.ndarray:
    chunks = [np.frombuffer(packet.payload, "<i2") async for packet in context]
    return np.concatenate(chunks) if chunks else np.zeros(0, "<i2")


def whole_ramp(num_frames: int) -> np.ndarray:
    return np.concatenate([ramp(frame) for frame in range(num_frames)])


# ---- speaking --------------------------------------------------------------------------------------------------------


async def test_text_goes_in_and_every_sample_comes_out_once() -> None:
    voice = Voice()
    async with scripted(voice) as (url, connections):
        async with open_session(url, voice="slt", params={"seed": 3}) as session:
            assert (session.id, session.model, session.limits["max_lead_s"]) == ("s1", "m", 3.0)
            context = session.speak("Hello there.", context_id="c1")
            assert np.array_equal(await samples_of(context), whole_ramp(20))
            assert context.done == client.Done(400.0, 12, None)
            assert (context.voice, context.seed, context.audio) == ("v", 7, FORMAT)
        start = connections[0].received[0]
        assert start == {"type": "session.start", "voice": "slt", "audio": AUDIO, "params": {"seed": 3}}
        assert voice.texts == {"c1": "Hello there."}


@pytest.mark.parametrize("kind", ["list", "async"])
async def test_iterables_are_sent_piece_by_piece(kind: str) -> None:
    async def deltas():
        for piece in "Hel", "lo 👋", " there":
            await asyncio.sleep(0)
            yield piece

    voice = Voice(num_frames=2)
    async with scripted(voice) as (url, connections):
        async with open_session(url) as session:
            text = deltas() if kind == "async" else ["Hel", "lo 👋", " there"]
            await samples_of(session.speak(text, context_id="c1"))
        pieces = [m["text"] for m in connections[0].received if m["type"] == "text"]
        assert pieces == ["Hel", "lo 👋", " there"]


async def test_manual_sending_flushing_and_ending() -> None:
    async with scripted(Voice(num_frames=1)) as (url, connections):
        async with open_session(url) as session:
            context = session.speak(voice="awb", params={"cfg": 1.5})
            await context.send("One. ")
            await context.flush()
            await context.send("Two.")
            await context.end()
            await context.end()
            with pytest.raises(client.ContextClosed):
                await context.send("Three.")
            await samples_of(context)
        messages = [m for m in connections[0].received if m["type"] != "playback"][1:]
        assert [m["type"] for m in messages] == ["text", "flush", "text", "end"]
        assert (messages[0]["voice"], messages[0]["params"]) == ("awb", {"cfg": 1.5})
        assert "voice" not in messages[2]


async def test_a_text_longer_than_a_message_is_split_without_loss() -> None:
    text = '👩‍👩‍👧 \x00"\\ña' * 5_000
    voice = Voice(num_frames=1)
    async with scripted(voice) as (url, connections):
        async with open_session(url) as session:
            await samples_of(session.speak(text, context_id="c1"))
        assert voice.texts["c1"] == text
        assert all(len(json.dumps(m, ensure_ascii=False).encode()) < 65_536 for m in connections[0].received)


async def test_lone_surrogates_do_not_break_the_connection() -> None:
    voice = Voice(num_frames=1)
    async with scripted(voice) as (url, _), open_session(url) as session:
        await samples_of(session.speak("a\ud83dz", context_id="c1"))
    assert voice.texts["c1"] == "a\ufffdz"


async def test_a_context_knows_which_parts_of_its_text_are_not_spoken() -> None:
    async def warn(connection: Connection) -> None:
        await connection.begin()
        await connection.read("end")
        await connection.accept("c1")
        warning = {"context_id": "c1", "message": "…"}
        await connection.send("warning", code="unspeakable_text", spans=[[3, 4], [5, 7]], **warning)
        await connection.send("warning", code="of a later version", **warning)
        await connection.send("warning", code="unspeakable_text", spans=[[9, 10]], **warning)
        await connection.done("c1", 1)

    async with scripted(warn) as (url, _), open_session(url) as session:
        context = session.speak("Hi 👋 👋👋 there 👋", context_id="c1")
        assert len(await samples_of(context)) == 0
        assert context.skipped == [(3, 4), (5, 7), (9, 10)]


async def test_no_text_at_all_still_ends() -> None:
    async with scripted(Voice(num_frames=0)) as (url, _), open_session(url) as session:
        for text in ("", [], None):
            context = session.speak(text)
            if text is None:
                await context.end()
            assert len(await samples_of(context)) == 0


async def test_many_contexts_share_a_connection_and_never_their_audio() -> None:
    async def interleave(connection: Connection) -> None:
        await connection.begin()
        ids = []
        while len(ids) < 3:
            ids.append((await connection.read("text"))["context_id"])
        for number, context_id in enumerate(ids):
            await connection.accept(context_id, number)
        for frame in range(5):
            for number in (2, 0, 1):
                await connection.audio(frame + 1, frame * 10 + number, number)
        for context_id in ids:
            await connection.done(context_id, 6)

    async with scripted(interleave) as (url, _), open_session(url) as session:
        contexts = [session.speak("x") for _ in range(3)]
        found = await asyncio.gather(*(samples_of(context) for context in contexts))
        for number, samples in enumerate(found):
            assert np.array_equal(samples, np.concatenate([ramp(frame * 10 + number) for frame in range(5)]))


async def test_words_come_with_the_packet_that_begins_them() -> None:
    words = [
        {"text": "Hello", "start": 0, "end": 5, "start_ms": 0, "end_ms": 30},
        {"text": "there", "start": 6, "end": 11, "start_ms": 30, "end_ms": 60},
    ]

    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.send("words", context_id="c1", sequence=1, words=words[:1], later_field={})
        await connection.audio(2, 0)
        await connection.send("a.later.type", context_id="c1")
        await connection.socket.send(HEADER.pack(1, 9, 0, 1, 3, 0) + b"?")
        await connection.audio(3, 1)
        await connection.send("words", context_id="c1", sequence=4, words=words[1:])
        await connection.audio(5, 2)
        await connection.done("c1", 6)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak("Hello there", context_id="c1")
        packets = [packet async for packet in context]
        assert [[w.text for w in p.words] for p in packets] == [["Hello"], [], ["there"]]
        assert [w.start_ms for w in context.words] == [0.0, 30.0]
        assert [p.start_ms for p in packets] == [0.0, 20.0, 40.0]


async def test_pcm_is_decoded_as_asked() -> None:
    async with scripted(Voice(num_frames=3)) as (url, _), open_session(url) as session:
        context = session.speak("a")
        chunks = [chunk async for chunk in context.pcm("int16")]
        assert np.array_equal(np.concatenate(chunks), whole_ramp(3))
        assert (chunks[0].dtype, context.sample_rate) == (np.int16, 8000)
        floats = [chunk async for chunk in session.speak("b").pcm()]
        assert np.array_equal(np.concatenate(floats), whole_ramp(3).astype(np.float32) / 32_768)


# ---- barge-in --------------------------------------------------------------------------------------------------------


async def test_cancel_tells_what_was_heard_and_no_packet_follows() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        for frame in range(10):
            await connection.audio(frame + 1, frame)
        await connection.read("cancel")
        for frame in range(10, 15):  # on the wire before the cancel arrived
            await connection.audio(frame + 1, frame)
        await connection.cancelled("c1", 16, "Hello", 123.0)

    async with scripted(script) as (url, connections), open_session(url, playback="manual") as session:
        context = session.speak("Hello there.", context_id="c1")
        iterator = aiter(context)
        await anext(iterator)
        session.played(context, 123.0)
        assert await context.cancel() == Spoken(123.0, "Hello", 5) == context.spoken
        with pytest.raises(StopAsyncIteration):
            await anext(iterator)
        assert await context.cancel() == Spoken(123.0, "Hello", 5)  # again: harmless, no second message
        received = connections[0].received
        assert [m["type"] for m in received].count("cancel") == 1
        cancel_at = next(i for i, m in enumerate(received) if m["type"] == "cancel")
        assert received[cancel_at - 1] == {"type": "playback", "context_id": "c1", "played_ms": 123.0}


async def test_a_cancel_that_crosses_done_is_answered_by_the_acknowledgement() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.audio(1, 0)
        await connection.read("cancel")
        await connection.done("c1", 2, 1)
        heard = {"played_ms": 15.0, "spoken_text": "Hi", "spoken_chars": 2}
        await connection.send("cancel.acknowledged", context_id="c1", state="done", **heard)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak("Hi.", context_id="c1")
        await anext(aiter(context))
        assert await context.cancel() == Spoken(15.0, "Hi", 2)


async def test_a_finished_context_can_still_be_cancelled_while_it_plays() -> None:
    voice = Voice(num_frames=2)
    async with scripted(voice) as (url, _), open_session(url) as session:
        context = session.speak("Hi.", context_id="c1")
        await samples_of(context)
        assert (await context.cancel()).played_ms == 1.0
        assert voice.cancelled == {"c1"}


async def test_cancelling_the_task_that_listens_cancels_the_context() -> None:
    heard_cancel = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.audio(1, 0)
        await connection.read("cancel")
        heard_cancel.set()
        await connection.cancelled("c1", 2)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak("Hello.", context_id="c1")
        task = asyncio.create_task(samples_of(context))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(heard_cancel.wait(), 20)


async def test_leaving_a_context_block_early_cancels_it() -> None:
    voice = Voice(num_frames=50)
    async with scripted(voice) as (url, _), open_session(url) as session:
        async with session.speak("Hello.", context_id="c1") as context:
            async for _packet in context:
                break
        await asyncio.wait_for(context._settled.wait(), 20)
        assert voice.cancelled == {"c1"}
        async with session.speak("Hello.", context_id="c2") as whole:
            await samples_of(whole)
    assert voice.cancelled == {"c1"}


async def test_text_that_waits_is_not_sent_after_a_cancel() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.read("cancel")
        await connection.cancelled("c1", 1)

    async with scripted(script) as (url, connections), open_session(url) as session:
        context = session.speak(context_id="c1")
        await context.send("a")
        await asyncio.sleep(0.05)
        for _ in range(50):
            session._send_text(context, "x" * 100)
        await context.cancel()
        await context.send("late")  # a lost race, not an error
        await asyncio.sleep(0.05)
        assert [m.get("text") for m in connections[0].received if m["type"] == "text"] == ["a"]


async def test_a_source_that_breaks_is_raised_to_the_listener_and_cancels() -> None:
    async def deltas():
        yield "Hello"
        raise LookupError("the model went away")

    voice = Voice()
    async with scripted(voice) as (url, _), open_session(url) as session:
        context = session.speak(deltas(), context_id="c1")
        with pytest.raises(LookupError, match="went away"):
            await samples_of(context)
        await asyncio.wait_for(context._settled.wait(), 20)
        assert voice.cancelled == {"c1"}


async def test_a_delta_without_text_is_skipped() -> None:
    async def deltas():
        for delta in (None, "Hel", "", "lo.", None):
            yield delta

    voice = Voice()
    async with scripted(voice) as (url, _), open_session(url) as session:
        await samples_of(session.speak(deltas(), context_id="c1"))
        await samples_of(session.speak([None, "Hello."], context_id="c2"))
        assert voice.texts == {"c1": "Hello.", "c2": "Hello."}


@pytest.mark.parametrize("text", [[b"Hello"], b"Hello", [{"content": "Hello"}]])
async def test_a_piece_that_is_no_text_is_an_error_that_names_its_type(text) -> None:
    async with scripted(Voice()) as (url, _), open_session(url) as session:
        with pytest.raises(TypeError, match=r"text must be str, not (bytes|int|dict)"):
            await samples_of(session.speak(text))
        with pytest.raises(TypeError, match="text must be str, not NoneType"):
            await session.speak().send(None)


async def test_a_source_that_is_cancelled_by_its_own_task_is_raised_to_the_listener_and_cancels() -> None:
    async def deltas():
        yield "Hello"
        model = asyncio.get_running_loop().create_future()
        model.cancel()
        yield await model

    voice = Voice()
    async with scripted(voice) as (url, _), open_session(url) as session:
        context = session.speak(deltas(), context_id="c1")
        with pytest.raises(RuntimeError, match="the iteration of the text was cancelled"):
            await asyncio.wait_for(samples_of(context), 20)
        await asyncio.wait_for(context._settled.wait(), 20)
        assert voice.cancelled == {"c1"}


# ---- lost connections ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [(1,), (7,), (20,), (5, 5, 5)])
async def test_a_cut_connection_is_resumed_and_nothing_is_lost_or_doubled(cuts: tuple[int, ...]) -> None:
    voice = Voice(num_frames=20, cuts=cuts)
    async with scripted(voice) as (url, _), open_session(url) as session:
        samples = await asyncio.wait_for(samples_of(session.speak("Hello.", context_id="c1")), 10)
        assert np.array_equal(samples, whole_ramp(20))
        assert voice.num_resumes == len(cuts)
        assert voice.texts == {"c1": "Hello."}


async def test_text_added_while_disconnected_is_sent_after_the_resume_from_where_the_server_stopped() -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.cut()

    async def second(connection: Connection) -> None:
        resume = await connection.read()
        assert resume == {"type": "session.resume", "session_id": "s1", "contexts": {"c1": 0}}
        await asyncio.sleep(0.05)
        state = {"state": "open", "number": 1, "received_chars": 3, "ended": False, "num_flushes": 0}
        await connection.send("session.resumed", session_id="s1", contexts=[{"context_id": "c1", **state}])
        await connection.read("end")
        await connection.audio(1, 0)
        await connection.done("c1", 2, 1)

    async with scripted(first, second) as (url, connections), open_session(url) as session:
        context = session.speak(context_id="c1")
        await context.send("One two ")
        while len(connections) < 2:
            await asyncio.sleep(0.005)
        await context.flush()
        await context.send("three.")
        await context.end()
        await samples_of(context)
        said = [m for m in connections[1].received[1:] if m["type"] != "playback"]
        assert [(m["type"], m.get("text")) for m in said] == [
            ("text", " two "),
            ("flush", None),
            ("text", "three."),
            ("end", None),
        ]


async def test_a_cancel_while_the_line_is_down_is_said_when_it_is_back() -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.audio(1, 0)
        await asyncio.sleep(0.02)
        await connection.cut()

    async def second(connection: Connection) -> None:
        await connection.read("session.resume")
        await asyncio.sleep(0.1)
        state = {"state": "open", "number": 1, "received_chars": 6, "ended": True, "num_flushes": 0}
        await connection.send("session.resumed", session_id="s1", contexts=[{"context_id": "c1", **state}])
        await connection.audio(2, 1)
        await connection.read("cancel")
        await connection.cancelled("c1", 3, "Hel", 20.0)

    async with scripted(first, second) as (url, connections), open_session(url) as session:
        context = session.speak("Hello.", context_id="c1")
        await anext(aiter(context))
        while len(connections) < 2:
            await asyncio.sleep(0.005)
        assert await context.cancel() == Spoken(20.0, "Hel", 3)
        assert [packet async for packet in context] == []


async def test_a_forgotten_session_goes_on_in_a_new_one() -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.accept("old")
        await connection.audio(1, 0)
        await asyncio.sleep(0.02)
        await connection.cut()

    voice = Voice(num_frames=2)

    async def second(connection: Connection) -> None:
        await connection.read("session.resume")
        await connection.send("error", code="session_not_found", message="gone", retryable=False)
        await voice(connection)

    async with scripted(first, second) as (url, _), open_session(url) as session:
        old = session.speak("Hello.", context_id="old")
        received = aiter(old)
        await anext(received)
        new = session.speak("Again.", context_id="new")
        assert np.array_equal(await samples_of(new), whole_ramp(2))
        rest = [packet async for packet in received]
        assert [packet.start_ms for packet in rest] == [20.0, 40.0]  # behind what came of the first session
        assert old.done is not None
        assert old.done.audio_ms == 60.0
        assert voice.texts == {"old": "Hello.", "new": "Again."}


async def test_lost_messages_are_a_typed_gap() -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.cut()

    async def second(connection: Connection) -> None:
        await connection.read("session.resume")
        state = {"state": "lost", "number": 1, "received_chars": 6, "ended": True, "num_flushes": 0}
        await connection.send("session.resumed", session_id="s1", contexts=[{"context_id": "c1", **state}])

    async with scripted(first, second) as (url, _), open_session(url) as session:
        with pytest.raises(client.ResumeGap):
            await samples_of(session.speak("Hello.", context_id="c1"))


async def test_a_server_that_stays_away_is_a_typed_error_for_old_and_new_contexts() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin(resume_window_s=1.0)
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.audio(1, 0)
        connection.socket.server.close(close_connections=False)
        await asyncio.sleep(0.05)
        await connection.cut()

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak("Hello.", context_id="c1")
        received = aiter(context)
        await anext(received)
        with pytest.raises(client.ConnectionLost):
            await asyncio.wait_for(anext(received), 20)
        with pytest.raises(client.ConnectionLost):
            session.speak("More.")
        assert (await context.cancel()).played_ms == 20.0


async def test_a_draining_server_is_followed_by_a_new_session() -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        await connection.socket.close(1001, "draining")

    voice = Voice(num_frames=2)
    async with scripted(first, voice) as (url, connections), open_session(url) as session:
        await asyncio.sleep(0.1)
        assert np.array_equal(await samples_of(session.speak("Hello.")), whole_ramp(2))
        assert connections[1].received[0]["type"] == "session.start"


async def test_reconnects_to_a_server_that_closes_each_connection_back_off_and_end() -> None:
    async def drop(connection: Connection) -> None:
        await connection.read()
        await connection.started(resume_window_s=1.0)
        await connection.cut()

    async def first(connection: Connection) -> None:
        await connection.begin(resume_window_s=1.0)
        await connection.read("text")
        await connection.cut()

    async with scripted(first, drop) as (url, connections), open_session(url) as session:
        context = session.speak("Hello.", context_id="c1")
        with pytest.raises(client.ConnectionLost):
            await asyncio.wait_for(samples_of(context), 20)
        assert 2 <= len(connections) <= 8  # within the server's window of a second, at 0, 0.1, 0.3, 0.7 s or so


async def test_each_loss_has_a_window_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_tts_client.link.LASTING_S", 0.1)
    voice = Voice(num_frames=2)
    async with scripted(voice) as (url, connections), open_session(url) as session:
        await connections[0].cut()
        await until(lambda: len(connections) == 2 and connections[1].received)
        await asyncio.sleep(0.2)  # it has lasted
        session._link._lost_at -= 100.0  # longer ago than the server's window
        await connections[1].cut()
        assert len(await asyncio.wait_for(samples_of(session.speak("Hello.")), 20)) == 320
        assert len(connections) == 3


async def test_a_server_that_is_silent_when_the_connection_is_back_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.cut()

    async def silent(connection: Connection) -> None:
        await connection.read("session.resume")

    voice = Voice(num_frames=2)
    async with scripted(first, silent, voice) as (url, connections):
        async with open_session(url) as session:
            hasty = dataclasses.replace(session._link._endpoint, open_timeout_s=0.2)  # the first answer may take longer
            monkeypatch.setattr(session._link, "_endpoint", hasty)
            assert len(await asyncio.wait_for(samples_of(session.speak("Hello.")), 20)) == 320
        assert len(connections) >= 3  # on a busy machine one that is not silent may be too slow, too


# ---- errors ----------------------------------------------------------------------------------------------------------


async def test_a_failed_context_raises_after_the_audio_that_came() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.audio(1, 0)
        error = {"code": "engine_lost", "message": "the worker died", "retryable": True}
        heard = {"audio_ms": 20.0, "spoken_text": "Hel", "spoken_chars": 3}
        await connection.send("context.failed", context_id="c1", sequence=2, **error, **heard)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak("Hello.", context_id="c1")
        received = aiter(context)
        await anext(received)
        with pytest.raises(client.EngineLost) as caught:
            await anext(received)
        assert (caught.value.code, caught.value.retryable) == ("engine_lost", True)
        assert context.spoken == Spoken(20.0, "Hel", 3)


async def test_a_context_that_is_not_accepted_fails_with_the_reason() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.send(
            "error", code="voice_not_found", message="no", retryable=False, context_id="c1", field="voice"
        )

    async with scripted(script) as (url, _), open_session(url) as session:
        with pytest.raises(client.VoiceNotFound) as caught:
            await samples_of(session.speak("Hello.", context_id="c1", voice="nobody"))
        assert caught.value.field == "voice"


async def test_a_refused_piece_is_raised_by_the_next_call_and_the_context_goes_on() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.send(
            "error", code="text_too_long", message="no", retryable=False, context_id="c1", field="text"
        )
        await connection.read("end")
        await connection.audio(1, 0)
        await connection.done("c1", 2, 1)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak(context_id="c1")
        await context.send("far too long")
        await until(lambda: context._refusal is not None)
        with pytest.raises(client.TextTooLong):
            await context.send("more")
        await context.end()
        assert len(await samples_of(context)) == 160


async def test_the_end_that_raises_a_refusal_ends_the_text() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.send("error", code="rate_limited", message="no", retryable=True, context_id="c1", span=[7, 12])
        await connection.read("end")
        await connection.audio(1, 0)
        await connection.done("c1", 2, 1)

    async with scripted(script) as (url, _), open_session(url) as session:
        context = session.speak(context_id="c1")
        await context.send("Hello, ")
        await context.send("there")
        while context._refusal is None:
            await asyncio.sleep(0.01)
        with pytest.raises(client.RateLimited):
            await context.end()
        assert len(await asyncio.wait_for(samples_of(context), 20)) == 160


async def test_a_text_longer_than_the_server_allows_is_told_at_once_and_not_sent() -> None:
    voice = Voice(num_frames=1)
    async with scripted(voice) as (url, connections), open_session(url) as session:
        session.limits["max_text_chars"] = 10
        with pytest.raises(client.TextTooLong, match="up to 10 characters"):
            session.speak("far too long a text")
        context = session.speak(context_id="c1")
        await context.send("it fits")
        with pytest.raises(client.TextTooLong):
            await context.send("no more")
        await context.end()
        assert len(await samples_of(context)) == 160
        assert [m["text"] for m in connections[0].received if m["type"] == "text"] == ["it fits"]


async def test_a_source_that_is_too_long_is_spoken_as_far_as_it_was_taken() -> None:
    def pieces():
        while True:
            yield "four"

    voice = Voice(num_frames=1)
    async with scripted(voice) as (url, _), open_session(url) as session:
        session.limits["max_text_chars"] = 10
        context = session.speak(pieces(), context_id="c1")
        received = aiter(context)
        assert len((await asyncio.wait_for(anext(received), 20)).payload) == 320
        with pytest.raises(client.TextTooLong):
            await asyncio.wait_for(anext(received), 20)
        assert voice.texts == {"c1": "fourfour"}


@pytest.mark.parametrize(
    "options",
    [{"params": {"cfg": float("nan")}}, {"params": {"steps": np.int64(4)}}, {"voice": "\ud800"}],
    ids=["nan", "numpy", "surrogate"],
)
async def test_what_json_cannot_carry_is_refused_where_it_is_given(options: dict) -> None:
    with pytest.raises(ValueError, match="JSON"):
        connect("ws://127.0.0.1:9", **options)
    async with scripted(Voice(num_frames=1)) as (url, connections), open_session(url) as session:
        with pytest.raises(ValueError, match="JSON"):
            session.speak("Hello.", **options)
        with pytest.raises(ValueError, match="context_id"):
            session.speak("Hello.", context_id="\ud800")
        assert len(await samples_of(session.speak("Hello."))) == 160
        assert len(connections) == 1


async def test_playback_is_a_finite_number() -> None:
    async with scripted(Voice(num_frames=1)) as (url, connections), open_session(url) as session:
        context = session.speak("Hello.", context_id="c1", playback="manual")
        for played_ms in (float("nan"), float("inf"), -float("inf")):
            with pytest.raises(ValueError, match="played_ms"):
                session.played(context, played_ms)
        session.played(context, np.float32(7))
        await asyncio.wait_for(context.cancel(), 20)
        reports = [message["played_ms"] for message in connections[0].received if message["type"] == "playback"]
        assert set(reports) == {7.0}


@pytest.mark.parametrize("window", ['"abc"', "[]", "1" + "0" * 400, "NaN"])
async def test_a_window_that_is_no_number_is_a_typed_error(window: str) -> None:
    async def script(connection: Connection) -> None:
        await connection.read("session.start")
        started = '{"type":"session.started","session_id":"s1","model":"m","voice":"v","limits":{"resume_window_s":%s}}'
        await connection.socket.send(started % window)

    async with scripted(script) as (url, _):
        with pytest.raises(client.ProtocolError, match="resume_window_s"):
            async with open_session(url):
                pass


async def test_a_fault_of_the_client_itself_ends_calls_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(Voice()) as (url, _), open_session(url) as session:

        def broken(*_: object) -> None:
            raise LookupError("a fault")

        monkeypatch.setattr(session, "_on_context_event", broken)
        with pytest.raises(client.RealtimeTTSError, match="a fault"):
            await asyncio.wait_for(samples_of(session.speak("Hello.")), 20)
        assert session.closed


@pytest.mark.parametrize("fault", ["surrogate", "lookup"])
async def test_a_message_that_cannot_be_written_ends_calls_that_wait(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted(Voice()) as (url, connections), open_session(url) as session:
        session.limits["resume_window_s"] = 1.0
        take = session._protocol.take_outgoing

        def broken() -> str | None:
            if take() is None:
                return None
            if fault == "lookup":
                raise LookupError("a fault")
            return "\ud800"

        monkeypatch.setattr(session._protocol, "take_outgoing", broken)
        with pytest.raises(client.RealtimeTTSError):
            await asyncio.wait_for(samples_of(session.speak("Hello.")), 20)
        assert len(connections) <= 8


def repr_of_ends(frame: str | bytes) -> str:
    return f"{frame[:20]!r}…{frame[-20:]!r}"


@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "[]",
        '{"type": 5}',
        '{"type":"context.started","context_id":"c1","sequence":0,"number":-1,"voice":"v","seed":1,"audio":{}}',
        '{"type":"context.started","context_id":"c1","sequence":0,"number":1,"voice":"v","seed":1,"audio":{"codec":"x"}}',
        *(
            '{"type":"context.started","context_id":"c1","sequence":0,"number":1,"voice":"v","seed":1,'
            f'"audio":{{"codec":"mulaw","sample_rate":{rate},"frame_ms":{frame_ms}}}}}'
            for rate, frame_ms in (("8", "20"), ("8000.5", "20"), ("Infinity", "20"), ("true", "20"), ("8000", "1e9"))
        ),
        '{"type":"context.done","context_id":"c1","sequence":3,"audio_ms":1,"characters":1}',
        '{"type":"error","code":"x","message":"x","retry_after_s":1' + "0" * 400 + "}",
        '{"type":"words","context_id":"c1","sequence":0,"words":[5]}',
        '{"type":"error","code":5,"message":"x"}',
        "[" * 100_000,
        b"",
        b"\x01\x01",
        b"\x02" + HEADER.pack(1, 1, 0, 1, 1, 0)[1:] + b"x",
        HEADER.pack(1, 1, 0, 1, 1, 0),
    ],
    ids=repr_of_ends,
)
async def test_malformed_frames_end_the_session_with_a_typed_error(frame: str | bytes) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.socket.send(frame)

    async with scripted(script) as (url, connections), open_session(url) as session:
        with pytest.raises(client.ProtocolError):
            await asyncio.wait_for(samples_of(session.speak("Hello.", context_id="c1")), 20)
        with pytest.raises(client.ProtocolError):
            session.speak("more")
        await asyncio.sleep(0.02)
        assert connections[0].socket.close_code == 1002


async def test_a_missing_packet_is_noticed() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.accept((await connection.read("text"))["context_id"])
        await connection.audio(1, 0)
        await connection.audio(3, 2)

    async with scripted(script) as (url, _), open_session(url) as session:
        with pytest.raises(client.ProtocolError, match="missing"):
            await samples_of(session.speak("Hello.", context_id="c1"))


async def test_a_close_for_cause_is_not_tried_again() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        await connection.read("text")
        await connection.socket.close(1008, "slow_consumer")

    async with scripted(script) as (url, connections), open_session(url) as session:
        with pytest.raises(client.SlowConsumer):
            await samples_of(session.speak("Hello."))
        assert len(connections) == 1


async def test_a_session_that_is_refused_raises_on_entering() -> None:
    async def script(connection: Connection) -> None:
        await connection.read("session.start")
        await connection.send("error", code="voice_not_found", message="no such voice", retryable=False, field="voice")

    async with scripted(script) as (url, _):
        with pytest.raises(client.VoiceNotFound, match="no such voice"):
            async with open_session(url, voice="nobody"):
                pass


async def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Endpoint.open
    # The option limits the handshake as well, which may take longer on a busy machine.
    monkeypatch.setattr(Endpoint, "open", lambda endpoint: opened(dataclasses.replace(endpoint, open_timeout_s=20.0)))

    async def script(connection: Connection) -> None:
        await connection.read("session.start")

    async with scripted(script) as (url, _):
        with pytest.raises(client.ConnectionFailed, match="did not answer"):
            async with open_session(url, open_timeout_s=0.1):
                pass


async def test_an_unreachable_server_is_a_typed_error() -> None:
    with pytest.raises(client.ConnectionFailed, match="no connection"):
        async with connect("ws://127.0.0.1:9"):
            pass


# ---- pace ------------------------------------------------------------------------------------------------------------


async def test_a_program_that_does_not_read_stops_the_socket_rather_than_filling_memory() -> None:
    voice = Voice(num_frames=5_000)  # 100 s
    async with scripted(voice) as (url, _), open_session(url, playback="manual") as session:
        context = session.speak("Hello.", context_id="c1")
        await until(lambda: context.queued_ms > 9_000)
        await asyncio.sleep(0.3)
        assert context.queued_ms < 11_000
        assert np.array_equal(await samples_of(context), whole_ramp(5_000))


async def test_one_context_that_is_cancelled_unread_frees_the_others() -> None:
    voice = Voice(num_frames=1_000)
    async with scripted(voice) as (url, _), open_session(url, playback="manual") as session:
        unread = session.speak("Hello.")
        await asyncio.sleep(0.2)
        other = session.speak("Other.")
        unread.cancel_nowait()
        assert len(await asyncio.wait_for(samples_of(other), 20)) == 160_000


async def test_playback_is_reported_by_itself() -> None:
    async with scripted(Voice(num_frames=100)) as (url, connections), open_session(url) as session:
        await samples_of(session.speak("Hello.", context_id="c1"))

        def reported() -> list[float]:
            return [m["played_ms"] for m in connections[0].received if m["type"] == "playback"]

        await until(lambda: bool(reported()) and reported()[-1] == 2_000.0)
        reports = reported()
        assert reports == sorted(reports)
        assert reports[0] == 500.0


async def test_a_session_closes_without_waiting_for_what_is_open() -> None:
    async with scripted(Voice()) as (url, connections):
        async with open_session(url) as session:
            context = session.speak(context_id="c1")
            await context.send("Hello")
        with pytest.raises(client.SessionClosed):
            await anext(aiter(context))
        with pytest.raises(client.SessionClosed):
            session.speak("more")
        await asyncio.sleep(0.02)
        assert connections[0].socket.close_code == 1000


async def test_nothing_stays_behind() -> None:
    before = asyncio.all_tasks()
    async with scripted(Voice(cuts=(3,))) as (url, _), open_session(url) as session:
        await samples_of(session.speak(["Hello.", "there"]))
    while not asyncio.all_tasks() <= before:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("inside_a_loop", [False, True])
async def test_synthesize_blocks_and_returns_everything(inside_a_loop: bool) -> None:
    async def as_in_a_notebook(url: str) -> tuple[np.ndarray, int]:
        return client.synthesize(url, "Hello.", sample_rate=8000)

    async with scripted(Voice(num_frames=5)) as (url, _):
        if inside_a_loop:
            samples, rate = await asyncio.to_thread(asyncio.run, as_in_a_notebook(url))
        else:
            samples, rate = await asyncio.to_thread(client.synthesize, url, "Hello.", sample_rate=8000)
        assert rate == 8000
        assert np.array_equal(samples, whole_ramp(5).astype(np.float32) / 32_768)


async def test_what_goes_wrong_in_a_notebook_is_raised_there() -> None:
    async def as_in_a_notebook() -> None:
        client.synthesize("ws://127.0.0.1:9", "Hello.")

    with pytest.raises(client.ConnectionFailed):
        await asyncio.to_thread(asyncio.run, as_in_a_notebook())
