"""What every one of Pipecat's services for other services does against this server."""

from __future__ import annotations

from typing import Any

import pytest
from pipecat.frames.frames import InterruptionFrame
from pipecat.services.tts_service import TextAggregationMode
from vendor_gateways import gateway_figure, until_working
from vendor_services import talking

TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
WORDS = "".join(TOKENS).split()
ENDLESS = "command never. "
LONG = "This one goes on and on, until somebody breaks it off. " * 8
LAST_S = 2.6  # so long the fake voice speaks TOKENS, and at least
REFUSALS = {  # of a wrong key, and by a server without a place
    "cartesia": ("401", "503"),
    "cartesia over http": ("status 401", "status 503"),
    "deepgram": ("HTTP 401): this API key", "HTTP 503): all sessions"),
    "deepgram over http": ("HTTP 401", "HTTP 503"),
    "flux": ("401", "503"),
    "elevenlabs": ("401", "503"),
    "elevenlabs over http": ("invalid_api_key", "system_busy"),
    "openai": ("this API key is not active", "all sessions of this server"),
}
WEBSOCKETS = ("cartesia", "deepgram", "flux", "elevenlabs")
BY_TOKENS = {"text_aggregation_mode": TextAggregationMode.TOKEN}


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in REFUSALS), ("cartesia", BY_TOKENS), ("elevenlabs", BY_TOKENS)],
)
async def test_deltas_are_spoken_turn_after_turn_by_websocket_on_the_same_one(
    fake_gateway: str, name: str, options: dict[str, Any]
) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with talking(name, fake_gateway, **options) as talk:
        for turn in (1, 2):
            await talk.begin()
            await talk.write(*TOKENS, every_s=0.01)
            await talk.end()
            await talk.until_stopped(turn)
            await talk.until(lambda: talk.seconds >= turn * LAST_S)  # noqa: B023 - awaited here
            await talk.until(lambda: " ".join(talk.words).split() == turn * WORDS)  # noqa: B023 - awaited here
        assert talk.errors == []
    if name in WEBSOCKETS:
        assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("name", REFUSALS)
async def test_an_interruption_frees_the_engine_and_the_next_turn_is_heard(
    fake_gateway: str, name: str, ended: bool
) -> None:
    # Over HTTP each sentence is a request of its own; Cartesia's service reads an answer to its end before it plays it.
    text = ENDLESS if name in ("deepgram over http", "elevenlabs over http", "openai") else LONG
    async with talking(name, fake_gateway) as talk:
        await talk.begin()
        await talk.write(text, "And more. ")
        if ended:
            await talk.end()
        await talk.until_audio()
        await until_working(fake_gateway, True)
        await talk.interrupt()
        await until_working(fake_gateway, False)
        await talk.until(lambda: talk.of(InterruptionFrame))
        heard_s = talk.seconds
        await talk.answer("Next.")
        await talk.until(lambda: talk.seconds > heard_s)
        await until_working(fake_gateway, False)
        assert talk.seconds - heard_s < 0.7
        assert talk.errors == []


@pytest.mark.parametrize("name", REFUSALS)
async def test_turns_follow_each_other_however_fast_they_come(fake_gateway: str, name: str) -> None:
    async with talking(name, fake_gateway) as talk:
        await talk.say("One of them.")
        await talk.say("And another.")
        await talk.until_stopped(2)
        await talk.until(lambda: " ".join(talk.words) == "One of them. And another.")
        assert talk.errors == []


@pytest.mark.parametrize("name", REFUSALS)
async def test_the_reason_of_a_refusal_is_told(keyed_gateway: str, full_gateway: str, name: str) -> None:
    for url, reason in zip((keyed_gateway, full_gateway), REFUSALS[name], strict=True):
        async with talking(name, url, "wrong") as talk:
            if name not in WEBSOCKETS:  # which connect before there is a text
                await talk.say("Hello.")
            await talk.until(lambda: talk.errors)
            assert reason in talk.errors[0].error
