"""LiveKit's own client of its inference service, unmodified, against this server."""

from __future__ import annotations

from typing import Any

import livekit_turns
import pytest
from livekit.agents import APIError, APIStatusError
from livekit.agents.inference import TTS
from vendor_gateways import API_KEY, gateway_figure, until_working

SENTENCES = ["Hello there, this is a turn. ", "And one more. "]
LONG = "This one goes on and on, until somebody breaks it off. " * 8
LAST_S = 2.4  # so long the fake voice speaks SENTENCES, and at least


def client(url: str, key: str = "any", **options: Any) -> Any:
    options = {"model": "cartesia/sonic-3", "voice": "rms", **options}
    return livekit_turns.plugin(TTS, base_url=url + "/v1", api_key=key, api_secret="s" * 32, **options)


async def test_turns_on_one_connection_and_whole_texts(fake_gateway: str) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with client(fake_gateway) as tts:
        for _ in range(2):
            assert (await livekit_turns.speak(tts, SENTENCES, livekit_turns.TOKEN_EVERY_S)).seconds >= LAST_S
        assert (await livekit_turns.whole(tts, "".join(SENTENCES))).seconds >= LAST_S
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


async def test_word_times_are_those_of_the_speech(fake_gateway: str) -> None:
    async with client(fake_gateway, extra_kwargs={"add_timestamps": True}, sample_rate=16_000) as tts:
        heard = await livekit_turns.speak(tts, SENTENCES)
    assert "".join(heard.words).split() == "".join(SENTENCES).split()


async def test_a_speed_may_have_a_name(fake_gateway: str) -> None:
    seconds = []
    for speed in ("slow", "normal", "fast"):
        async with client(fake_gateway, extra_kwargs={"speed": speed}) as tts:
            seconds.append((await livekit_turns.speak(tts, SENTENCES)).seconds)
    slow, normal, fast = seconds
    assert slow > 1.1 * normal > 1.2 * fast


@pytest.mark.parametrize("ended", [False, True])
async def test_an_interruption_frees_the_engine_with_the_next_turn(fake_gateway: str, ended: bool) -> None:
    async with client(fake_gateway) as tts:
        async with livekit_turns.interrupted(tts, LONG, ended):
            await until_working(fake_gateway, True)
        assert 0 < (await livekit_turns.speak(tts, ["Next."])).seconds < 0.7
        await until_working(fake_gateway, False)


async def test_the_key_is_the_issuer_of_the_token(keyed_gateway: str, full_gateway: str) -> None:
    async with client(keyed_gateway, API_KEY) as tts:
        assert (await livekit_turns.speak(tts, SENTENCES)).seconds >= LAST_S
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with client(url, "wrong") as tts:
            with pytest.raises(APIStatusError) as refused:
                await livekit_turns.speak(tts, SENTENCES)
        assert refused.value.status_code == status


async def test_a_text_that_is_refused_is_an_error_of_its_turn(fake_gateway: str) -> None:
    async with client(fake_gateway) as tts:
        with pytest.raises(APIError, match="text_too_long"):
            await livekit_turns.speak(tts, ["Hi there. " * 3_000])
        assert (await livekit_turns.speak(tts, ["Next."])).seconds > 0
