"""Text over a real socket becomes packets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream


async def test_text_becomes_opus_packets_and_words(gateway: GatewayHarness) -> None:
    text = "Hello there, this is a test. It has two sentences."
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c1", text)
        done = await client.until_terminal("c1")
    assert done["type"] == "context.done"
    log = client.contexts["c1"]
    assert len(log.packets) == -(-int(done["audio_ms"]) // 20)
    assert [word["text"] for word in log.words] == [text[word["start"] : word["end"]] for word in log.words]
    assert done["characters"] == len(text)
    assert {m["timing"] for m in client.messages if m["type"] == "words"} == {"estimated"}


async def test_words_have_the_times_that_the_engine_measures(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway(worker={"text_lag_ms": 100})  # four characters a patch, each reached 100 ms before its end
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c1", "One four abcd of them.")
        await client.until_terminal("c1")
    log = client.contexts["c1"]
    assert {m["timing"] for m in client.messages if m["type"] == "words"} == {"measured"}
    starts = [word["start_ms"] for word in log.words]
    # "four" is reached with the first patch, at 60 ms; a word behind the last point known may be off by its pace.
    assert starts[:2] == [0, 60]
    assert starts[2:] == [pytest.approx(60 + 40 * (char - 4), abs=30) for char in (9, 14, 17)]


async def test_a_pause_is_as_long_as_the_text_says(gateway: GatewayHarness) -> None:
    text = 'Hello there. <break time="320ms"/> How are you? [pause 1s]'
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start", audio={"codec": "pcm_s16le", "sample_rate": 16_000}, params={"seed": 2})
        await client.speak("c", text)
        done = await client.until_terminal("c")
        samples = np.frombuffer(client.contexts["c"].audio, "<i2")
        words = [word for message in client.messages if message["type"] == "words" for word in message["words"]]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (samples == 0).astype(int), [0]))))
    runs = edges[1::2] - edges[::2]
    assert sorted(runs)[-2:] == [320 * 16, 1000 * 16]
    assert done["audio_ms"] == len(samples) / 16
    assert [word["text"] for word in words] == ["Hello", "there.", "How", "are", "you?"]
    assert all(text[word["start"] : word["end"]] == word["text"] for word in words)
    assert words[2]["start_ms"] == 480 + 320  # three patches, and the pause
