"""Deepgram's addresses on a real server: sound, turns, interruptions, refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gateway_harness import GatewayHarness
from stream_client import native_pcm
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus
from websockets.typing import Subprotocol

from realtime_tts.server.admission.auth import create_key

TEXT = "Hello there, this is a whole sentence. And here is another one! "
STEP_S = 0.4
LONG = "This one goes on and on. " * 40


def address(gateway: GatewayHarness, **query: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in {"model": "aura-2-thalia-en", **query}.items())
    return gateway.url.replace("http", "ws", 1) + f"/v1/speak?{asked}"


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.pcm = b""
        self.told: list[dict[str, Any]] = []

    async def say(self, *texts: str) -> None:
        for text in texts:
            await self.send({"type": "Speak", "text": text})

    async def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            await self.socket.send(json.dumps(message))

    async def flush(self) -> None:
        await self.send({"type": "Flush"})

    async def hear(self) -> str:
        frame = await asyncio.wait_for(self.socket.recv(), 10)
        if isinstance(frame, bytes):
            self.pcm += frame
            return "audio"
        self.told.append(json.loads(frame))
        return str(self.told[-1]["type"])

    async def until(self, kind: str) -> dict[str, Any]:
        while await self.hear() != kind:
            pass
        return self.told[-1] if self.told else {}

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.told if message["type"] != "Metadata"]


@contextlib.asynccontextmanager
async def client(gateway: GatewayHarness, **query: str) -> AsyncIterator[Client]:
    async with connect(address(gateway, **query), proxy=None) as socket:
        yield Client(socket)


@pytest.mark.parametrize(
    ("encoding", "codec", "rate"),
    [("linear16", "pcm_s16le", 24_000), ("mulaw", "mulaw", 8_000), ("alaw", "alaw", 16_000)],
)
async def test_samples_are_those_of_the_native_protocol(
    clauses: GatewayHarness, encoding: str, codec: str, rate: int
) -> None:
    async with client(clauses, encoding=encoding, sample_rate=str(rate)) as talk:
        await talk.say(*TEXT)
        await talk.flush()
        await talk.until("Flushed")
    audio = {"codec": codec, "sample_rate": rate, "frame_ms": 40}
    assert talk.pcm == await native_pcm(clauses.ws_url, TEXT, audio)
    assert len(talk.pcm) > rate


async def test_words_are_spoken_before_the_flush(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.say("Hello ", "there, ", "this ", "is ", "spoken ", "already. ", "And ")
        await talk.until("audio")
        await talk.flush()
        await talk.until("Flushed")
        assert talk.kinds() == ["Flushed"]


async def test_each_flush_is_answered_once_and_turns_follow_each_other(clauses: GatewayHarness) -> None:
    """Three turns at once sound as one after the other."""
    turns = ["The first turn.", "And the second one, which is longer.", "Third."]

    async def heard(wait: bool) -> tuple[bytes, list[dict[str, Any]]]:
        async with client(clauses) as talk:
            for text in turns:
                await talk.say(text)
                await talk.flush()
                if wait:
                    await talk.until("Flushed")
            while talk.kinds() != ["Flushed"] * 3:
                await talk.hear()
        return talk.pcm, [message for message in talk.told if message["type"] == "Flushed"]

    at_once, told = await heard(wait=False)
    assert (at_once, told) == await heard(wait=True)
    assert [message["sequence_id"] for message in told] == [0, 1, 2]


async def test_flushes_of_nothing_are_answered_too(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.send({"type": "Flush"}, {"type": "Flush"}, {"type": "Clear"}, {"type": "Flush"})
        while talk.kinds()[-2:] != ["Cleared", "Flushed"]:
            await talk.hear()
    assert talk.pcm == b""


async def test_a_clear_frees_the_engine_within_a_step_and_leaves_nothing_stale(
    make_gateway: Callable[..., GatewayHarness],
) -> None:
    gateway = make_gateway(worker={"patch_delay_s": STEP_S})
    async with client(gateway) as talk:
        await talk.say("command never. ", "command never. ")
        await talk.flush()
        await talk.say("And more. ")
        await talk.flush()
        await talk.until("audio")
        num_steps, begun = gateway.call(lambda: gateway.gateway.engine.stats[0].num_steps), time.monotonic()
        await talk.send({"type": "Clear"})
        await talk.until("Cleared")
        talk.pcm = b""
        max_steps = 2 + (time.monotonic() - begun) // STEP_S  # one may have been untold
        while (usage := gateway.usage()).requests or usage.engine_contexts:
            await asyncio.sleep(0.05)
        await asyncio.sleep(2.5 * STEP_S)
        assert gateway.call(lambda: gateway.gateway.engine.stats[0].num_steps) - num_steps <= max_steps
        await talk.flush()
        await talk.until("Flushed")
        assert talk.pcm == b""
        assert talk.kinds() == ["Cleared", "Flushed"]


async def test_a_close_is_immediate(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.say(LONG)
        await talk.until("audio")
        await talk.send({"type": "Flush"}, {"type": "Close"})
        with contextlib.suppress(ConnectionClosedOK):
            while True:
                await talk.hear()
        assert talk.socket.close_code == 1000
    assert talk.kinds() == []


async def test_metadata_names_the_model_and_the_request(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        metadata = await talk.until("Metadata")
        assert talk.socket.response.headers["dg-request-id"] == metadata["request_id"]
    assert metadata["model_name"] == "fake-voice"


@pytest.mark.parametrize("frame", ["nonsense", b"\x00\x01", '{"type":"Configure"}', '{"type":"Speak"}'])
async def test_an_invalid_message_is_answered_and_the_socket_stays_open(
    gateway: GatewayHarness, frame: str | bytes
) -> None:
    async with client(gateway) as talk:
        await talk.say("Hello ")
        await talk.socket.send(frame)
        assert (await talk.until("Error"))["err_code"] == "invalid_message"
        await talk.say("there.")
        await talk.flush()
        await talk.until("Flushed")


async def test_an_error_of_a_turn_is_told_once_and_the_next_turn_is_spoken(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.say("Hi " * 10_000, "more ", "and more ")
        assert (await talk.until("Error"))["err_code"] == "text_too_long"
        await talk.flush()
        await talk.until("Flushed")
        await talk.say("Next.")
        await talk.flush()
        await talk.until("Flushed")
        assert talk.kinds() == ["Error", "Flushed", "Flushed"]
        assert talk.pcm


async def test_repeated_invalid_messages_close_the_socket(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(40):
                await talk.socket.send("nonsense")
                await talk.hear()
    assert talk.socket.close_code == 1008


@pytest.mark.parametrize(
    ("query", "word"),
    [({"encoding": "mp3"}, "encoding"), ({"sample_rate": "12345"}, "sample_rate"), ({"container": "wav"}, "container")],
)
async def test_an_invalid_address_is_refused(gateway: GatewayHarness, query: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(address(gateway, **query), proxy=None)
    response = refused.value.response
    assert response.status_code == 400
    assert json.loads(response.body)["err_code"] == "unsupported_audio_format"
    assert word in response.headers["dg-error"]


@pytest.mark.parametrize("place", ["header", "subprotocol"])
async def test_keys_have_their_place(make_gateway: Callable[..., GatewayHarness], place: str) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))

    def sent(secret: str) -> dict[str, Any]:
        if place == "header":
            return {"additional_headers": {"authorization": f"Token {secret}"}}
        return {"subprotocols": [Subprotocol("token"), Subprotocol(secret)]}

    async with connect(address(gateway), proxy=None, **sent(key)) as socket:
        talk = Client(socket)
        await talk.say("Hello.")
        await talk.flush()
        await talk.until("Flushed")
    with pytest.raises(InvalidStatus) as refused:
        await connect(address(gateway), proxy=None, **sent("wrong"))
    body = json.loads(refused.value.response.body)
    assert (refused.value.response.status_code, body["err_code"]) == (401, "unauthorized")
