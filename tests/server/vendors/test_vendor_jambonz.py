"""jambonz's custom speech on a real server, with the messages of its own example of a vendor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from realtime_tts.server.admission.auth import create_key

TEXT = "Hello there, this is a whole sentence."
PATIENT_S = 60.0


@pytest.fixture
def http(clauses: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=clauses.url, trust_env=False, timeout=PATIENT_S) as client:
        yield client


def body(text: str = TEXT, **fields: object) -> dict[str, object]:
    """A request as jambonz sends it."""
    return {"language": "en-US", "voice": "rms", "type": "text", "text": text, **fields}


def address(gateway: GatewayHarness, query: str = "voice=rms&language=en-US") -> str:
    return f"{gateway.url.replace('http', 'ws', 1)}/v1/jambonz?{query}"


async def send(socket: ClientConnection, kind: str, **fields: object) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


async def next_json(socket: ClientConnection) -> dict[str, Any]:
    """The next message that is not audio."""
    while isinstance(frame := await asyncio.wait_for(socket.recv(), PATIENT_S), bytes):
        pass
    found: dict[str, Any] = json.loads(frame)
    return found


async def audio(socket: ClientConnection, num_bytes: int) -> bytes:
    pcm = b""
    while len(pcm) < num_bytes:
        frame = await asyncio.wait_for(socket.recv(), PATIENT_S)
        assert isinstance(frame, bytes)
        pcm += frame
    return pcm


async def until_closed(socket: ClientConnection) -> None:
    async with asyncio.timeout(PATIENT_S):
        async for frame in socket:  # which ends without an exception after close code 1000 only
            assert isinstance(frame, bytes)


# ---- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_a_text_becomes_samples_whose_rate_is_told(http: httpx.Client, rate: int) -> None:
    answer = http.post(f"/v1/jambonz?sample_rate={rate}", json=body())
    assert (answer.status_code, answer.headers["content-type"]) == (200, f"audio/l16;rate={rate}")
    assert answer.headers["realtime-tts-voice"] == "rms"
    same = http.post(f"/v1/speak?model=rms&encoding=linear16&container=none&sample_rate={rate}", json={"text": TEXT})
    assert answer.content == same.content


def test_ssml_is_followed_and_the_rate_is_16_khz_by_itself(http: httpx.Client) -> None:
    plain, paused = (
        http.post("/v1/jambonz", json=body(f"<speak>{pause}{TEXT}</speak>", type="ssml"))
        for pause in ("", '<break time="1s"/>')
    )
    assert plain.headers["content-type"] == "audio/l16;rate=16000"
    assert len(paused.content) - len(plain.content) == 2 * 16_000


@pytest.mark.parametrize(
    ("query", "wanted", "status", "code"),
    [
        ("", {"voice": "rms"}, 400, "invalid_message"),
        ("", body(type="html"), 400, "invalid_message"),
        ("", body(" "), 400, "invalid_request"),
        ("", body("<speak>Hello.", type="ssml"), 400, "bad_ssml"),
        ("", body("a" * 30_000), 413, "text_too_long"),
        ("?sample_rate=12345", body(), 400, "unsupported_audio_format"),
        ("?speed=fast", body(), 400, "invalid_request"),
    ],
)
def test_an_invalid_request_is_refused(http: httpx.Client, query: str, wanted: Any, status: int, code: str) -> None:
    answer = http.post("/v1/jambonz" + query, json=wanted)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["error"]


async def test_a_key_is_required_at_both(make_gateway: Callable[..., GatewayHarness]) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    for given, status in ((key, 200), ("wrong", 401)):
        headers = {"Authorization": f"Bearer {given}"}
        async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=PATIENT_S) as http:
            assert (await http.post("/v1/jambonz", json=body(), headers=headers)).status_code == status
        if status == 200:
            async with connect(address(gateway), proxy=None, additional_headers=headers) as socket:
                assert (await next_json(socket))["type"] == "connect"
        else:
            with pytest.raises(InvalidStatus):
                await connect(address(gateway), proxy=None, additional_headers=headers)


# ---- streaming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "rate"), [("voice=rms&language=en", 16_000), ("sampleRate=8000", 8_000)])
async def test_the_rate_is_told_and_pieces_become_speech(clauses: GatewayHarness, query: str, rate: int) -> None:
    async with httpx.AsyncClient(base_url=clauses.url, trust_env=False, timeout=PATIENT_S) as http:
        one = await http.post(f"/v1/jambonz?sample_rate={rate}", json=body("One two. Three four."))
    async with connect(address(clauses, query), proxy=None) as socket:
        connected = await next_json(socket)
        assert connected == {"type": "connect", "data": {"sample_rate": rate, "base64_encoding": False}}
        for _ in range(2):
            await send(socket, "stream", text="One two.")
            await send(socket, "stream", text="Three four.")
            await send(socket, "flush")
            await send(socket, "flush")  # without text it has no sound
            pcm = await audio(socket, len(one.content))
            assert abs(len(pcm) - len(one.content)) <= 2 * rate * 0.16
        await send(socket, "stop")
        await until_closed(socket)


async def test_text_is_spoken_before_its_flush(gateway: GatewayHarness) -> None:
    async with connect(address(gateway), proxy=None) as socket:
        assert (await next_json(socket))["type"] == "connect"
        await send(socket, "stream", text="One two three four five six seven eight nine ten, eleven twelve.")
        assert await audio(socket, 2)


async def test_keepalives_have_no_answer_and_leave_speech_alone(gateway: GatewayHarness) -> None:
    async with connect(address(gateway), proxy=None) as socket:
        assert (await next_json(socket))["type"] == "connect"
        await send(socket, "stream", text="One two.")
        for _ in range(30):
            await send(socket, "keepalive")
        await send(socket, "flush")
        assert await audio(socket, 2)


async def test_stop_ends_speech_at_once(gateway: GatewayHarness) -> None:
    async with connect(address(gateway), proxy=None) as socket:
        await send(socket, "stream", text="command never. And more.")
        await send(socket, "flush")
        assert (await next_json(socket))["type"] == "connect"
        await send(socket, "stop")
        await until_closed(socket)


async def test_what_cannot_be_streamed_is_told_and_the_next_turn_is_spoken(gateway: GatewayHarness) -> None:
    async with connect(address(gateway), proxy=None) as socket:
        assert (await next_json(socket))["type"] == "connect"
        for wrong in ("hello", '{"type":"stream"}', '{"type":"pause"}'):
            await socket.send(wrong)
            answer = await next_json(socket)
            assert (answer["type"], answer["code"]) == ("error", "invalid_message")
            assert answer["error"]
        await send(socket, "stream", text="a" * 30_000)
        assert (await next_json(socket))["code"] == "text_too_long"
        await send(socket, "stream", text="Of the same turn.")
        await send(socket, "flush")
        await send(socket, "stream", text="Hello there.")
        await send(socket, "flush")
        assert await audio(socket, 2)


async def test_an_invalid_address_is_refused_at_the_handshake(gateway: GatewayHarness) -> None:
    for query in ("sampleRate=12345", "sampleRate=fast", "speed=fast"):
        with pytest.raises(InvalidStatus) as caught:
            await connect(address(gateway, query), proxy=None)
        assert caught.value.response.status_code == 400
