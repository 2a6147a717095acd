"""The phone bot, with tests that play the carriers (`phone_carriers`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from bot_serving import listening
from client_fake_server import Connection, scripted
from phone_carriers import CARRIERS, PACKET_MS, Carrier
from server_environment import ROOT
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

sys.path.insert(0, str(ROOT / "agents"))

from carriers import CARRIERS as TABLE
from conversation import History
from phone_bot import Bot, Call


@pytest.fixture(params=CARRIERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def until(condition: Callable[[], Any]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), 60)


@contextlib.asynccontextmanager
async def phoning(
    name: str, tts_url: str, answers: list[str], **options: Any
) -> AsyncIterator[tuple[Carrier, Call, Bot]]:
    async def answer(history: History) -> AsyncIterator[str]:
        for word in answers[sum(line["role"] == "assistant" for line in history)].split(" "):
            yield word + " "

    bot = Bot(tts_url, answer=answer, **options)
    async with listening(bot.application()) as host, calling(name, host) as carrier:
        tasks = [asyncio.create_task(carrier.receive()), asyncio.create_task(carrier.play())]
        await until(lambda: bot.calls)
        for message in carrier.start():
            await carrier.say(message)
        try:
            yield carrier, next(iter(bot.calls)), bot
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [result for result in results if isinstance(result, AssertionError)] == []


@contextlib.asynccontextmanager
async def calling(name: str, host: str) -> AsyncIterator[Carrier]:
    carrier = CARRIERS[name]
    protocols = [carrier.subprotocol] if carrier.subprotocol else None
    async with connect(f"ws://{host}/media/{name}", subprotocols=protocols) as socket:  # type: ignore[arg-type]
        assert socket.subprotocol == carrier.subprotocol
        yield carrier(socket)


async def test_a_turn_that_is_heard_to_its_end_is_the_history(fake_gateway: str, name: str) -> None:
    async with phoning(name, fake_gateway, ["Hello, this is the bot."]) as (carrier, call, _):
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": "Hello, this is the bot. "}]
        assert call.turn is not None
        assert call.turn.context.done is not None
        assert carrier.played_ms == call.turn.played_ms == call.turn.context.done.audio_ms
        assert "clear" not in carrier.events


SHORTER = "I could go on about this for a very long time."
LONG = "I could go on about this for a very long time, and so I shall, as nobody has asked me to stop yet."


@pytest.mark.parametrize(
    ("name", "after_ms"), [("twilio", 400), ("twilio", 1500), *((name, 700) for name in CARRIERS if name != "twilio")]
)
async def test_a_caller_who_speaks_interrupts_and_the_history_is_what_was_heard(
    fake_gateway: str, name: str, after_ms: int
) -> None:
    async with phoning(name, fake_gateway, [LONG, "As you say."]) as (carrier, call, _):
        await until(lambda: carrier.played_ms >= after_ms)
        first = call.turn
        assert first is not None
        carrier.microphone = carrier.loud
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
        carrier.microphone = carrier.silence
        await until(lambda: len(call.history) == 3)
        assert [line["role"] for line in call.history] == ["assistant", "user", "assistant"]
        assert call.history[2]["content"] == "As you say. "
        assert carrier.events.count("clear") == 1


async def test_sound_that_arrives_at_once_cuts_no_word_of_the_history(fake_gateway: str, name: str) -> None:
    """As after a jam of the network: the turn is over before its last word was played."""
    async with phoning(name, fake_gateway, [LONG, "Yes."]) as (carrier, call, _):
        await until(lambda: carrier.played_ms >= 700)
        first = call.turn
        assert first is not None
        for _ in range(30):
            await carrier.say(carrier.media(carrier.loud))
        await until(lambda: call.history)
        num_heard = len(call.history[0]["content"].split())
        assert num_heard > 0
        assert first.context.words[num_heard - 1].end_ms <= carrier.num_played_at_clear * PACKET_MS


async def test_after_a_nod_it_goes_on_at_the_word_where_it_stopped(fake_gateway: str, name: str) -> None:
    async with phoning(name, fake_gateway, [SHORTER]) as (carrier, call, _):
        await until(lambda: carrier.played_ms >= 600)
        turn = call.turn
        assert turn is not None
        carrier.sounds = [carrier.loud] * 10  # "mhm"
        await until(lambda: turn.num_holds == 1 and "clear" in carrier.events)
        num_played = carrier.num_played_at_clear
        ends_ms = [word.end_ms for word in turn.context.words]
        assert any(end_ms <= num_played * PACKET_MS for end_ms in ends_ms)
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": SHORTER + " "}]
        assert carrier.events.count("clear") == 1
        assert turn.context.done is not None
        assert call.turn is turn
        assert carrier.played_ms >= turn.context.done.audio_ms - PACKET_MS  # nothing is left out


@pytest.mark.parametrize("name", [name for name, carrier in CARRIERS.items() if carrier.returns_cleared_marks])
async def test_marks_of_audio_that_was_thrown_away_do_not_count(fake_gateway: str, name: str) -> None:
    async with phoning(name, fake_gateway, [LONG, "Yes."]) as (carrier, call, _):
        await until(lambda: carrier.events.count("mark") >= 5)
        first = call.turn
        assert first is not None
        carrier.microphone = carrier.loud
        await until(lambda: call.history)
        played_ms = first.played_ms
        assert played_ms <= carrier.num_played_at_clear * PACKET_MS
        await asyncio.sleep(0.1)  # for the marks that the carrier returned with the clear
        assert first.played_ms == played_ms


async def test_a_call_that_ends_frees_its_session(fake_gateway: str, name: str) -> None:
    async with phoning(name, fake_gateway, [LONG]) as (carrier, call, bot):
        await until(lambda: carrier.played_packets)
        await carrier.hang_up()
        await until(lambda: not bot.calls)
        assert call._session.closed


async def test_a_line_that_breaks_frees_its_session_and_is_no_fault(
    fake_gateway: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with phoning(name, fake_gateway, [LONG]) as (carrier, call, bot):
        await until(lambda: carrier.played_packets)
        carrier.socket.transport.abort()
        await until(lambda: not bot.calls)
        assert call._session.closed
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_page_of_another_site_cannot_call(fake_gateway: str, name: str) -> None:
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host:
        with pytest.raises(InvalidStatus, match="403"):
            await connect(f"ws://{host}/media/{name}", origin=Origin("https://elsewhere.example.org"))


def bad_streams(carrier: type[Carrier]) -> list[list[Any]]:
    start = carrier.start()
    return [
        [*start, *start],
        *([start] for start in carrier.bad_starts[-1:]),
        *([*start, media] for media in carrier.bad_media[-1:]),
        *([*start, carrier.played(mark)] for mark in ("one", "1.0/inf", "1.0/nan", "1.0/1e308/end")),
        ["\N{GRINNING FACE}" * 200],
        ["[" * 60_000],
    ]


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        pytest.param(name, messages, id=f"{name}-{number}")
        for name, carrier in CARRIERS.items()
        for number, messages in enumerate(bad_streams(carrier))
    ],
)
async def test_malformed_messages_end_the_call_alone(
    fake_gateway: str, name: str, messages: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host:
        async with calling(name, host) as carrier:
            for message in messages:
                await carrier.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
            await asyncio.wait_for(carrier.socket.wait_closed(), 60)
            assert carrier.socket.close_code == 1003
            assert carrier.socket.close_reason
        async with calling(name, host):
            await until(lambda: bot.calls)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("name", ["telnyx", "asterisk"])
async def test_an_error_that_the_carrier_reports_is_logged(
    fake_gateway: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with phoning(name, fake_gateway, ["Yes."]) as (carrier, call, _):
        await carrier.say({"event": TABLE[name].error, "payload": {"title": "malformed_frame"}})
        await until(lambda: call.history)
    assert "malformed_frame" in caplog.text


async def test_a_message_that_is_too_large_ends_the_call(fake_gateway: str, name: str) -> None:
    async with listening(Bot(fake_gateway).application()) as host, calling(name, host) as carrier:
        await carrier.say(carrier.media(b"A" * 100_000))
        await asyncio.wait_for(carrier.socket.wait_closed(), 60)
        assert carrier.socket.close_code == 1009


async def test_a_stream_that_is_not_started_is_no_call(
    fake_gateway: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is said meanwhile."""
    monkeypatch.setattr("phone_bot.START_S", 0.3)
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host:
        async with calling(name, host) as carrier:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await carrier.say(carrier.media(carrier.loud))
                    await asyncio.sleep(0.02)
            assert carrier.socket.close_code == 1008
        await until(lambda: not bot.calls)


async def test_nothing_is_spoken_before_the_stream_has_started(fake_gateway: str, name: str) -> None:
    bot = Bot(fake_gateway)
    async with listening(bot.application()) as host, calling(name, host) as carrier:
        await until(lambda: bot.calls)
        [call] = bot.calls
        for sound in [carrier.loud] * 50 + [carrier.silence] * 50:  # which is an utterance
            await carrier.say(carrier.media(sound))
        for message in carrier.start():
            await carrier.say(message)
        await until(lambda: call.turn)
        assert call.turn is not None
        assert call.turn.number == 1


async def test_no_more_calls_than_it_may_have(fake_gateway: str, name: str) -> None:
    """From all carriers together."""
    bot = Bot(fake_gateway, max_calls=2)
    async with listening(bot.application()) as host, calling("twilio", host):
        async with calling("vonage", host):
            with pytest.raises(InvalidStatus, match="503"):
                async with calling(name, host):
                    pass
        await until(lambda: len(bot.calls) == 1 and len(bot._sockets) == 1)
        async with calling(name, host):
            await until(lambda: len(bot.calls) == 2)


async def test_a_turn_that_fails_leaves_what_was_heard(caplog: pytest.LogCaptureFixture) -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        heard = {"audio_ms": 0, "spoken_text": "One ", "spoken_chars": 4}
        fields = {"code": "engine_lost", "message": "gone", "retryable": True, **heard}
        await connection.send("context.failed", context_id=context_id, sequence=1, **fields)

    async with scripted(script) as (url, _), phoning("plivo", url, ["One two three."]) as (carrier, call, _bot):
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": "One "}]
        assert "the turn ended early" in caplog.text
        assert carrier.events == ["mark"]


def has_answer(name: str) -> bool:
    return TABLE[name].answer is not None


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_only_the_agreed_path_is_answered_and_the_answer_names_it(
    fake_gateway: str, name: str, method: str
) -> None:
    """Carriers ask for instructions with POST and a form, unless they are told otherwise."""
    bot = Bot(fake_gateway, path="/secret", public_url="wss://bot.example.org/?a=1&b=")
    async with listening(bot.application()) as host, aiohttp.ClientSession() as http:
        form = {"CallSid": "CA1", "From": "+15550100"} if method == "POST" else None
        async with http.request(method, f"http://{host}/secret/{name}/answer", data=form) as answer:
            assert answer.status == (200 if has_answer(name) else 404)
            if has_answer(name):
                url = "wss://bot.example.org/?a=1&b=/secret/" + name
                assert url_to_connect(answer.content_type, await answer.text()) == url
        for path in (f"/{name}/answer", f"/media/{name}/answer", "/answer", "/secret/answer"):
            async with http.request(method, f"http://{host}{path}", data=form) as answer:
                assert answer.status == 404, "the secret would be no secret"
        for path in (f"/media/{name}", "/secret", "/secret/unknown"):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
                await http.ws_connect(f"http://{host}{path}")


def url_to_connect(content_type: str, answer: str) -> str:
    """Return the address in an answer to a webhook."""
    if content_type == "application/json":
        return str(json.loads(answer)[0]["endpoint"][0]["uri"])
    [stream] = ElementTree.fromstring(answer).iter("Stream")
    return stream.get("url") or str(stream.text)


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


@pytest.mark.parametrize(("url", "key"), [("ftp://127.0.0.1", None), ("ws://127.0.0.1:9", "two words")])
def test_a_malformed_address_or_key_of_the_speech_server_is_refused_at_the_start(url: str, key: str | None) -> None:
    with pytest.raises(ValueError, match=r"ws://host:port|api_key"):
        Bot(url, api_key=key)


async def test_a_bot_without_a_public_address_gives_no_instructions(fake_gateway: str, name: str) -> None:
    async with (
        listening(Bot(fake_gateway).application()) as host,
        aiohttp.ClientSession() as http,
        http.post(f"http://{host}/media/{name}/answer", data={"CallSid": "CA1"}) as answer,
    ):
        assert answer.status == 404


async def test_a_call_ends_with_the_bot(fake_gateway: str) -> None:
    async with listening(Bot(fake_gateway).application()) as host:
        socket = await connect(f"ws://{host}/media/twilio")
    with pytest.raises(ConnectionClosed):
        await socket.recv()
    assert socket.close_code == 1001
