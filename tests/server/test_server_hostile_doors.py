"""Hostile clients at the addresses of Deepgram, jambonz, LiveKit Inference and Vapi: each gets errors of the service's
form or a close with a code, leaves nothing behind, and another client is spoken to meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from raw_http import RawConnection, port_of
from stream_client import open_stream
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.http import speech_response

PATIENT_S = 60.0
KEY, KEY_HASH = create_key()
NEVER = '"command never. And more."'
HUGE = "1" + "0" * 400
DEEP = "[" * 5000 + "]" * 5000
WRONG_TEXTS = ("7", "-1.5", "true", "[]", "{}", '["Hi."]', DEEP, HUGE, str(2**64), "1e999", "NaN", "null")
NOT_JSON = ("", " ", "hello", "{", '{"text":', "'{}'", "[]", "null", "7", '"text"', DEEP, HUGE, "NaN", "{}{}")
QUERY_NAMES = ("sample_rate", "sampleRate", "speed", "encoding", "container", "model", "voice", "language", "resume")
QUERY_VALUES = ("", "%00", "%0d%0aset-cookie:%20a", "%ff%fe", "-1", "NaN", "1e999", HUGE, "%D9%A1", "%F0%9F%98%80")
QUERIES = [f"{name}={value}" for name in QUERY_NAMES for value in QUERY_VALUES]
UNPRINTABLE = (
    "\x00\x01\x1b[31m\x7f",
    "\u202e\u2066\u200b\ufeff",
    "\u4f60\u597d",
    "\u0645\u0631\u062d\u0628\u0627",
    "\ud800",
)


@dataclasses.dataclass(frozen=True)
class Door:
    """A WebSocket. "#" stands for the JSON of a text.

    Attributes:
        last: type of the message that follows the audio of a turn; "" if there is none.
        others: further messages, valid at any time.
        closing: messages after which the server closes the connection.
        wrong: messages with an invalid member.
        error: type and names of the members of an error.
    """

    path: str
    text: str
    end: str
    last: str
    others: tuple[str, ...]
    closing: tuple[str, ...]
    wrong: tuple[str, ...]
    error: tuple[str, ...]
    refusal: tuple[str, ...]  # members of the body of a refused handshake


DEEPGRAM_REFUSAL = ("err_code", "err_msg", "request_id")
DEEPGRAM = ("Error", "code", "description")
OFFSETS = ("7", '{"value":-1}', '{"value":"now"}', '{"value":1e999}', '{"value":' + HUGE + "}", '{"type":7,"value":1}')
DOORS = {
    "deepgram": Door(
        "/v1/speak?sample_rate=48000",
        '{"type":"Speak","text":#}',
        '{"type":"Flush"}',
        "Flushed",
        ('{"type":"Clear"}',),
        ('{"type":"Close"}',),
        (),
        DEEPGRAM,
        DEEPGRAM_REFUSAL,
    ),
    "flux": Door(
        "/v2/speak?sample_rate=48000",
        '{"type":"Speak","text":#}',
        '{"type":"Flush"}',
        "SpeechMetadata",
        (
            '{"type":"Interrupt"}',
            '{"type":"Interrupt","playback_offset":{"type":"time_ms","value":1e300}}',
            '{"type":"Interrupt","playback_offset":{"type":"time_ms","value":0}}',
            '{"type":"Configure","speed":18446744073709551616}',
            '{"type":"Configure"}',
        ),
        ('{"type":"Close"}',),
        (
            *('{"type":"Interrupt","playback_offset":' + offset + "}" for offset in OFFSETS),
            '{"type":"Configure","speed":"fast"}',
            '{"type":"Configure","speed":' + HUGE + "}",
        ),
        DEEPGRAM,
        DEEPGRAM_REFUSAL,
    ),
    "jambonz": Door(
        "/v1/jambonz?sampleRate=48000",
        '{"type":"stream","text":#}',
        '{"type":"flush"}',
        "",
        (),
        ('{"type":"stop"}',),
        (),
        ("error", "error", "code"),
        ("error", "code"),
    ),
    "livekit": Door(
        "/v1/tts",
        '{"type":"input_transcript","transcript":#}',
        '{"type":"session.flush"}',
        "done",
        ('{"type":"session.create","sample_rate":"48000"}', '{"type":"session.create"}'),
        (),
        (
            '{"type":"session.create","sample_rate":12345}',
            '{"type":"session.create","encoding":["mp3"]}',
            '{"type":"session.create","extra":7}',
            '{"type":"input_transcript","transcript":"Hi.","generation_config":[]}',
            '{"type":"input_transcript","transcript":"Hi.","extra":{"speed":[1]}}',
            '{"type":"input_transcript","transcript":"Hi.","extra":{"volume":' + HUGE + "}}",
        ),
        ("error", "code", "message"),
        ("type", "code", "message", "request_id"),
    ),
}
every_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


class Client:
    """A client of a door that checks the form of what it is told."""

    def __init__(self, socket: ClientConnection, door: Door) -> None:
        self.socket, self.door = socket, door
        self.num_errors = 0

    async def send(self, *frames: str | bytes) -> None:
        for frame in frames:
            await self.socket.send(frame)

    async def speak(self, text: str = '"Hello there."') -> None:
        await self.send(self.door.text.replace("#", text), self.door.end)

    async def receive(self) -> dict[str, Any]:
        frame = await asyncio.wait_for(self.socket.recv(), PATIENT_S)
        message: dict[str, Any] = {"type": "audio"} if isinstance(frame, bytes) else json.loads(frame)
        if message["type"] == self.door.error[0]:
            assert all(isinstance(message[name], str) and message[name] for name in self.door.error[1:])
            assert "internal_error" not in message.values()
            self.num_errors += 1
        return {**message, "type": "audio"} if message["type"] == "output_audio" else message

    async def until(self, *kinds: str) -> dict[str, Any]:
        while (message := await self.receive())["type"] not in kinds:
            pass
        return message

    async def until_closed(self) -> int | None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.receive()
        return self.socket.close_code

    async def is_spoken_to(self) -> None:
        await self.speak()
        await self.until("audio")
        if self.door.last:
            await self.until(self.door.last)


@contextlib.asynccontextmanager
async def client(gateway: GatewayHarness, door: Door, **options: Any) -> AsyncIterator[Client]:
    async with connect(gateway.url.replace("http", "ws", 1) + door.path, proxy=None, **options) as socket:
        yield Client(socket, door)


@contextlib.asynccontextmanager
async def honest_client_beside(gateway: GatewayHarness) -> AsyncIterator[None]:
    """A turn of another client that begins before, and ends after; and another one at the door."""
    # With a full queue the library would not read pings, and the server would close the connection after 20 s.
    async with open_stream(gateway.ws_url, max_queue=None) as stream:
        await stream.send("text", context_id="c", text="Hello there, this begins at once. ")
        await stream.until("audio", PATIENT_S)
        yield
        await stream.send("text", context_id="c", text="And some more.")
        await stream.send("end", context_id="c")
        assert (await stream.until_terminal("c", PATIENT_S))["type"] == "context.done"


def small_peer(gateway: GatewayHarness) -> socket.socket:
    """A connection whose buffer for what it does not read is small."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", port_of(gateway.url)))
    return peer


@pytest.fixture(scope="module")
def hasty() -> Iterator[GatewayHarness]:
    """A gateway that sends all audio at once and soon closes what is not read."""
    with GatewayHarness(slow_consumer_timeout_s=0.5, max_lead_s=60.0, worker={"patch_delay_s": 0.001}) as harness:
        yield harness


@pytest.fixture(scope="module")
def locked() -> Iterator[GatewayHarness]:
    """A gateway that requires a key."""
    with GatewayHarness(api_key_hashes=(KEY_HASH,), worker={"patch_delay_s": 0.002}) as harness:
        yield harness


# ---- WebSockets ------------------------------------------------------------------------------------------------------


@every_door
async def test_each_message_that_cannot_be_has_its_error(gateway: GatewayHarness, door: Door) -> None:
    texts = [door.text.replace("#", wrong) for wrong in WRONG_TEXTS]
    types = [f'{{"type":{wrong}}}' for wrong in ('"nonsense"', '""', '"__class__"', *WRONG_TEXTS)]
    frames = [*NOT_JSON, *texts, *types, *door.wrong, b"", b"\x00\xff\xfe", b"\x80" * 1000]
    async with honest_client_beside(gateway), client(gateway, door) as talk:
        for number, frame in enumerate(frames):
            if number % 10 == 0:
                await talk.is_spoken_to()  # 20 mistakes in a row would close the connection
            await talk.send(frame)
            await talk.until(door.error[0])
        await talk.is_spoken_to()
        assert talk.num_errors == len(frames)


@every_door
async def test_messages_out_of_order_do_no_harm(gateway: GatewayHarness, door: Door) -> None:
    text = door.text.replace("#", '"Hi there. "')
    async with honest_client_beside(gateway):
        async with client(gateway, door) as talk:
            await talk.send(door.end, *door.others, *door.others, door.end)
            await talk.send(text, *door.others, text, *door.others, door.end, door.end, *door.others)
            await talk.is_spoken_to()
        for last in door.closing:
            before = ((), (text,), (door.end, door.end), (text, door.end, text), (text, *door.others))
            after = ((text, door.end), (last, text, door.end, *door.others, text, last))
            for first, then in itertools.product(before, after):
                async with client(gateway, door) as talk:
                    with contextlib.suppress(ConnectionClosed):
                        await talk.send(*first, last, *then)
                    assert await talk.until_closed() == 1000


@every_door
async def test_too_much_text_ends_its_turn_and_too_large_a_message_the_connection(
    gateway: GatewayHarness, door: Door
) -> None:
    async with honest_client_beside(gateway), client(gateway, door) as talk:
        await talk.speak(json.dumps("Hi " * 10_000))
        error = await talk.until(door.error[0])
        assert "text_too_long" in error.values()
        await talk.is_spoken_to()
        await talk.send("a" * 1_000_000)
        assert await talk.until_closed() == 1009


@every_door
async def test_text_that_is_not_utf8_closes_the_connection(gateway: GatewayHarness, door: Door) -> None:
    async with honest_client_beside(gateway), client(gateway, door) as talk:
        await talk.send(door.text.replace("#", NEVER))
        await talk.until("audio")
        await talk.socket.send(b'{"type":"\xff\xfe"}', text=True)
        assert await talk.until_closed() == 1007


@every_door
async def test_texts_of_no_letters_end(gateway: GatewayHarness, door: Door) -> None:
    async with honest_client_beside(gateway), client(gateway, door) as talk:
        for text in UNPRINTABLE:
            await talk.speak(json.dumps(text))
            if door.last:
                await talk.until(door.last)
        await talk.is_spoken_to()
        assert not talk.num_errors


@every_door
async def test_a_flood_that_is_not_read_is_answered_or_closed(gateway: GatewayHarness, door: Door) -> None:
    """All small messages of the door, over and over; nothing is read until they are written."""
    messages = [door.text.replace("#", '"a"'), door.end, *door.others] * 300 + ['{"type":"fence"}']
    frames = [Frame(Opcode.TEXT, message.encode()).serialize(mask=True) for message in messages]
    async with honest_client_beside(gateway), client(gateway, door, max_queue=1) as talk:
        talk.socket.transport.write(b"".join(frames))
        try:
            while "type must be one of" not in str(await talk.until(door.error[0])):
                pass
        except ConnectionClosed:
            assert talk.socket.close_code in (1008, 1013)
        talk.socket.transport.abort()  # a close would wait for what is not read


@every_door
async def test_a_client_that_never_reads_is_closed(hasty: GatewayHarness, door: Door) -> None:
    baseline, num_closed = hasty.usage(), hasty.metric("slow_consumers_total")
    with small_peer(hasty) as peer:
        async with honest_client_beside(hasty), client(hasty, door, sock=peer, max_queue=1, close_timeout=0) as talk:
            await talk.speak(NEVER)
            async with asyncio.timeout(PATIENT_S):
                while hasty.metric("slow_consumers_total") == num_closed:
                    await asyncio.sleep(0.05)
    assert hasty.settle(baseline) == baseline


@every_door
async def test_a_client_that_has_stopped_reading_before_its_session_is_closed(
    hasty: GatewayHarness, door: Door
) -> None:
    """The pongs fill its connection."""
    baseline, num_closed = hasty.usage(), hasty.metric("slow_consumers_total")
    ping = Frame(Opcode.PING, bytes(125)).serialize(mask=True)
    with small_peer(hasty) as peer:
        async with honest_client_beside(hasty), client(hasty, door, sock=peer, close_timeout=0) as talk:
            talk.socket.transport.pause_reading()
            talk.socket.transport.write(ping * 10_000)
            await talk.speak()
            async with asyncio.timeout(PATIENT_S):
                while hasty.metric("slow_consumers_total") == num_closed:
                    await asyncio.sleep(0.05)
            talk.socket.transport.abort()
    assert hasty.settle(baseline) == baseline


@every_door
async def test_a_client_that_hangs_up_at_any_point_leaves_nothing(gateway: GatewayHarness, door: Door) -> None:
    baseline = gateway.usage()
    text = door.text.replace("#", NEVER)
    messages = (text, *door.others, door.end, *door.others, text, *door.closing)
    async with honest_client_beside(gateway):
        for num_sent in range(len(messages) + 1):
            for hears in (False, True):
                async with client(gateway, door) as talk:
                    for message in messages[:num_sent]:
                        await talk.send(message)
                        if hears and message is messages[0]:
                            await talk.until("audio")
                    talk.socket.transport.abort()
    assert gateway.settle(baseline) == baseline


@every_door
async def test_an_invalid_address_is_refused_or_does_no_harm(gateway: GatewayHarness, door: Door) -> None:
    path = door.path.partition("?")[0]
    for query in QUERIES:
        try:
            async with client(gateway, dataclasses.replace(door, path=f"{path}?{query}")) as talk:
                await talk.speak()
                await talk.until("audio", door.error[0])
        except InvalidStatus as refused:
            check_refusal(refused.response, door.refusal, 400)


@every_door
async def test_without_its_key_a_handshake_is_refused(locked: GatewayHarness, door: Door) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer \xff"}):
        with pytest.raises(InvalidStatus) as refused:
            async with client(locked, door, additional_headers=headers):
                pass
        check_refusal(refused.value.response, door.refusal, 401)
    async with client(locked, door, additional_headers={"authorization": f"Bearer {KEY}"}) as talk:
        await talk.is_spoken_to()


def check_refusal(answer: Any, members: tuple[str, ...], status: int) -> None:
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    body = json.loads(answer.body if hasattr(answer, "body") else answer.content)
    assert set(body) == set(members)
    assert "internal_error" not in body.values()


# ---- HTTP ------------------------------------------------------------------------------------------------------------

# Path, body with "#" for the JSON of a text, members of an error, and a key's header.
HttpDoor = tuple[str, str, tuple[str, ...], str]
HTTP_DOORS: dict[str, HttpDoor] = {
    "flux": ("/v2/speak", '{"text":#}', DEEPGRAM_REFUSAL, "authorization"),
    "vapi": (
        "/v1/vapi",
        '{"message":{"type":"voice-request","text":#}}',
        ("error", "code", "requestId"),
        "x-vapi-secret",
    ),
    "jambonz": ("/v1/jambonz", '{"text":#}', ("error", "code"), "authorization"),
}
every_http_door = pytest.mark.parametrize("door", HTTP_DOORS.values(), ids=HTTP_DOORS)


def http_client(gateway: GatewayHarness) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=PATIENT_S)


@every_http_door
async def test_each_body_that_cannot_be_has_its_error(gateway: GatewayHarness, door: HttpDoor) -> None:
    path, body, members, _ = door
    texts = [body.replace("#", wrong) for wrong in (*WRONG_TEXTS, '""', '" "')]
    encoded = [body.replace("#", '"Hi."').encode(name) for name in ("utf-16", "utf-32")]
    async with honest_client_beside(gateway), http_client(gateway) as http:
        for content in (*NOT_JSON, *texts, *encoded, b"\x00\xff\xfe", body.encode().replace(b"#", b'"\xff"')):
            check_refusal(await http.post(path, content=content), members, 400)
        for content in (body.replace("#", json.dumps("a" * 30_000)), "a" * 1_000_000):
            check_refusal(await http.post(path, content=content), members, 413)
        for text in UNPRINTABLE:
            assert (await http.post(path, content=body.replace("#", json.dumps(text)))).status_code == 200
        for query in QUERIES:
            answer = await http.post(f"{path}?{query}", content=body.replace("#", '"Hi."'))
            assert answer.content
            if answer.status_code != 200:
                check_refusal(answer, members, 400)


@every_http_door
async def test_without_its_key_a_request_is_refused(locked: GatewayHarness, door: HttpDoor) -> None:
    path, body, members, name = door
    content = body.replace("#", '"Hi."')
    async with http_client(locked) as http:
        for headers in ({}, {"authorization": "Bearer wrong"}, {name: "wrong"}, {name: b"\xff"}):
            check_refusal(await http.post(path, content=content, headers=headers), members, 401)
        good = {name: KEY if name.startswith("x-") else f"Bearer {KEY}"}
        assert (await http.post(path, content=content, headers=good)).status_code == 200


@every_http_door
async def test_a_request_that_is_hung_up_at_any_point_leaves_nothing(gateway: GatewayHarness, door: HttpDoor) -> None:
    baseline = gateway.usage()
    whole = request_bytes(door)
    async with honest_client_beside(gateway):
        for num_sent in (1, whole.index(b"\r\n\r\n"), len(whole) - 9, len(whole)):
            for reads in (False, True):
                async with RawConnection(gateway.url) as connection:
                    connection.send(whole[:num_sent])
                    if reads and num_sent == len(whole):
                        await connection.read_until(b"\r\n\r\n", PATIENT_S)
    assert gateway.settle(baseline) == baseline


@every_http_door
async def test_an_answer_that_is_never_read_is_cut_off(
    hasty: GatewayHarness, monkeypatch: pytest.MonkeyPatch, door: HttpDoor
) -> None:
    monkeypatch.setattr(speech_response, "_UNREAD_S", 0.3)
    baseline = hasty.usage()
    with small_peer(hasty) as peer:
        async with honest_client_beside(hasty):
            peer.sendall(request_bytes(door))
            for num_wanted in (1, 0):
                async with asyncio.timeout(PATIENT_S):
                    while hasty.metric("http_speeches") != num_wanted:
                        await asyncio.sleep(0.01)
    assert hasty.settle(baseline) == baseline


def request_bytes(door: HttpDoor) -> bytes:
    path, body, _, _ = door
    content = body.replace("#", NEVER)
    head = f"POST {path}?sample_rate=48000 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}"
    return f"{head}\r\n\r\n{content}".encode()
