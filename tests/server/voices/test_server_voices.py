"""Added voices behind the server: whose they are, and what a session says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from gateway_harness import GatewayHarness
from stream_client import StreamClient, open_stream

from realtime_tts.server.admission.auth import create_key
from realtime_tts.speech.recordings import VoiceRecordings
from realtime_tts.speech.voices import VoiceLabels

TONE = VoiceRecordings(reference=((0.3 * np.sin(np.arange(16000) * 0.1)).astype(np.float32), 16000))


def add_voice(gateway: GatewayHarness, name: str, tenant: str) -> None:
    adding = gateway.gateway.voices.add(VoiceLabels(name), TONE, tenant)
    asyncio.run_coroutine_threadsafe(adding, gateway._loop).result(10)


async def start(client: StreamClient, voice: str) -> str:
    await client.send("session.start", voice=voice)
    return (await client.until(lambda m: m["type"] in ("session.started", "error")))["type"]


async def test_a_keys_voice_speaks_for_that_key_alone(make_gateway: Callable[..., GatewayHarness]) -> None:
    keys = [create_key() for _ in range(2)]
    gateway = make_gateway(strict_ids=True, api_key_hashes=tuple(key_hash for _, key_hash in keys))
    owner, other = ({"authorization": f"Bearer {key}"} for key, _ in keys)
    add_voice(gateway, "mine", gateway.gateway.admission.authenticator.authenticate(owner, {}).tenant)
    async with open_stream(gateway.ws_url, additional_headers=owner) as client:
        assert await start(client, "mine") == "session.started"
        await client.speak("c", "Hello there.")
        assert (await client.until_terminal("c"))["type"] == "context.done"
        assert [m["voice"] for m in client.messages if m["type"] == "context.started"] == ["mine"]
    async with open_stream(gateway.ws_url, additional_headers=other) as client:
        assert await start(client, "mine") == "error"
        assert client.messages[-1]["code"] == "voice_not_found"
        assert "mine" not in client.messages[-1]["message"].removeprefix("unknown voice 'mine'")


async def test_a_voice_removed_under_a_session_fails_its_next_context(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    gateway = make_gateway()
    add_voice(gateway, "mine", "")
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="Hello", voice="mine")
        await client.until("context.started")
        gateway.call(lambda: gateway.gateway.voices.remove("mine"))
        await client.send("end", context_id="c")
        failed = await client.until_terminal("c")
        assert (failed["type"], failed["code"]) == ("context.failed", "voice_not_found")
