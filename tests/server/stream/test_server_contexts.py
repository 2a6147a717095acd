"""Sessions over a real socket: many contexts, flush, end, cancel, resume."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable

import pytest
from gateway_harness import GatewayHarness
from stream_client import StreamClient, open_stream

from realtime_tts.server.stream.live_session import LiveSession

PCM = {"codec": "pcm_s16le", "sample_rate": 16_000}
LONG = "This sentence goes on and on so that somebody can interrupt it. " * 8


async def pcm_of(url: str, deltas: list[str]) -> bytes:
    async with open_stream(url) as client:
        for delta in deltas:
            await client.send("text", context_id="c", text=delta, audio=PCM, params={"seed": 3})
        await client.send("end", context_id="c")
        await client.until_terminal("c", 20)
        return client.contexts["c"].audio


async def test_a_session_is_announced_with_its_limits(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        assert client.socket.subprotocol == "realtime-tts.v1"
        await client.send("session.start", voice="rms", audio={"codec": "mulaw", "sample_rate": 8000})
        started = await client.until("session.started")
    assert started["model"] == "fake-voice"
    assert started["voice"] == "rms"
    assert started["audio"]["codec"] == "mulaw"
    assert started["limits"]["max_contexts"] == 16


async def test_any_split_of_the_text_gives_the_same_samples(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway(stall_flush_s=60.0)  # on a busy machine a second may pass between two characters
    text = "First one. Then, after a comma, 3.14 and Mr. Smith's second sentence! Done?"
    whole = await pcm_of(gateway.ws_url, [text])
    cuts = sorted(random.Random(7).sample(range(1, len(text)), 9))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert len(whole) > 16_000
    assert await pcm_of(gateway.ws_url, list(text)) == whole
    assert await pcm_of(gateway.ws_url, pieces) == whole


async def test_the_samples_are_the_models_with_none_lost_or_doubled(gateway: GatewayHarness) -> None:
    pcm = await pcm_of(gateway.ws_url, ["Hello there."])
    samples = memoryview(pcm).cast("h")
    expected = [k % 2000 - 1000 + 3000 for k in range(3 * 2560)]  # the fake worker's ramp, 12 characters
    assert list(samples[: len(expected)]) == expected


@pytest.mark.parametrize("codec", ["opus", "pcm_s16le", "mulaw"])
@pytest.mark.parametrize("frame_ms", [10, 20, 40, 60])
async def test_every_codec_and_frame_size_is_contiguous(gateway: GatewayHarness, codec: str, frame_ms: int) -> None:
    rate = 48_000 if codec == "opus" else 8_000
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c", "Hello there, you.", audio={"codec": codec, "sample_rate": rate, "frame_ms": frame_ms})
        done = await client.until_terminal("c")
        packets = [m for m in client.messages if m["type"] == "audio"]
    assert [m["pts"] for m in packets] == [i * rate * frame_ms // 1000 for i in range(len(packets))]
    assert len(packets) == done["audio_ms"] / frame_ms


async def test_sixteen_contexts_speak_side_by_side(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        for index in range(16):
            await client.speak(f"c{index}", f"This is number {index}.", audio=PCM, params={"seed": index})
        for index in range(16):
            assert (await client.until_terminal(f"c{index}"))["type"] == "context.done"
    for index in range(16):
        first = memoryview(client.contexts[f"c{index}"].audio).cast("h")[0]
        assert first == -1000 + 1000 * (index % 8)


async def test_flush_speaks_what_is_buffered(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="Hi")
        await client.send("flush", context_id="c", flush_id="f1")
        flushed = await client.until("flushed")
        assert flushed["flush_id"] == "f1"
        assert flushed["audio_ms"] > 0
        await client.send("end", context_id="c")
        assert (await client.until_terminal("c"))["type"] == "context.done"


async def test_text_that_stalls_is_spoken_after_a_while(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="Let me think, well ")
        await client.until("audio")


async def test_cancel_stops_the_audio_and_tells_what_was_heard(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=LONG)
        for _ in range(10):
            await client.until("audio")
        begun_s = time.monotonic()
        await client.send("playback", context_id="c", played_ms=150)
        await client.send("cancel", context_id="c")
        cancelled = await client.until_terminal("c")
        elapsed_ms = 1000 * (time.monotonic() - begun_s)
        assert cancelled["type"] == "context.cancelled"
        assert cancelled["spoken_text"] == LONG[: cancelled["spoken_chars"]]
        assert 150 <= cancelled["played_ms"] <= 150 + elapsed_ms
        # Nothing of it follows (the client checks that), and the socket speaks on.
        await client.speak("d", "Next.")
        await client.until_terminal("d")


async def test_cancel_without_an_id_ends_everything(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        for name in "abc":
            await client.send("text", context_id=name, text=LONG)
        await client.until("audio")
        await client.send("cancel")
        await client.until(lambda m: m["type"] == "cancel.acknowledged" and m["state"] == "all")
    assert {log.terminal["type"] for log in client.contexts.values() if log.terminal} == {"context.cancelled"}


async def test_cancel_of_an_unknown_context_is_harmless(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("cancel", context_id="nobody")
        assert (await client.until("cancel.acknowledged"))["state"] == "unknown"


async def test_cancel_frees_the_engine(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="command never. ")
        await client.until("audio")
        assert gateway.usage().requests == 1
        await client.send("cancel")
        await client.until_terminal("c")
        assert gateway.usage().requests == 0


async def test_audio_runs_only_a_few_seconds_ahead_of_playback(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        loop = asyncio.get_running_loop()
        begun = loop.time()  # before the server's clock begins, however late this process reads the first packet
        await client.send("text", context_id="c", text="command never. ", audio=PCM)
        await client.until("audio")
        while len(client.contexts["c"].audio) < 5 * 32_000:
            await client.until("audio")
            # 3 s is the lead allowed; the rest covers the packets that were on their way.
            assert len(client.contexts["c"].audio) / 32_000 <= loop.time() - begun + 3.2
        await client.send("cancel")
        await client.until_terminal("c")


async def drop(client: StreamClient) -> None:
    """Lose the connection without a close."""
    client.socket.transport.abort()
    await client.socket.wait_closed()


async def test_a_message_on_its_way_in_a_connection_that_was_replaced_opens_no_session(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_looked_up, goes_on = threading.Event(), asyncio.Event()

    async def look_up(name: str | None, tenant: str = "") -> None:
        is_looked_up.set()
        await goes_on.wait()

    baseline, num_opened = gateway.usage(), gateway.metric("sessions_opened_total")
    async with open_stream(gateway.ws_url) as old:
        await old.send("session.start")
        session_id = (await old.until("session.started"))["session_id"]
        monkeypatch.setattr(gateway.gateway.voices, "look_up", look_up)
        await old.send("text", context_id="c", text="Hello.", voice="made-by-another-process")
        assert await asyncio.to_thread(is_looked_up.wait, 20)
        async with open_stream(f"{gateway.ws_url}?resume={session_id}") as new:
            await new.send("session.resume", session_id=session_id, contexts={})
            await new.until("session.resumed")
            assert await old.until_closed() == (1008, "resumed_elsewhere")
            gateway.call(goes_on.set)
    assert await asyncio.to_thread(gateway.settle, baseline) == baseline
    assert gateway.metric("sessions_opened_total") == num_opened + 1


async def test_a_client_that_vanishes_while_a_voice_is_looked_up_costs_no_time(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_looked_up, goes_on = threading.Event(), asyncio.Event()
    num_advances = 0
    advance = LiveSession.advance

    async def look_up(name: str | None, tenant: str = "") -> None:
        is_looked_up.set()
        await goes_on.wait()

    def counted(live: LiveSession) -> None:
        nonlocal num_advances
        num_advances += 1
        advance(live)

    async def count_while_messages_are_due() -> int:
        [live] = gateway.gateway.sessions.values()
        async with asyncio.timeout(20):
            while not live._connection._socket.is_lost or (live.session.next_deadline() or 0) > time.monotonic():
                await asyncio.sleep(0.01)
        before = num_advances
        for _ in range(1000):
            await asyncio.sleep(0)
        return num_advances - before

    async with open_stream(gateway.ws_url) as client:
        await client.speak("c", LONG)
        await client.until("audio")
        monkeypatch.setattr(gateway.gateway.voices, "look_up", look_up)
        monkeypatch.setattr(LiveSession, "advance", counted)
        await client.send("text", context_id="d", text="Hello.", voice="made-by-another-process")
        assert await asyncio.to_thread(is_looked_up.wait, 20)
        client.socket.transport.abort()
        assert await asyncio.to_thread(gateway.run, count_while_messages_are_due()) < 500
        gateway.call(goes_on.set)
    session_id = next(message["session_id"] for message in client.messages if message["type"] == "session.started")
    async with open_stream(gateway.ws_url) as again:  # a clean close ends the session
        await again.send("session.resume", session_id=session_id, contexts={})
        await again.until("session.resumed")


async def test_a_lost_connection_is_resumed_without_loss(gateway: GatewayHarness) -> None:
    text = "One two three four five. Six seven eight nine ten. Eleven twelve thirteen fourteen."
    whole = await pcm_of(gateway.ws_url, [text])
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start")
        session_id = (await client.until("session.started"))["session_id"]
        await client.speak("c", text, audio=PCM, params={"seed": 3})
        for _ in range(5):
            await client.until("audio")
        await drop(client)
    log = client.contexts["c"]
    async with open_stream(gateway.ws_url) as again:
        again.contexts["c"] = log
        await again.send("session.resume", session_id=session_id, contexts={"c": log.next_sequence - 1})
        resumed = await again.until("session.resumed")
        assert resumed["contexts"][0]["state"] == "open"
        await again.until_terminal("c", 20)
    assert log.audio == whole


async def test_a_second_connection_takes_the_session_over(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as first, open_stream(gateway.ws_url) as second:
        await first.send("session.start")
        session_id = (await first.until("session.started"))["session_id"]
        await second.send("session.resume", session_id=session_id, contexts={})
        await second.until("session.resumed")
        assert (await first.until_closed())[0] == 1008
        await second.speak("c", "Hello.")
        await second.until_terminal("c")


async def test_resuming_an_unknown_session_is_a_typed_error(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.resume", session_id="s_nobody", contexts={})
        assert (await client.until("error"))["code"] == "session_not_found"
        await client.speak("c", "Hello.")
        assert (await client.until_terminal("c"))["type"] == "context.done"


async def test_an_open_context_is_never_silent_for_long(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=" ")  # a language model that thinks
        await client.until("keepalive")
        await client.send("cancel")
        await client.until_terminal("c")


@pytest.mark.parametrize(("asked", "got"), [("rms", "rms"), ("zero-shot", "zero-shot"), (None, "slt")], ids=str)
async def test_a_voice_is_what_was_asked_for_and_zero_shot_is_a_choice(
    gateway: GatewayHarness, asked: str | None, got: str
) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c", "Hello.", voice=asked)
        started = await client.until("context.started")
        done = await client.until_terminal("c")
    assert started["voice"] == got
    assert done["type"] == "context.done"
