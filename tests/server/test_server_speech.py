"""Text over a real socket becomes packets."""

from __future__ import annotations

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
