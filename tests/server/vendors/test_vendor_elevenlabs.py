"""ElevenLabs' addresses on a real server: sound, interruptions, refusals."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gateway_harness import GatewayHarness
from stream_client import native_pcm
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from realtime_tts.server.admission.auth import create_key
from tests.support.sound_files import read_sound_file

TEXT = "Hello there, this is a whole sentence. And here is another one! "
SUNG = "This is a command tone which codecs can follow. "
OPENED = {"text": " ", "context_id": "a", "voice_settings": {"stability": 0.5}}
FLUSHED = {"text": "", "context_id": "a", "flush": True}
CLOSED = {"context_id": "a", "close_context": True}


def address(gateway: GatewayHarness, endpoint: str = "multi-stream-input", voice: str = "rachel", **query: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in {"model_id": "eleven_flash_v2_5", **query}.items())
    return gateway.url.replace("http", "ws", 1) + f"/v1/text-to-speech/{voice}/{endpoint}?{asked}"


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.answers: list[dict[str, Any]] = []

    async def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            await self.socket.send(json.dumps(message))

    async def hear(self) -> dict[str, Any]:
        self.answers.append(json.loads(await asyncio.wait_for(self.socket.recv(), 10)))
        return self.answers[-1]

    async def until_final(self) -> None:
        while not (await self.hear()).get("isFinal"):
            pass

    async def until_closed(self) -> int:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.hear()
        return self.socket.close_code or 0

    @property
    def audio(self) -> bytes:
        return b"".join(base64.b64decode(answer.get("audio") or "") for answer in self.answers)

    @property
    def text(self) -> str:
        return "".join("".join(a["alignment"]["chars"]) for a in self.answers if a.get("alignment"))


@contextlib.asynccontextmanager
async def client(url: str, **headers: str) -> AsyncIterator[Client]:
    async with connect(url, proxy=None, additional_headers=headers) as socket:
        yield Client(socket)


async def spoken(url: str, text: str = TEXT) -> Client:
    async with client(url) as found:
        await found.say(OPENED, {"text": text, "context_id": "a"}, FLUSHED, CLOSED)
        await found.until_final()
    return found


@pytest.fixture(scope="module")
def clauses() -> Iterator[GatewayHarness]:
    """Live speech depends on when its text comes; by clauses that no pause ends a seed gives the same samples again."""
    with GatewayHarness(mode="clause", stall_flush_s=60.0, max_lead_s=60.0, worker={"patch_delay_s": 0.001}) as harness:
        yield harness


@pytest.mark.parametrize(
    ("name", "rate", "codec"),
    [
        ("pcm_8000", 8_000, "pcm_s16le"),
        ("pcm_16000", 16_000, "pcm_s16le"),
        ("pcm_44100", 44_100, "pcm_s16le"),
        ("ulaw_8000", 8_000, "mulaw"),
        ("alaw_8000", 8_000, "alaw"),
    ],
)
async def test_samples_are_those_of_the_native_protocol(
    clauses: GatewayHarness, name: str, rate: int, codec: str
) -> None:
    found = await spoken(address(clauses, output_format=name, seed="7"))
    audio = {"codec": codec, "sample_rate": rate, "frame_ms": 40}
    assert found.audio == await native_pcm(clauses.ws_url, TEXT, audio, seed=7)
    assert found.text == TEXT


@pytest.mark.parametrize(
    ("name", "rate"), [("mp3_22050_32", 22_050), ("mp3_44100_128", 44_100), ("opus_48000_64", 48_000)]
)
async def test_files_sound_like_the_native_protocol(clauses: GatewayHarness, name: str, rate: int) -> None:
    found = await spoken(address(clauses, output_format=name, seed="7"), SUNG)
    heard, found_rate = read_sound_file(found.audio)
    assert found_rate == rate
    audio = {"codec": "pcm_s16le", "sample_rate": rate, "frame_ms": 40}
    expected = np.frombuffer(await native_pcm(clauses.ws_url, SUNG, audio, seed=7), "<i2") / 32_768
    # MP3 in a stream cannot say that it begins with its encoder's delay and ends at a frame's end.
    assert 0 <= len(heard) - len(expected) <= (3 * 1152 if "mp3" in name else 0)
    span = heard[: rate // 2 + len(heard) - len(expected)]
    delay = int(np.argmax(np.correlate(span, expected[: rate // 2], "valid")))
    error = heard[delay:][: len(expected)] - expected[: len(heard) - delay]
    assert np.sqrt(np.mean(error**2)) < 0.1 * np.sqrt(np.mean(expected**2))
    assert found.text == SUNG


async def test_an_interruption_frees_the_engine_and_the_socket_goes_on(gateway: GatewayHarness) -> None:
    async with client(address(gateway, output_format="pcm_16000")) as talk:
        await talk.say(OPENED, {"text": "command never. ", "context_id": "a", "flush": True})
        while not (await talk.hear()).get("audio"):
            pass
        await talk.say(CLOSED, {**OPENED, "context_id": "b"}, {"text": "Next. ", "context_id": "b"})
        await talk.say({**FLUSHED, "context_id": "b"}, {"context_id": "b", "close_context": True})
        await talk.until_final()
        assert talk.answers[-1]["contextId"] == "a"
        talk.answers.clear()
        await talk.until_final()
        assert {answer["contextId"] for answer in talk.answers} == {"b"}
        assert talk.audio


async def test_a_client_that_leaves_hears_the_end_of_what_it_said(gateway: GatewayHarness) -> None:
    async with client(address(gateway, output_format="pcm_16000")) as talk:
        await talk.say(OPENED, {"text": "Good bye. ", "context_id": "a"}, {"close_socket": True})
        assert await talk.until_closed() == 1000
    assert talk.text == "Good bye. "
    assert talk.answers[-1]["isFinal"]


async def test_the_address_with_one_context_closes_when_it_is_over(gateway: GatewayHarness) -> None:
    async with client(address(gateway, "stream-input", output_format="pcm_16000")) as talk:
        await talk.say({"text": " ", "try_trigger_generation": True}, {"text": "Good bye. "}, {"text": ""})
        assert await talk.until_closed() == 1000
    assert talk.text == "Good bye. "
    assert talk.answers[-1] == {"audio": None, "isFinal": True}


@pytest.mark.parametrize("frame", ["nonsense", '{"text":7}', b"\xff", '{"text":" ","voice_settings":[]}'])
async def test_a_malformed_message_is_answered_and_closes_the_socket(
    gateway: GatewayHarness, frame: str | bytes
) -> None:
    async with client(address(gateway)) as talk:
        await talk.say({"text": "Hello. ", "context_id": "a"})
        await talk.socket.send(frame)
        assert await talk.until_closed() == 1008
    errors = {answer.get("contextId"): answer["error"] for answer in talk.answers if "error" in answer}
    assert errors == {None: "invalid_message", "a": "invalid_message"}
    assert {answer["message"][:123] for answer in talk.answers if "error" in answer} == {talk.socket.close_reason}
    assert {"audio": None, "isFinal": True, "contextId": "a"} in talk.answers


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize(
    ("texts", "status", "says"),
    [
        (["command fail. "], "numerical_error", "asked to fail"),
        (["Hello. ", "x" * 5_000], "max_character_limit_exceeded", "a context takes at most 2000 characters"),
    ],
)
async def test_a_failure_closes_the_address_with_one_context(
    make_gateway: Callable[..., GatewayHarness], texts: list[str], status: str, says: str, is_ended: bool
) -> None:
    """The last message is the error, and the close has its text: clients read one or the other."""
    gateway = make_gateway(max_text_chars=2_000, mode="clause")
    async with client(address(gateway, "stream-input", output_format="pcm_16000")) as talk:
        await talk.say(*({"text": text} for text in [" ", *texts, *([""] if is_ended else ["More. "])]))
        assert await talk.until_closed() == 1008
    assert talk.answers[-1] == {"message": says, "error": status, "code": 1008}
    assert talk.socket.close_reason == says


async def test_a_quota_that_is_used_up_closes_the_address_with_one_context(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), max_chars_per_minute=40)
    url, headers = address(gateway, "stream-input"), {"xi-api-key": key}
    async with client(url, **headers) as first, client(url, **headers) as second:
        for talk, code in ((first, 1000), (second, 1008)):  # the first text overdraws the account
            await talk.say({"text": " "}, {"text": TEXT}, {"text": ""})
            assert await talk.until_closed() == code
    assert second.answers[-1]["error"] == "quota_exceeded"
    assert second.socket.close_reason == second.answers[-1]["message"][:123]


async def test_keys_have_their_place(make_gateway: Callable[..., GatewayHarness]) -> None:
    """A key that is missing may still come with the first message."""
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    for wrong, query in (({"xi-api-key": "wrong"}, {}), ({}, {"xi_api_key": "wrong"})):
        with pytest.raises(InvalidStatus) as caught:
            await connect(address(gateway, **query), proxy=None, additional_headers=wrong)
        assert caught.value.response.status_code == 401
        assert json.loads(caught.value.response.body)["detail"]["status"] == "invalid_api_key"
    for headers, query in (
        ({"xi-api-key": key}, {}),
        ({"authorization": f"Bearer {key}"}, {}),
        ({}, {"xi_api_key": key}),
    ):
        async with client(address(gateway, **query), **headers) as talk:
            await talk.say({"text": "Hello. ", "context_id": "a"}, {"close_socket": True})
            await talk.until_final()


async def test_an_unsupported_format_or_model_is_refused_at_once(make_gateway: Callable[..., GatewayHarness]) -> None:
    for strict, query, status in (
        (False, {"output_format": "flac_1"}, "invalid_output_format"),
        (True, {}, "model_not_found"),
    ):
        with pytest.raises(InvalidStatus) as caught:
            await connect(address(make_gateway(strict_ids=strict), **query), proxy=None)
        assert json.loads(caught.value.response.body)["detail"]["status"] == status


async def test_a_full_server_says_when_to_come_again(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway(max_sessions=1)
    async with client(address(gateway)) as talk:
        await talk.say({"text": "Hello. ", "context_id": "a", "flush": True})
        await talk.hear()
        with pytest.raises(InvalidStatus) as caught:
            await connect(address(gateway), proxy=None)
    response = caught.value.response
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert json.loads(response.body)["detail"]["status"] == "system_busy"


STEP_S = 0.2


@pytest.mark.parametrize("signal", ["close", "close again", "leave"])
async def test_an_interruption_costs_one_step_at_most(make_gateway: Callable[..., GatewayHarness], signal: str) -> None:
    gateway = make_gateway(worker={"patch_delay_s": STEP_S})
    endpoint = "stream-input" if signal == "leave" else "multi-stream-input"
    async with client(address(gateway, endpoint, output_format="pcm_16000")) as talk:
        await talk.say(OPENED, {"text": "command never. ", "context_id": "a", "flush": True})
        if signal == "close again":
            await talk.say(FLUSHED, CLOSED)
        while not (await talk.hear()).get("audio"):
            pass
        begun = time.monotonic()
        if signal == "leave":
            await talk.socket.close()
        else:
            await talk.say(CLOSED)
            await talk.until_final()
    num_heard = -(-len(talk.audio) // 5120)
    # What is made while a client leaves is not heard.
    max_unheard = 1 + ((time.monotonic() - begun) // STEP_S if signal == "leave" else 0)

    def num_made() -> int:
        return gateway.call(lambda: sum(stats.num_steps for stats in gateway.gateway.engine.stats))

    while num_made() < num_heard or gateway.usage().requests:
        await asyncio.sleep(0.05)
    await asyncio.sleep(2 * STEP_S + 0.2)
    assert num_made() <= num_heard + max_unheard


async def test_whatever_is_said_leaves_nothing_behind(gateway: GatewayHarness) -> None:
    """The fixtures see to it that no session, task or request stays, and that nothing is logged as an error."""
    chance = random.Random(7)
    texts = ["", " ", "Hello there. ", "word ", "🙂", "command never. ", "x" * 500]

    def message() -> dict[str, Any]:
        said: dict[str, Any] = {"context_id": chance.choice("abc"), "text": chance.choice(texts)}
        said |= {"flush": True} if chance.random() < 0.3 else {}
        return said | ({"close_context": True} if chance.random() < 0.2 else {})

    async def talk(endpoint: str, last: str | bytes | None) -> None:
        async with client(address(gateway, endpoint, output_format="mp3_22050_32", auto_mode="true")) as connection:
            hearing = asyncio.create_task(connection.until_closed())
            with contextlib.suppress(ConnectionClosed):
                await connection.say(*(message() for _ in range(60)))
                if last is not None:
                    await connection.socket.send(last)
                await asyncio.sleep(0.1)
            await connection.socket.close()
            await hearing

    ends = (None, "junk", '{"close_socket":true}', b"\xff\xfe", '{"text":{}}')
    await asyncio.gather(*(talk(path, end) for path in ("multi-stream-input", "stream-input") for end in ends))
