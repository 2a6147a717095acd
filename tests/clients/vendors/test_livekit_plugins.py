"""What every one of LiveKit's plugins that stream to other services does against this server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import livekit_turns
import pytest
from livekit.agents import APIError, APIStatusError, inference, tts
from livekit.plugins import cartesia, deepgram, elevenlabs
from vendor_gateways import API_KEY, gateway_figure, until_working

TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
TEXT = "".join(TOKENS)
WORDS = TEXT.split()
LONG = "This one goes on and on, until somebody breaks it off. " * 8
LAST_S = 2.5  # so long the fake voice speaks TEXT, and at least
INFERENCE = {"model": "cartesia/sonic-3", "voice": "rms", "api_secret": "s" * 32}
VOICE = {"voice_id": "21m00Tcm4TlvDq8ikWAM"}
PLUGINS: dict[str, tuple[type[Any], str, dict[str, Any]]] = {
    "cartesia": (cartesia.TTS, "", {}),
    "deepgram": (deepgram.TTS, "/v1/speak", {}),
    "flux": (deepgram.TTSv2, "/v2/speak", {}),
    "inference": (inference.TTS, "/v1", INFERENCE),
    "inference with words": (
        inference.TTS,
        "/v1",
        INFERENCE | {"extra_kwargs": {"add_timestamps": True}, "sample_rate": 16_000},
    ),
    "elevenlabs": (elevenlabs.TTS, "/v1", VOICE),  # by default in MP3
    "elevenlabs by words": (elevenlabs.TTS, "/v1", VOICE | {"auto_mode": False}),
    "elevenlabs pcm": (elevenlabs.TTS, "/v1", VOICE | {"encoding": "pcm_24000"}),
    "elevenlabs opus": (elevenlabs.TTS, "/v1", VOICE | {"encoding": "opus_48000_64"}),
}
WITHOUT_WORDS = ("deepgram", "flux", "inference")
SERVICES = ["cartesia", "deepgram", "flux", "inference", "elevenlabs"]


@contextlib.asynccontextmanager
async def plugin(name: str, url: str, key: str = "any") -> AsyncIterator[tts.TTS]:
    made, path, options = PLUGINS[name]
    async with livekit_turns.plugin(made, base_url=url + path, api_key=key, **options) as opened:
        yield opened


@pytest.mark.parametrize("name", PLUGINS)
async def test_deltas_are_spoken_with_the_next_turn_on_the_same_socket(fake_gateway: str, name: str) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with plugin(name, fake_gateway) as made:
        for _ in range(2):
            heard = await livekit_turns.speak(made, TOKENS, livekit_turns.TOKEN_EVERY_S)
            assert heard.seconds >= LAST_S
            assert "".join(heard.words).split() == ([] if name in WITHOUT_WORDS else WORDS)
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("name", [name for name in SERVICES if name != "elevenlabs"])
async def test_an_interruption_frees_the_engine_with_the_next_turn(fake_gateway: str, name: str, ended: bool) -> None:
    """They send nothing that says so, but close the socket when they want another one."""
    async with plugin(name, fake_gateway) as made:
        async with livekit_turns.interrupted(made, LONG, ended):
            await until_working(fake_gateway, True)
        assert 0 < (await livekit_turns.speak(made, ["Next."])).seconds < 0.7
        await until_working(fake_gateway, False)


@pytest.mark.parametrize("name", SERVICES)
async def test_turns_overlap(fake_gateway: str, name: str) -> None:
    async with plugin(name, fake_gateway) as made:
        heard = await asyncio.gather(*(livekit_turns.speak(made, TOKENS) for _ in range(6)))
    assert min(turn.seconds for turn in heard) >= LAST_S
    assert ["".join(turn.words).split() for turn in heard] == [[] if name in WITHOUT_WORDS else WORDS] * 6


@pytest.mark.parametrize("name", SERVICES)
async def test_whole_texts_are_spoken(fake_gateway: str, name: str) -> None:
    async with plugin(name, fake_gateway) as made:
        heard = await asyncio.gather(*(livekit_turns.whole(made, TEXT) for _ in range(2)))
    assert min(turn.seconds for turn in heard) >= LAST_S


@pytest.mark.parametrize("name", SERVICES)
async def test_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str, name: str) -> None:
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with plugin(name, url, "wrong") as made:
            with pytest.raises(APIStatusError) as streaming:
                await livekit_turns.speak(made, TOKENS)
            with pytest.raises(APIStatusError) as whole:
                await livekit_turns.whole(made, TEXT)
        assert (streaming.value.status_code, whole.value.status_code) == (status, status)
    async with plugin(name, keyed_gateway, API_KEY) as made:
        assert (await livekit_turns.speak(made, TOKENS)).seconds >= LAST_S


async def test_a_text_that_inference_refuses_is_an_error_of_its_turn(fake_gateway: str) -> None:
    async with plugin("inference", fake_gateway) as made:
        with pytest.raises(APIError, match="text_too_long"):
            await livekit_turns.speak(made, ["Hi there. " * 3_000])
        assert (await livekit_turns.speak(made, ["Next."])).seconds > 0


async def test_a_speed_of_inference_may_have_a_name(fake_gateway: str) -> None:
    seconds = []
    for speed in ("slow", "normal", "fast"):
        options = {"base_url": f"{fake_gateway}/v1", "api_key": "any", **INFERENCE, "extra_kwargs": {"speed": speed}}
        async with livekit_turns.plugin(inference.TTS, **options) as made:
            seconds.append((await livekit_turns.speak(made, TOKENS)).seconds)
    slow, normal, fast = seconds
    assert slow > 1.1 * normal > 1.2 * fast
