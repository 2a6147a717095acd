"""Cartesia's addresses on a real server: sound, words, interruptions, refusals."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gateway_harness import GatewayHarness
from stream_client import native_pcm
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from realtime_tts.server.admission.auth import create_key

TEXT = "Hello there, this is a whole sentence. And here is another one! "
STEP_S = 0.4
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}


def address(gateway: GatewayHarness) -> str:
    return gateway.url.replace("http", "ws", 1) + "/tts/websocket?cartesia_version=2026-03-01"


def request(transcript: str, context_id: str = "a", more: bool = False, **fields: Any) -> dict[str, Any]:
    return {
        "model_id": "sonic-3", "voice": {"mode": "id", "id": "katie"}, "output_format": RAW, "context_id": context_id,
        "transcript": transcript, "continue": more, **fields,
    }  # fmt: skip


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []

    async def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            await self.socket.send(json.dumps(message))

    async def hear(self) -> dict[str, Any]:
        self.events.append(json.loads(await asyncio.wait_for(self.socket.recv(), 10)))
        return self.events[-1]

    async def until(self, kind: str, context_id: str | None = "a") -> dict[str, Any]:
        while (event := await self.hear())["type"] != kind or event.get("context_id") != context_id:
            pass
        return event

    def of(self, kind: str, context_id: str = "a") -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind and event["context_id"] == context_id]

    def audio(self, context_id: str = "a") -> bytes:
        return b"".join(base64.b64decode(event["data"]) for event in self.of("chunk", context_id))

    def words(self, context_id: str = "a") -> list[str]:
        return [word for event in self.of("timestamps", context_id) for word in event["word_timestamps"]["words"]]


@contextlib.asynccontextmanager
async def client(gateway: GatewayHarness, **headers: str) -> AsyncIterator[Client]:
    async with connect(address(gateway), proxy=None, additional_headers=headers) as socket:
        yield Client(socket)


@pytest.mark.parametrize(
    ("encoding", "codec", "rate"),
    [
        ("pcm_s16le", "pcm_s16le", 24_000),
        ("pcm_s16le", "pcm_s16le", 22_050),
        ("pcm_f32le", "pcm_f32le", 44_100),
        ("pcm_mulaw", "mulaw", 8_000),
        ("pcm_alaw", "alaw", 8_000),
    ],
)
async def test_samples_are_those_of_the_native_protocol(
    clauses: GatewayHarness, encoding: str, codec: str, rate: int
) -> None:
    async with client(clauses) as talk:
        wanted = {"container": "raw", "encoding": encoding, "sample_rate": rate}
        for letter in TEXT:
            await talk.say(request(letter, more=True, output_format=wanted))
        await talk.say(request("", output_format=wanted))
        await talk.until("done")
    audio = {"codec": codec, "sample_rate": rate, "frame_ms": 40}
    assert talk.audio() == await native_pcm(clauses.ws_url, TEXT, audio)
    assert len(talk.audio()) > rate


async def test_words_come_in_order_and_no_later_than_their_audio(clauses: GatewayHarness) -> None:
    async with client(clauses) as talk:
        await talk.say(request(TEXT, add_timestamps=True))
        await talk.until("done")
    assert talk.words() == TEXT.split()
    sent_s, starts = 0.0, []
    for event in talk.events:
        if event["type"] == "chunk":
            sent_s += len(base64.b64decode(event["data"])) / 32_000
        elif event["type"] == "timestamps":
            times = event["word_timestamps"]
            starts += times["start"]
            assert times["start"][-1] >= sent_s - 0.04
            assert all(start <= end for start, end in zip(times["start"], times["end"], strict=True))
    assert starts == sorted(starts)


async def test_contexts_side_by_side_keep_their_own(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        for word in ("Many ", "words ", "for ", "both."):
            await talk.say(*(request(word, name, more=True, add_timestamps=True) for name in "ab"))
        await talk.say(request("", "a"), request("", "b"))
        await talk.until("done", "a")
        if not talk.of("done", "b"):
            await talk.until("done", "b")
    assert talk.words("a") == talk.words("b") == ["Many", "words", "for", "both."]
    assert len(talk.audio("a")) == len(talk.audio("b"))


async def test_sentences_without_a_blank_between_them_stay_two(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        for sentence in ("One is here.", "Two is there."):
            await talk.say(request(sentence, more=True, max_buffer_delay_ms=0, add_timestamps=True))
        await talk.say(request(""))
        await talk.until("done")
    assert talk.words() == ["One", "is", "here.", "Two", "is", "there."]
    assert [event["flush_id"] for event in talk.of("flush_done")] == [1, 2]


async def test_a_cancel_frees_the_engine_within_a_step(make_gateway: Callable[..., GatewayHarness]) -> None:
    gateway = make_gateway(worker={"patch_delay_s": STEP_S})
    async with client(gateway) as talk:
        await talk.say(request("command never. ", more=True), request("command never. ", more=True))
        await talk.until("chunk")
        num_steps, begun = gateway.call(lambda: gateway.gateway.engine.stats[0].num_steps), time.monotonic()
        await talk.say({"context_id": "a", "cancel": True}, request("too late ", more=True))
        await talk.until("done")
        max_steps = 2 + (time.monotonic() - begun) // STEP_S  # one may have been untold
        while (usage := gateway.usage()).requests or usage.engine_contexts:
            await asyncio.sleep(0.05)
        await asyncio.sleep(2.5 * STEP_S)
        assert gateway.call(lambda: gateway.gateway.engine.stats[0].num_steps) - num_steps <= max_steps
        talk.events.clear()
        await talk.say(request("Next.", "b"))
        await talk.until("done", "b")
        assert {event["context_id"] for event in talk.events} == {"b"}


@pytest.mark.parametrize(
    ("frame", "code", "context_id"),
    [
        ("nonsense", "invalid_message", None),
        (b"\xff", "invalid_message", None),
        ("[]", "invalid_message", None),
        (json.dumps({"context_id": "a"}), "invalid_message", "a"),
        (json.dumps(request("Hi", output_format={**RAW, "container": "mp3"})), "unsupported_audio_format", "a"),
        (json.dumps(request("Hi", language="xx")), "unsupported_language", "a"),
        (json.dumps(request("Hi " * 10_000)), "text_too_long", "a"),
    ],
)  # fmt: skip
async def test_an_invalid_message_is_answered_and_the_socket_stays_open(
    gateway: GatewayHarness, frame: str | bytes, code: str, context_id: str | None
) -> None:
    async with client(gateway) as talk:
        await talk.socket.send(frame)
        error = await talk.until("error", context_id)
        assert (error["error_code"], error["done"]) == (code, False)
        assert error["request_id"] == talk.socket.response.headers["x-request-id"]
        await talk.say(request("Hello.", "b"))
        await talk.until("done", "b")


async def test_an_error_in_a_turn_ends_it_at_the_engine_too(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.say(request("command never. ", more=True))
        await talk.until("chunk")
        await talk.say({**request("Hi", more=True), "transcript": 7}, request("", more=True))
        assert (await talk.until("error"))["error_code"] == "invalid_message"
        await talk.say(request("More of it. ", more=True))
        assert (await talk.until("error"))["error_code"] == "context_closed"
        await talk.say(request("Hello.", "b"))
        await talk.until("done", "b")
        assert [event["type"] for event in talk.events if event.get("context_id") == "a"].count("error") == 2
        assert gateway.usage().engine_contexts <= 1


async def test_repeated_invalid_messages_close_the_socket(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(40):
                await talk.socket.send("nonsense")
                await talk.hear()
    assert talk.socket.close_code == 1008


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"x-api-key": "wrong"}, 401), ({"x-api-key": "KEY"}, None), ({"authorization": "Bearer KEY"}, None)],
)
async def test_keys_have_their_place(
    make_gateway: Callable[..., GatewayHarness], headers: dict[str, str], status: int | None
) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,))
    sent = {name: value.replace("KEY", key) for name, value in headers.items()}
    if status is None:
        async with client(gateway, **sent) as talk:
            await talk.say(request("Hello."))
            await talk.until("done")
        return
    with pytest.raises(InvalidStatus) as refused:
        await connect(address(gateway), proxy=None, additional_headers=sent)
    body = json.loads(refused.value.response.body)
    assert (refused.value.response.status_code, body["error_code"], body["title"]) == (
        401,
        "unauthorized",
        "Unauthorized",
    )


@pytest.mark.parametrize(
    ("fields", "code"),
    [({}, "model_not_found"), ({"model_id": "fake-voice"}, "voice_not_found")],
)
async def test_a_strict_server_knows_only_what_it_has(
    make_gateway: Callable[..., GatewayHarness], fields: dict[str, str], code: str
) -> None:
    gateway = make_gateway(strict_ids=True)
    async with client(gateway) as talk:
        await talk.say(request("Hello.", **fields))
        assert (await talk.until("error"))["error_code"] == code
        await talk.say(request("Hello.", "b", model_id="fake-voice", voice={"mode": "id", "id": "rms"}))
        await talk.until("done", "b")
