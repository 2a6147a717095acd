"""The phone bot, with a test that plays the carrier: it buffers audio, plays it in real time, and returns marks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import numpy as np
import pytest
from bot_serving import listening
from client_fake_server import Connection, scripted
from server_environment import ROOT
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

sys.path.insert(0, str(ROOT / "agents"))

from conversation import History
from phone_bot import Bot, Call

PACKET_MS = 20
SILENCE = b"\xff" * 160
LOUD = bytes(np.random.default_rng(3).choice(np.frombuffer(b"\x00\x80\x10\x90", np.uint8), 160))


class Carrier:
    """One call. What is played is noted with when it was."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._buffer: list[tuple[str, Any]] = []  # ("audio", payload) or ("mark", name)
        self.events: list[str] = []  # as they came
        self.played_packets: list[bytes] = []
        self.num_played_at_clear = 0
        self.microphone = SILENCE
        self.sounds: list[bytes] = []  # packets said before those of the microphone
        self._num_sent = 0

    async def say(self, event: str, **fields: Any) -> None:
        self._num_sent += 1
        message = {"event": event, "sequenceNumber": str(self._num_sent), "streamSid": "MZ1", **fields}
        await self._socket.send(json.dumps(message))

    async def start(self) -> None:
        await self._socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        form = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        await self.say(
            "start", start={"streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "mediaFormat": form}
        )

    async def receive(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in self._socket:
                fields = json.loads(message)
                assert fields["streamSid"] == "MZ1"
                self.events.append(fields["event"])
                if fields["event"] == "media":
                    payload = base64.b64decode(fields["media"]["payload"])
                    assert len(payload) == 8 * PACKET_MS
                    self._buffer.append(("audio", payload))
                elif fields["event"] == "mark":
                    self._buffer.append(("mark", fields["mark"]["name"]))
                else:
                    assert fields["event"] == "clear"
                    self.num_played_at_clear = len(self.played_packets)
                    marks, self._buffer = [name for kind, name in self._buffer if kind == "mark"], []
                    for name in marks:  # as Twilio does: of what was thrown away, too
                        await self.say("mark", mark={"name": name})

    async def play(self) -> None:
        """A packet each 20 ms, and what the caller says."""
        with contextlib.suppress(ConnectionClosed):
            next_at = time.monotonic()
            while True:
                payload = base64.b64encode(self.sounds.pop() if self.sounds else self.microphone).decode()
                await self.say("media", media={"track": "inbound", "payload": payload})
                await self._play_one()
                next_at += PACKET_MS / 1000
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def _play_one(self) -> None:
        while self._buffer and self._buffer[0][0] == "mark":
            await self.say("mark", mark={"name": self._buffer.pop(0)[1]})
        if self._buffer:
            self.played_packets.append(self._buffer.pop(0)[1])

    @property
    def played_ms(self) -> float:
        return len(self.played_packets) * PACKET_MS


async def until(condition: Callable[[], Any]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), 20)


@contextlib.asynccontextmanager
async def phoning(tts_url: str, answers: list[str], **options: Any) -> AsyncIterator[tuple[Carrier, Call, Bot]]:
    async def answer(history: History) -> AsyncIterator[str]:
        for word in answers[sum(line["role"] == "assistant" for line in history)].split(" "):
            yield word + " "

    bot = Bot(tts_url, answer=answer, **options)
    async with listening(bot.application()) as host:
        url = f"ws://{host}/media"
        async with connect(url) as socket:
            carrier = Carrier(socket)
            tasks = [asyncio.create_task(carrier.receive()), asyncio.create_task(carrier.play())]
            await until(lambda: bot.calls)
            await carrier.start()
            try:
                yield carrier, next(iter(bot.calls)), bot
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_turn_that_is_heard_to_its_end_is_the_history(fake_gateway: str) -> None:
    async with phoning(fake_gateway, ["Hello, this is the bot."]) as (carrier, call, _):
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": "Hello, this is the bot. "}]
        assert call.turn is not None
        assert call.turn.context.done is not None
        assert carrier.played_ms == call.turn.played_ms == call.turn.context.done.audio_ms
        assert "clear" not in carrier.events


LONG = "I could go on about this for a very long time, and so I shall, as nobody has asked me to stop yet."


@pytest.mark.parametrize("after_ms", [400, 1500])
async def test_a_caller_who_speaks_is_let_speak_and_the_history_is_what_was_heard(
    fake_gateway: str, after_ms: int
) -> None:
    async with phoning(fake_gateway, [LONG, "As you say."]) as (carrier, call, _):
        await until(lambda: carrier.played_ms >= after_ms)
        first = call.turn
        assert first is not None
        carrier.microphone = LOUD
        await until(lambda: "clear" in carrier.events)
        await until(lambda: call.history)
        heard = call.history[0]["content"]
        ends_ms = [word.end_ms for word in first.context.words]
        heard_ms = carrier.num_played_at_clear * PACKET_MS
        num_heard = len(heard.split())
        assert heard == LONG[: len(heard)]
        assert num_heard == 0 or ends_ms[num_heard - 1] <= heard_ms, "a word that was not heard"
        assert ends_ms[num_heard + 1] > heard_ms, "more than a word is missing"
        num_played = len(carrier.played_packets)
        await asyncio.sleep(0.2)
        assert len(carrier.played_packets) == num_played  # nothing of the old turn afterwards
        carrier.microphone = SILENCE
        await until(lambda: len(call.history) == 3)
        assert [line["role"] for line in call.history] == ["assistant", "user", "assistant"]
        assert call.history[2]["content"] == "As you say. "
        assert carrier.events.count("clear") == 1


async def test_after_a_nod_it_goes_on_at_the_word_where_it_stopped(fake_gateway: str) -> None:
    async with phoning(fake_gateway, [LONG]) as (carrier, call, _):
        await until(lambda: carrier.played_ms >= 1000)
        turn = call.turn
        assert turn is not None
        carrier.sounds = [LOUD] * 10  # "mhm"
        await until(lambda: turn.num_holds == 1)
        num_played = carrier.num_played_at_clear
        ends_ms = [word.end_ms for word in turn.context.words]
        assert any(end_ms <= num_played * PACKET_MS for end_ms in ends_ms)
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": LONG + " "}]
        assert carrier.events.count("clear") == 1
        assert turn.context.done is not None
        assert call.turn is turn
        assert carrier.played_ms >= turn.context.done.audio_ms - PACKET_MS  # nothing is left out


async def test_marks_of_audio_that_was_thrown_away_do_not_count(fake_gateway: str) -> None:
    async with phoning(fake_gateway, [LONG, "Yes."]) as (carrier, call, _):
        await until(lambda: carrier.events.count("mark") >= 5)
        first = call.turn
        assert first is not None
        carrier.microphone = LOUD
        await until(lambda: call.history)
        played_ms = first.played_ms
        assert played_ms <= carrier.num_played_at_clear * PACKET_MS
        await asyncio.sleep(0.1)  # for the marks that the carrier returned with the clear
        assert first.played_ms == played_ms


async def test_a_call_that_ends_frees_its_session(fake_gateway: str) -> None:
    async with phoning(fake_gateway, [LONG]) as (carrier, call, bot):
        await until(lambda: carrier.played_packets)
        await carrier.say("stop", stop={"callSid": "CA1"})
        await until(lambda: not bot.calls)
        assert call._session.closed


async def test_a_line_that_breaks_frees_its_session_and_is_no_fault(
    fake_gateway: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with phoning(fake_gateway, [LONG]) as (carrier, call, bot):
        await until(lambda: carrier.played_packets)
        carrier._socket.transport.abort()
        await until(lambda: not bot.calls)
        assert call._session.closed
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_page_in_somebodys_browser_cannot_call(fake_gateway: str) -> None:
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host:
        url = f"ws://{host}/media"
        with pytest.raises(InvalidStatus, match="403"):
            await connect(url, origin=Origin("https://elsewhere.example.org"))


START = json.dumps({"event": "start", "start": {"streamSid": "MZ1"}})


def mark(name: str) -> str:
    return json.dumps({"event": "mark", "mark": {"name": name}})


@pytest.mark.parametrize(
    "messages",
    [
        ["[]"],
        ['{"event": "start"}'],
        ['{"event": "start", "start": {"streamSid": []}}'],
        [START, START],
        [START, '{"event": "media", "media": {"payload": "?"}}'],
        [START, mark("one")],
        [START, mark("1/inf")],
        [START, mark("1/nan")],
        [START, mark("1/1e308/end")],
        ["no"],
        [b"\xff\x00"],
        ["\N{GRINNING FACE}" * 200],
        pytest.param(["[" * 60_000], id="deeply nested"),
        pytest.param(['{"event": ' + "[" * 60_000], id="deeply nested event"),
    ],
)
async def test_malformed_messages_end_the_call_alone(
    fake_gateway: str, messages: list[str | bytes], caplog: pytest.LogCaptureFixture
) -> None:
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host:
        url = f"ws://{host}/media"
        async with connect(url) as socket:
            for message in messages:
                await socket.send(message)
            await asyncio.wait_for(socket.wait_closed(), 10)
            assert socket.close_code == 1003
        async with connect(url):
            await until(lambda: bot.calls)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_message_that_is_too_large_ends_the_call(fake_gateway: str) -> None:
    async with (
        listening(Bot(fake_gateway).application()) as host,
        connect(f"ws://{host}/media") as socket,
    ):
        await socket.send(json.dumps({"event": "media", "media": {"payload": "A" * 100_000}}))
        await socket.wait_closed()
        assert socket.close_code == 1009


async def test_a_stream_that_is_not_started_is_no_call(fake_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is said meanwhile."""
    monkeypatch.setattr("phone_bot.START_S", 0.3)
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host:
        async with connect(f"ws://{host}/media") as socket:
            media = json.dumps({"event": "media", "media": {"payload": base64.b64encode(LOUD * 50).decode()}})
            with contextlib.suppress(ConnectionClosed):
                for _ in range(1000):
                    await socket.send(media)
                    await asyncio.sleep(0.02)
            assert socket.close_code == 1008
        await until(lambda: not bot.calls)


async def test_nothing_is_spoken_before_the_stream_has_started(fake_gateway: str) -> None:
    bot = Bot(fake_gateway)
    async with (
        listening(bot.application()) as host,
        connect(f"ws://{host}/media") as socket,
    ):
        await until(lambda: bot.calls)
        [call] = bot.calls
        for sound in (LOUD * 50, SILENCE * 50):  # which is an utterance
            media = {"event": "media", "media": {"payload": base64.b64encode(sound).decode()}}
            await socket.send(json.dumps(media))
        await socket.send(START)
        await until(lambda: call.turn)
        assert call.turn is not None
        assert call.turn.number == 1


async def test_no_more_calls_than_it_may_have(fake_gateway: str) -> None:
    bot = Bot(fake_gateway, max_calls=2)
    async with listening(bot.application()) as host:
        url = f"ws://{host}/media"
        async with connect(url):
            async with connect(url):
                with pytest.raises(InvalidStatus, match="503"):
                    await connect(url)
            await until(lambda: len(bot.calls) == 1 and len(bot._sockets) == 1)
            async with connect(url):
                await until(lambda: len(bot.calls) == 2)


async def test_a_turn_that_fails_leaves_what_was_heard(caplog: pytest.LogCaptureFixture) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        heard = {"audio_ms": 0, "spoken_text": "One ", "spoken_chars": 4}
        fields = {"code": "engine_lost", "message": "gone", "retryable": True, **heard}
        await connection.send("context.failed", context_id=context_id, sequence=1, **fields)

    async with scripted(script) as (url, _), phoning(url, ["One two three."]) as (carrier, call, _bot):
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": "One "}]
        assert "the turn ended early" in caplog.text
        assert carrier.events == ["mark"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_only_the_agreed_path_is_answered_and_twiml_names_it(fake_gateway: str, method: str) -> None:
    """Carriers ask for instructions with POST and a form, unless they are told otherwise."""
    bot = Bot(fake_gateway, path="/secret", public_url="wss://bot.example.org/")
    async with listening(bot.application()) as host, aiohttp.ClientSession() as http:
        form = {"CallSid": "CA1", "From": "+15550100"} if method == "POST" else None
        async with http.request(method, f"http://{host}/secret/twiml", data=form) as answer:
            assert (answer.status, answer.content_type) == (200, "application/xml")
            assert '<Stream url="wss://bot.example.org/secret"/>' in await answer.text()
        async with http.request(method, f"http://{host}/twiml", data=form) as answer:
            assert answer.status == 404, "the secret would be no secret"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
            await http.ws_connect(f"http://{host}/media")


async def test_without_a_secret_the_instruction_has_a_short_address(fake_gateway: str) -> None:
    bot = Bot(fake_gateway, public_url="wss://bot.example.org")
    async with (
        listening(bot.application()) as host,
        aiohttp.ClientSession() as http,
        http.post(f"http://{host}/twiml") as answer,
    ):
        assert '<Stream url="wss://bot.example.org/media"/>' in await answer.text()


@pytest.mark.parametrize(
    "options",
    [
        {"path": "media"},
        {"path": "/{anything}"},
        {"path": "/a?b"},
        {"path": ""},
        {"public_url": "https://bot.example.org"},
    ],
)
def test_addresses_that_no_carrier_could_use_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Bot("ws://127.0.0.1:9", **options)  # type: ignore[arg-type]


async def test_a_bot_without_a_public_address_gives_no_instructions(fake_gateway: str) -> None:
    async with (
        listening(Bot(fake_gateway).application()) as host,
        aiohttp.ClientSession() as http,
        http.post(f"http://{host}/twiml", data={"CallSid": "CA1"}) as answer,
    ):
        assert answer.status == 404


async def test_a_call_ends_with_the_bot(fake_gateway: str) -> None:
    async with listening(Bot(fake_gateway).application()) as host:
        socket = await connect(f"ws://{host}/media")
    with pytest.raises(ConnectionClosed):
        await socket.recv()
    assert socket.close_code == 1001
