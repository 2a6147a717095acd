"""Clients made for ElevenLabs, unmodified: its packages, LiveKit's plugin and Pipecat's services."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import httpx
import livekit_turns
import numpy as np
import pipecat_turns
import pytest
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core.api_error import ApiError
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import elevenlabs
from needed_programs import needed_program
from pipecat.frames.frames import TTSTextFrame
from tls_proxy import make_certificate, tls_proxy
from vendor_gateways import API_KEY, run_node, until_working
from vendor_services import talking
from websockets.exceptions import InvalidStatus

HERE = Path(__file__).parent
TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
TEXT = "".join(TOKENS)
WORDS = TEXT.split()
LONG = "This one goes on and on, until somebody breaks it off. " * 8
ENDLESS = "command never. "
VOICE = "21m00Tcm4TlvDq8ikWAM"
LAST_S = 2.5  # the fake voice speaks TEXT at least so long
STALL_S = 12.0


# ---- LiveKit and Pipecat ---------------------------------------------------------------------------------------------


def livekit_plugin(url: str):
    return livekit_turns.plugin(elevenlabs.TTS, base_url=f"{url}/v1", api_key="any", voice_id=VOICE)


def assert_as_spoken(begin_s: list[float]) -> None:
    """The fake voice speaks 2.5 characters in 160 ms, segment after segment; words begin when it says that it is there.

    A segment's last patch is not full, so a later one begins a little later than its characters say.
    """
    expected = [0.064 * TEXT.index(word) for word in WORDS]
    assert len(begin_s) == len(expected)
    late_s = [begin - wanted for begin, wanted in zip(begin_s, expected, strict=True)]
    assert max(late_s) - min(late_s) < 0.4
    assert begin_s == sorted(begin_s)


async def test_livekit_and_pipecat_tell_words_when_they_are_spoken(fake_gateway: str) -> None:
    """One wants times from the context's beginning, the other from the words told before."""
    async with livekit_plugin(fake_gateway) as tts:
        heard = await livekit_turns.speak(tts, TOKENS)
    pieces = [piece for event in heard.events for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]
    assert_as_spoken([piece.start_time for piece in pieces])
    async with talking("elevenlabs", fake_gateway) as talk:
        await talk.begin()
        await talk.write(*TOKENS)
        await talk.end()
        await talk.until_stopped()
        assert_as_spoken([frame.pts / 1e9 for frame in talk.of(TTSTextFrame)])


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


async def test_livekit_hears_the_starter_voice(starter_gateway: str) -> None:
    async with livekit_plugin(starter_gateway) as tts:
        heard = await livekit_turns.speak(tts, ["The quick ", "brown fox ", "jumps over ", "the lazy ", "dog."], 0.01)
    words = "".join(heard.words).split()
    samples = np.frombuffer(heard.pcm, "<i2") / 32_768
    assert 1.5 < heard.seconds < 6.0
    assert np.sqrt(np.mean(samples**2)) > 0.01
    assert words == ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog."]


async def test_livekit_lists_voices(fake_gateway: str) -> None:
    async with livekit_plugin(fake_gateway) as tts:
        assert {voice.id for voice in await tts.list_voices()} == {"slt", "rms"}


async def test_text_that_stalls_is_waited_for(fake_gateway: str, secure: Secure) -> None:
    """LiveKit, Pipecat and the Python package at a time, since none of their clocks can be hurried."""
    before, after = "Let me see. One moment please. ", "Here it is."
    expected = (before + after).split()

    async def pipecat(connected: contextlib.AbstractAsyncContextManager[pipecat_turns.Talk]) -> None:
        async with connected as talk:
            await talk.begin()
            await talk.write(before)
            await asyncio.sleep(STALL_S)
            await talk.write(after)
            await talk.end()
            await talk.until(lambda: len(talk.words) == len(expected))
            assert talk.words == expected
            assert talk.errors == []

    def stalling() -> Iterator[str]:
        yield before
        time.sleep(STALL_S)
        yield after

    def package() -> int:
        with secure(fake_gateway) as url, sdk(url) as client:
            chunks = client.text_to_speech.convert_realtime(VOICE, text=stalling(), output_format="pcm_16000")
            return sum(map(len, chunks))

    async with livekit_plugin(fake_gateway) as tts:
        heard, num_bytes, *_ = await asyncio.gather(
            livekit_turns.stall(tts, before, after, STALL_S),
            asyncio.to_thread(package),
            pipecat(talking("elevenlabs", fake_gateway)),
            pipecat(talking("elevenlabs over http", fake_gateway)),
        )
    assert num_bytes >= LAST_S * 32_000
    assert "".join(heard.words).split() == expected


# ---- the Python package: whole texts ---------------------------------------------------------------------------------


@contextlib.contextmanager
def sdk(url: str, key: str = "any") -> Iterator[ElevenLabs]:
    with httpx.Client(timeout=20, trust_env=False) as http:  # it closes none that it makes itself
        yield ElevenLabs(api_key=key, base_url=url, httpx_client=http)


@contextlib.asynccontextmanager
async def asynchronous_sdk(url: str) -> AsyncIterator[AsyncElevenLabs]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        yield AsyncElevenLabs(api_key="any", base_url=url, httpx_client=http)


def test_sdk_speaks_in_every_format(fake_gateway: str) -> None:
    plain = {"pcm_16000": 32_000, "pcm_44100": 88_200, "ulaw_8000": 8_000, "alaw_8000": 8_000}
    with sdk(fake_gateway) as client:
        for name in ("mp3_44100_128", "mp3_22050_32", "opus_48000_64", "wav_24000"):
            data = b"".join(client.text_to_speech.convert(VOICE, text=TEXT, output_format=name))
            with av.open(io.BytesIO(data)) as container:
                rate = container.streams.audio[0].rate
                assert sum(frame.samples for frame in container.decode(audio=0)) / rate >= LAST_S
                assert str(rate) in name
        for name, bytes_per_s in plain.items():
            data = b"".join(client.text_to_speech.stream(VOICE, text=TEXT, output_format=name))
            assert len(data) >= LAST_S * bytes_per_s


def test_sdk_gets_times_of_characters(fake_gateway: str) -> None:
    wanted = {"text": TEXT, "output_format": "pcm_16000"}
    with sdk(fake_gateway) as client:
        whole = client.text_to_speech.convert_with_timestamps(VOICE, **wanted)
        pieces = list(client.text_to_speech.stream_with_timestamps(VOICE, **wanted))
    assert "".join(whole.alignment.characters) == TEXT
    assert "".join("".join(piece.alignment.characters) for piece in pieces if piece.alignment) == TEXT
    num_bytes = sum(len(base64.b64decode(piece.audio_base_64)) for piece in pieces)
    assert num_bytes == len(base64.b64decode(whole.audio_base_64)) >= LAST_S * 32_000


async def test_the_asynchronous_sdk_speaks_turn_after_turn_and_two_at_a_time(fake_gateway: str) -> None:
    async with asynchronous_sdk(fake_gateway) as client:

        async def turn() -> int:
            chunks = client.text_to_speech.stream(VOICE, text=TEXT, output_format="pcm_16000")
            return sum([len(chunk) async for chunk in chunks])

        lengths = [await turn(), await turn(), *await asyncio.gather(turn(), turn())]
    assert len(set(lengths)) == 1
    assert lengths[0] >= LAST_S * 32_000


async def test_the_asynchronous_sdk_interrupts(fake_gateway: str) -> None:
    async with asynchronous_sdk(fake_gateway) as client:
        chunks = client.text_to_speech.stream(VOICE, text=ENDLESS, output_format="pcm_16000")
        await anext(chunks)
        await until_working(fake_gateway, True)
        await chunks.aclose()
        await until_working(fake_gateway, False)


def test_sdk_is_told_what_is_wrong(fake_gateway: str, keyed_gateway: str, full_gateway: str) -> None:
    asked = ((keyed_gateway, "wrong", 401, "invalid_api_key"), (full_gateway, "any", 503, "system_busy"))
    for url, key, status, named in asked:
        with sdk(url, key) as client, pytest.raises(ApiError) as refused:
            list(client.text_to_speech.convert(VOICE, text=TEXT, request_options={"max_retries": 0}))
        assert (refused.value.status_code, refused.value.body["detail"]["status"]) == (status, named)
    with sdk(keyed_gateway, API_KEY) as client:
        assert b"".join(client.text_to_speech.convert(VOICE, text="Hello."))


def test_sdk_lists_models_and_voices(fake_gateway: str) -> None:
    with sdk(fake_gateway) as client:
        assert [model.model_id for model in client.models.list()] == ["fake-voice"]
        assert [voice.voice_id for voice in client.voices.get_all().voices] == ["slt", "rms"]
        assert [voice.name for voice in client.voices.search().voices] == ["slt", "rms"]
        assert client.voices.get("rms").category == "premade"


# ---- the JavaScript package ------------------------------------------------------------------------------------------


def test_js(fake_gateway: str, keyed_gateway: str, full_gateway: str) -> None:
    def ask(action: str, url: str = fake_gateway, key: str = "any", text: str = TEXT) -> dict[str, Any]:
        wanted = {"text": text, "modelId": "eleven_flash_v2_5", "outputFormat": "pcm_16000"}
        return {"url": url, "key": key, "action": action, "voice": VOICE, "wanted": wanted}

    asked = [
        ask("turns"),
        ask("timed"),
        ask("interrupt", text=ENDLESS),
        ask("catalogue"),
        ask("turns", keyed_gateway, "wrong"),
        ask("turns", keyed_gateway, API_KEY),
        ask("turns", full_gateway),
    ]
    answers = run_node(HERE / "elevenlabs.mjs", json.dumps(asked), timeout_s=60.0)["answers"]
    turns, timed, interrupted, listed, wrong, right, full = answers
    assert len(set(turns["bytes"])) == 1
    assert turns["bytes"][0] >= LAST_S * 32_000
    assert (timed["whole"], timed["streamed"]) == (TEXT, TEXT)
    assert timed["bytes"][0] == sum(timed["bytes"][1:]) == turns["bytes"][0]
    assert interrupted["bytes"] > 0
    assert interrupted["atWork"] == 0
    assert listed == {"voices": ["slt", "rms"], "found": 2, "models": ["fake-voice"], "one": "slt"}
    assert (wrong["status"], wrong["body"]["detail"]["status"]) == (401, "invalid_api_key")
    assert right["bytes"] == turns["bytes"]
    assert (full["status"], full["body"]["detail"]["status"]) == (503, "system_busy")


# ---- the Python package: text as it comes --------------------------------------------------------------------------


Secure = Callable[[str], contextlib.AbstractContextManager[str]]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """TLS in front of a gateway: the package knows no WebSocket without."""
    openssl = needed_program("openssl", "apt install openssl")
    certificate, key = make_certificate(openssl, tmp_path_factory.mktemp("tls"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        patch.setenv("no_proxy", "*")
        yield lambda url: tls_proxy(url, certificate, key)


def tokens(every_s: float = 0.0) -> Iterator[str]:
    for token in TOKENS:
        yield token
        time.sleep(every_s)


def realtime(url: str, key: str = "any", every_s: float = 0.0) -> int:
    """Bytes of a turn."""
    with sdk(url, key) as client:
        chunks = client.text_to_speech.convert_realtime(VOICE, text=tokens(every_s), output_format="pcm_16000")
        return sum(map(len, chunks))


def test_sdk_speaks_deltas_turn_after_turn_and_two_at_a_time(fake_gateway: str, secure: Secure) -> None:
    with secure(fake_gateway) as url, ThreadPoolExecutor(2) as pool:
        lengths = [realtime(url, every_s=0.01) for _ in range(2)]
        lengths += [turn.result() for turn in [pool.submit(realtime, url) for _ in range(2)]]
    assert min(lengths) >= LAST_S * 32_000


def test_sdk_breaks_off(fake_gateway: str, secure: Secure) -> None:
    with secure(fake_gateway) as url, sdk(url) as client:
        for text in (iter([LONG]), itertools.repeat(LONG, 40)):  # all of it is sent, or more is to come
            chunks = client.text_to_speech.convert_realtime(VOICE, text=text, output_format="mp3_44100_128")
            next(chunks)
            chunks.close()
            asyncio.run(until_working(fake_gateway, False))


def test_sdk_is_told_that_a_text_cannot_be_spoken(fake_gateway: str, secure: Secure) -> None:
    """Speech that fails is not taken for the end of the text."""
    with secure(fake_gateway) as url, sdk(url) as client:
        for text, says in ((["command fail. "], "asked to fail"), (["word " * 5_000], "a context takes at most")):
            with pytest.raises(ApiError) as refused:
                list(client.text_to_speech.convert_realtime(VOICE, text=iter(text), output_format="pcm_16000"))
            assert refused.value.status_code == 1008
            assert says in str(refused.value.body)


def test_sdk_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str, secure: Secure) -> None:
    for address, status in ((keyed_gateway, 401), (full_gateway, 503)):
        with secure(address) as url, pytest.raises(InvalidStatus) as refused:
            realtime(url, "wrong")
        assert refused.value.response.status_code == status
    with secure(keyed_gateway) as url:
        assert realtime(url, API_KEY) >= LAST_S * 32_000
