"""Text without anything to speak, in the clients that take an answer without audio for a failure."""

from __future__ import annotations

from typing import Any

import livekit_turns
import pytest
from livekit.agents import tts as livekit_tts
from livekit.plugins import cartesia, deepgram, elevenlabs, openai

NOTHING = ("...", "\U0001f600", "***", "\u4f60\u597d")
PLUGINS: dict[str, tuple[type[Any], str]] = {
    "cartesia": (cartesia.TTS, ""),
    "deepgram": (deepgram.TTS, "/v1/speak"),
    "elevenlabs": (elevenlabs.TTS, "/v1"),
}


@pytest.mark.parametrize("text", NOTHING)
@pytest.mark.parametrize("name", PLUGINS)
async def test_livekit_hears_silence_and_then_the_next_turn(fake_gateway: str, name: str, text: str) -> None:
    made, path = PLUGINS[name]
    async with livekit_turns.plugin(made, api_key="any", base_url=fake_gateway + path) as plugin:
        assert 0.1 <= (await livekit_turns.speak(plugin, [text])).seconds <= 0.5
        assert 0.1 <= (await livekit_turns.whole(plugin, text)).seconds <= 0.5
        assert (await livekit_turns.speak(plugin, ["Hello ", "there."])).seconds > 0.5


@pytest.mark.parametrize("text", NOTHING)
async def test_livekit_hears_silence_from_openai(fake_gateway: str, text: str) -> None:
    plugin = openai.TTS(base_url=f"{fake_gateway}/v1", api_key="any")
    assert 0.1 <= (await livekit_turns.whole(plugin, text)).seconds <= 0.5
    adapted = livekit_tts.StreamAdapter(tts=plugin)
    assert 0.1 <= (await livekit_turns.speak(adapted, [text])).seconds <= 0.5
    await plugin.aclose()
