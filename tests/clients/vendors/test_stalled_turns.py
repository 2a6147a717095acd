"""A language model that stalls for 12 s in mid-turn, which is longer than stock clients wait for a silent server.

All of them at once, so that it takes 12 s and not minutes.
"""

from __future__ import annotations

import asyncio

import livekit_turns
from cartesia import AsyncCartesia
from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Text
from livekit.plugins import cartesia, deepgram
from vendor_services import talking

STALL_S = 12.0
BEFORE, AFTER = "Let me have a look. ", "Here it is."
BOTH_S = 1.7  # so long the fake voice speaks both, and at least


async def livekit_seconds(plugin: type, **options: str) -> float:
    async with livekit_turns.plugin(plugin, api_key="any", **options) as tts:
        return (await livekit_turns.stall(tts, BEFORE, AFTER, STALL_S)).seconds


async def pipecat_seconds(name: str, url: str) -> float:
    async with talking(name, url) as talk:
        await talk.begin()
        await talk.write(BEFORE)
        await asyncio.sleep(STALL_S)
        await talk.write(AFTER)
        await talk.end()
        await talk.until(lambda: talk.seconds >= BOTH_S)
        assert talk.errors == []
        return talk.seconds


async def cartesia_seconds(url: str) -> float:
    """The package's own limit is on the time between two events."""
    client = AsyncCartesia(api_key="any", base_url=url, websocket_base_url=url.replace("http", "ws", 1))
    async with client, client.tts.websocket_connect() as socket:
        raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
        context = socket.context(model_id="sonic-3", voice={"mode": "id", "id": "x"}, output_format=raw, timeout=10)

        async def write() -> None:
            await context.push(BEFORE)
            await asyncio.sleep(STALL_S)
            await context.push(AFTER, continue_=False)

        writing = asyncio.create_task(write())
        num_bytes = sum([len(event.audio) async for event in context.receive() if event.type == "chunk"])
        await writing
    return num_bytes / 48_000


async def deepgram_seconds(url: str) -> float:
    address = url.replace("http", "ws", 1)
    environment = DeepgramClientEnvironment(base=url, production=address, agent=address, agent_rest=url)
    client = AsyncDeepgramClient(api_key="any", environment=environment)
    async with client.speak.v1.connect(model="aura-2-thalia-en", sample_rate=24_000) as socket:
        await socket.send_text(SpeakV1Text(text=BEFORE))
        await asyncio.sleep(STALL_S)
        await socket.send_text(SpeakV1Text(text=AFTER))
        await socket.send_flush()
        num_bytes = 0
        while isinstance(message := await asyncio.wait_for(socket.recv(), 10), bytes) or message.type != "Flushed":
            num_bytes += len(message) if isinstance(message, bytes) else 0
    return num_bytes / 48_000


async def test_every_client_waits_for_a_model_that_stalls(fake_gateway: str) -> None:
    seconds = await asyncio.gather(
        cartesia_seconds(fake_gateway),
        livekit_seconds(cartesia.TTS, base_url=fake_gateway),
        pipecat_seconds("cartesia", fake_gateway),
        deepgram_seconds(fake_gateway),
        livekit_seconds(deepgram.TTS, base_url=fake_gateway + "/v1/speak"),
        pipecat_seconds("deepgram", fake_gateway),
    )
    assert min(seconds) >= BOTH_S
