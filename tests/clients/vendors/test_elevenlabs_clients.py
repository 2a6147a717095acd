"""Clients made for ElevenLabs, unmodified: its packages, LiveKit's plugin and Pipecat's services."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import livekit_turns
import pipecat_turns
import pytest
from elevenlabs.client import ElevenLabs
from livekit.agents import APIStatusError
from livekit.plugins import elevenlabs
from needed_programs import needed_program
from pipecat.frames.frames import InterruptionFrame
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.services.tts_service import TextAggregationMode
from tls_proxy import make_certificate, tls_proxy
from vendor_gateways import API_KEY, gateway_figure, until_working

TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
TEXT = "".join(TOKENS)
WORDS = TEXT.split()
LONG = "This one goes on and on, until somebody breaks it off. " * 8
VOICE = "21m00Tcm4TlvDq8ikWAM"
LAST_S = 2.5  # the fake voice speaks TEXT at least so long
STALL_S = 12.0


# ---- LiveKit ---------------------------------------------------------------------------------------------------------


def livekit_plugin(url: str, key: str = "any", **options):
    return livekit_turns.plugin(elevenlabs.TTS, base_url=f"{url}/v1", api_key=key, voice_id=VOICE, **options)


MODES = [{}, {"auto_mode": False}, {"encoding": "pcm_24000"}, {"encoding": "opus_48000_64"}]


@pytest.mark.parametrize("options", MODES, ids=["default", "words", "pcm", "opus"])
async def test_livekit_speaks_deltas_with_words_and_the_next_turn_on_the_same_socket(
    fake_gateway: str, options: dict[str, object]
) -> None:
    """By default in MP3."""
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with livekit_plugin(fake_gateway, **options) as tts:
        for _ in range(2):
            heard = await livekit_turns.speak(tts, TOKENS, livekit_turns.TOKEN_EVERY_S)
            assert heard.seconds >= LAST_S
            assert "".join(heard.words).split() == WORDS
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


@pytest.mark.parametrize("ended", [False, True])
async def test_livekit_interrupts(fake_gateway: str, ended: bool) -> None:
    """While text comes, it says so. After the text it says nothing, and the engine stops where its lead ends."""
    async with livekit_plugin(fake_gateway) as tts:
        async with livekit_turns.interrupted(tts, LONG, ended):
            pass
        if not ended:
            await until_working(fake_gateway, False)
        assert (await livekit_turns.speak(tts, ["Next."])).seconds > 0
    await until_working(fake_gateway, False)


async def test_livekit_turns_overlap(fake_gateway: str) -> None:
    async with livekit_plugin(fake_gateway) as tts:
        heard = await asyncio.gather(*(livekit_turns.speak(tts, TOKENS) for _ in range(6)))
    assert ["".join(turn.words).split() for turn in heard] == [WORDS] * 6


async def test_livekit_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with livekit_plugin(url, "wrong") as tts:
            with pytest.raises(APIStatusError) as refused:
                await livekit_turns.speak(tts, TOKENS)
            assert refused.value.status_code == status
    async with livekit_plugin(keyed_gateway, API_KEY) as tts:
        assert (await livekit_turns.speak(tts, TOKENS)).seconds >= LAST_S


# ---- Pipecat ---------------------------------------------------------------------------------------------------------


def pipecat_service(url: str, key: str = "any", **options) -> ElevenLabsTTSService:
    settings = ElevenLabsTTSService.Settings(voice=VOICE, stability=0.5, similarity_boost=0.7)
    return ElevenLabsTTSService(api_key=key, url=url.replace("http", "ws", 1), settings=settings, **options)


@pytest.fixture(params=[TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN], ids=["sentences", "tokens"])
def aggregation(request: pytest.FixtureRequest) -> Iterator[TextAggregationMode]:
    return request.param


async def test_pipecat_speaks_deltas_with_words_and_the_next_turn_on_the_same_socket(
    fake_gateway: str, aggregation: TextAggregationMode
) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with pipecat_turns.talking(pipecat_service(fake_gateway, text_aggregation_mode=aggregation)) as talk:
        for turn in (1, 2):
            await talk.begin()
            await talk.write(*TOKENS, every_s=0.01)
            await talk.end()
            await talk.until_stopped(turn)
            assert talk.seconds >= turn * LAST_S
        assert talk.words == WORDS * 2
        assert talk.errors == []
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


@pytest.mark.parametrize("ended", [False, True])
async def test_pipecat_interrupts(fake_gateway: str, ended: bool) -> None:
    async with pipecat_turns.talking(pipecat_service(fake_gateway)) as talk:
        await talk.begin()
        await talk.write(LONG)
        if ended:
            await talk.end()
        await talk.until_audio()
        await talk.interrupt()
        await until_working(fake_gateway, False)
        await talk.until(lambda: talk.of(InterruptionFrame))
        heard = len(talk.pcm)
        await talk.begin()
        await talk.write("Next.")
        await talk.end()
        await talk.until(lambda: len(talk.pcm) > heard)
        assert talk.errors == []


async def test_pipecat_turns_follow_each_other_however_fast_they_come(fake_gateway: str) -> None:
    async with pipecat_turns.talking(pipecat_service(fake_gateway)) as talk:
        await talk.say("One of them.")
        await talk.say("And another.")
        await talk.until_stopped(2)
        assert talk.words == ["One", "of", "them.", "And", "another."]
        assert talk.errors == []


async def test_livekit_and_pipecat_wait_for_text_that_stalls(fake_gateway: str) -> None:
    """Both at a time, since neither's clock can be hurried."""
    before, after = "Let me see. One moment please. ", "Here it is."
    expected = (before + after).split()

    async def pipecat() -> None:
        async with pipecat_turns.talking(pipecat_service(fake_gateway)) as talk:
            await talk.begin()
            await talk.write(before)
            await asyncio.sleep(STALL_S)
            await talk.write(after)
            await talk.end()
            await talk.until(lambda: len(talk.words) == len(expected))
            assert talk.words == expected
            assert talk.errors == []

    async with livekit_plugin(fake_gateway) as tts:
        heard, _ = await asyncio.gather(livekit_turns.stall(tts, before, after, STALL_S), pipecat())
    assert "".join(heard.words).split() == expected


async def test_pipecat_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, status in ((keyed_gateway, "401"), (full_gateway, "503")):
        async with pipecat_turns.talking(pipecat_service(url, "wrong")) as talk:
            await talk.until(lambda: talk.errors)
            assert status in talk.errors[0].error


# ---- the Python package: text as it comes --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure_gateway(fake_gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The package knows no WebSocket without TLS."""
    openssl = needed_program("openssl", "apt install openssl")
    certificate, key = make_certificate(openssl, tmp_path_factory.mktemp("tls"))
    with tls_proxy(fake_gateway, certificate, key) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        patch.setenv("no_proxy", "*")
        yield url


def tokens(every_s: float = 0.0) -> Iterator[str]:
    for token in TOKENS:
        yield token
        time.sleep(every_s)


def test_sdk_speaks_deltas(secure_gateway: str) -> None:
    client = ElevenLabs(api_key="any", base_url=secure_gateway)
    for _ in range(2):
        chunks = client.text_to_speech.convert_realtime(VOICE, text=tokens(0.01), output_format="pcm_16000")
        assert sum(map(len, chunks)) >= LAST_S * 32_000


def test_sdk_breaks_off(secure_gateway: str, fake_gateway: str) -> None:
    client = ElevenLabs(api_key="any", base_url=secure_gateway)
    chunks = client.text_to_speech.convert_realtime(VOICE, text=iter([LONG]), output_format="mp3_44100_128")
    next(chunks)
    chunks.close()
    asyncio.run(until_working(fake_gateway, False))
