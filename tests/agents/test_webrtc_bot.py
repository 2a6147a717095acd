"""The WebRTC bot, with a caller in the same process that plays what arrives and says how far it is."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import aiohttp
import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCIceServer, RTCPeerConnection, RTCRtpSender
from bot_serving import listening
from client_fake_server import Connection, scripted
from hypothesis import given
from hypothesis import strategies as st
from realtime_tts_client import Context, Packet, Session, Spoken, Word, connect
from realtime_tts_client.decoding import Decoder
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from conversation import History, Turn
from hold_policy import HoldPolicy
from speech_detector import SpeechDetector
from speech_track import FRAME_SAMPLES, Playout, SpeechTrack
from webrtc_bot import OPUS, Bot, Call
from webrtc_caller import RATE_HZ, Caller, Received, calling, offered

Samples = np.ndarray[Any, np.dtype[np.int16]]
LOUD = np.random.default_rng(3).normal(0, 4000, RATE_HZ).astype(np.int16)
LONG = "I could go on about this for a very long time, and so I shall, as nobody has asked me to stop yet."


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """aioice leaves this address out, and takes all others."""
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest.fixture
def from_server(monkeypatch: pytest.MonkeyPatch) -> list[Packet]:
    """Every packet that our client was sent."""
    packets: list[Packet] = []
    add = Context._add_packet

    def noting(context: Context, packet: Packet) -> None:
        packets.append(packet)
        add(context, packet)

    monkeypatch.setattr(Context, "_add_packet", noting)
    return packets


async def until(condition: Callable[[], Any]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), 30)


@contextlib.asynccontextmanager
async def serving(
    tts_url: str, answers: list[str] | None = None, *, word_every_s: float | None = 0.0, **options: Any
) -> AsyncIterator[tuple[str, Bot]]:
    """`word_every_s`: pace of the answers; None: each is one piece."""

    async def answer(history: History) -> AsyncIterator[str]:
        given = [line["content"] for line in history if line["role"] == "assistant"]
        text = (answers or [LONG])[len(given)]
        for word in [text] if word_every_s is None else text.split(" "):
            yield word + " "
            if word_every_s:
                await asyncio.sleep(word_every_s)

    bot = Bot(tts_url, answer=answer, **options)
    async with listening(bot.application()) as host:
        yield f"http://{host}", bot


@contextlib.asynccontextmanager
async def talking(tts_url: str, answers: list[str], **options: Any) -> AsyncIterator[tuple[Caller, Call, Bot]]:
    async with serving(tts_url, answers, **options) as (url, bot), calling(url) as caller:
        yield caller, next(iter(bot.calls)), bot


def speech_ms(played: list[Received]) -> float:
    return sum(not one.is_silence for one in played) * FRAME_SAMPLES * 1000 / RATE_HZ


async def test_packets_arrive_as_they_left_the_server(fake_gateway: str, from_server: list[Packet]) -> None:
    async with talking(fake_gateway, ["Hello, this is the bot."]) as (caller, call, _):
        await until(lambda: call.history)
        assert call.history == [{"role": "assistant", "content": "Hello, this is the bot. "}]
        assert [one.payload for one in caller.speech()] == [packet.payload for packet in from_server]
        assert call.turn is not None
        assert call.turn.context.done is not None
        assert call.turn.played_ms == call.turn.carried_ms == len(from_server) * 20
        told = [word for message in caller.messages("words") for word in message["words"]]
        assert "".join(word["text"] for word in told) == "Hello, this is the bot."
        assert [word["start_ms"] for word in told] == [word.start_ms for word in call.turn.context.words]
        first = caller.messages("run")[0]
        assert first == {"type": "run", "turn": 1, "rtp": caller.speech()[0].timestamp, "start_ms": 0}
        await until(lambda: caller.messages("heard"))


async def test_the_stream_never_stops(fake_gateway: str) -> None:
    async with talking(fake_gateway, ["Yes."]) as (caller, call, _):
        await until(lambda: call.history)
        num = len(caller.received)
        await until(lambda: len(caller.received) > num + 5)
        steps = {
            (after.timestamp - one.timestamp) % (1 << 32)
            for one, after in zip(caller.received, caller.received[1:], strict=False)
        }
        assert all(step % FRAME_SAMPLES == 0 and step > 0 for step in steps)
        assert caller.received[-1].is_silence


@pytest.mark.parametrize("by", ["channel", "speech"])
@pytest.mark.parametrize("after_ms", [300, 1500])
async def test_an_interruption_leaves_what_was_heard(fake_gateway: str, by: str, after_ms: int) -> None:
    async with talking(fake_gateway, [LONG, "As you say."]) as (caller, call, _):
        await until(lambda: speech_ms(caller.played) >= after_ms)
        first = call.turn
        assert first is not None
        if by == "channel":
            caller.interrupt()
        else:
            caller.microphone.say(LOUD)
        await until(lambda: caller.messages("cut"))
        num_before_cut = len([one for one in caller.speech() if one.at < caller.at("cut")])
        await until(lambda: caller.messages("heard"))
        heard = caller.messages("heard")[0]["text"]
        assert [line["content"] for line in call.history] == ([heard] if heard.strip() else [])
        heard_ms = speech_ms(caller.played)
        ends_ms = [word.end_ms for word in first.context.words]
        exact = LONG[: first.context.words[num - 1].end] if (num := sum(e <= heard_ms - 6.5 for e in ends_ms)) else ""
        assert heard.strip() == exact
        assert heard_ms < first.carried_ms, "packets that were thrown away"
        num_received = len(caller.received)
        await until(lambda: len(caller.received) > num_received + 10)
        assert len(caller.speech()) == num_before_cut, "of the old turn nothing afterwards"
        if by == "channel":
            caller.microphone.say(LOUD)
        await until(lambda: call.history and call.history[-1]["content"] == "As you say. ")
        assert [line["role"] for line in call.history[-2:]] == ["user", "assistant"]
        assert len(caller.messages("cut")) == 1


async def test_a_turn_that_follows_begins_at_its_beginning(fake_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its first packet leaves, the page reports where it is in the silence behind the turn before."""
    told: list[tuple[str, float, float]] = []
    played = Session.played

    def noting(session: Session, context: Context, played_ms: float) -> None:
        told.append((context.id, played_ms, context.clock.taken_ms))
        played(session, context, played_ms)

    monkeypatch.setattr(Session, "played", noting)
    async with talking(fake_gateway, ["Hello, this is the bot.", LONG]) as (caller, call, _):
        await until(lambda: call.history)
        caller.microphone.say(LOUD)
        await until(lambda: call.turn is not None and call.turn.number == 2 and call.turn.played_ms > 0)
        assert len({context_id for context_id, _, _ in told}) == 2
        assert all(played_ms <= taken_ms for _, played_ms, taken_ms in told)


async def test_a_page_that_does_not_answer_is_believed_what_it_said_last(fake_gateway: str) -> None:
    async with talking(fake_gateway, [LONG]) as (caller, call, _):
        caller.is_answering = False
        await until(lambda: speech_ms(caller.played) >= 800)
        caller.interrupt()
        await until(lambda: call.history)
        heard_ms = speech_ms(caller.played)
        assert call.turn is not None
        num_heard = len(call.history[0]["content"].split())
        assert call.turn.context.words[num_heard - 1].end_ms <= heard_ms, "a word that was not heard"
        assert call.turn.context.words[num_heard + 1].end_ms > heard_ms - 60, "more than a word is missing"


async def test_an_interruption_that_comes_too_late_silences_nothing_else(fake_gateway: str) -> None:
    async with talking(fake_gateway, ["Yes.", "As you say."]) as (caller, call, _):
        await until(lambda: call.history)
        caller.interrupt()
        await until(lambda: caller.messages("cut"))
        assert [line["content"] for line in call.history] == ["Yes. "]
        caller.microphone.say(LOUD)
        await until(lambda: call.history[-1]["content"] == "As you say. ")


async def test_a_session_that_is_gone_ends_the_call(fake_gateway: str) -> None:
    async with talking(fake_gateway, ["Yes."]) as (caller, call, bot):
        await until(lambda: call.history)
        await call._session.close()
        caller.microphone.say(LOUD)
        await until(lambda: caller.messages("failed"))
        await until(lambda: not bot.calls)


async def test_a_turn_that_fails_is_told() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        heard = {"audio_ms": 0, "spoken_text": "One ", "spoken_chars": 4}
        fields = {"code": "engine_lost", "message": "gone", "retryable": True, **heard}
        await connection.send("context.failed", context_id=context_id, sequence=1, **fields)

    async with scripted(script) as (tts_url, _), talking(tts_url, ["One two three."]) as (caller, call, _bot):
        await until(lambda: caller.messages("heard"))
        assert caller.messages("failed") == [{"type": "failed", "code": "engine_lost", "message": "gone"}]
        assert [line["content"] for line in call.history] == [caller.messages("heard")[0]["text"]] == ["One "]


async def test_a_caller_who_hangs_up_frees_the_session(fake_gateway: str) -> None:
    async with serving(fake_gateway) as (url, bot):
        async with calling(url) as caller:
            await until(caller.speech)
            [call] = bot.calls
        await until(lambda: not bot._tasks)
        assert call._session.closed


@pytest.mark.parametrize(
    "message",
    [
        "[]",
        "no",
        '{"type": "played"}',
        '{"type": "played", "rtp": "?"}',
        '{"type": "played", "rtp": Infinity}',
        pytest.param("[" * 60_000, id="deeply nested"),
    ],
)
async def test_malformed_messages_end_the_call_alone(
    fake_gateway: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(fake_gateway) as (url, bot):
        async with calling(url) as caller:
            await until(caller.speech)
            caller.channel.send(message)
            await until(lambda: not bot.calls)
        assert "not a message of our page" in caplog.text
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        async with calling(url):
            assert bot.calls


async def test_offers_that_cannot_be_answered(fake_gateway: str) -> None:
    async with serving(fake_gateway, max_calls=1) as (url, bot), aiohttp.ClientSession() as http:
        deep = "[" * 60_000
        for body in ("no", "[]", "{}", '{"sdp": "", "type": "question"}', '{"sdp": "v=0", "type": "offer"}', deep):
            async with http.post(f"{url}/offer", data=body, headers={"Content-Type": "application/json"}) as response:
                assert (response.status, (await response.json())["code"]) == (400, "invalid_request"), body
        async with http.post(f"{url}/offer", data="{}") as response:
            assert response.status == 415
        for kind in ("without a channel", "without audio", "without Opus"):
            connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
            if kind != "without audio":
                transceiver = connection.addTransceiver("audio")
            if kind == "without Opus":
                codecs = RTCRtpSender.getCapabilities("audio").codecs
                transceiver.setCodecPreferences([codec for codec in codecs if codec.mimeType == "audio/PCMU"])
            if kind != "without a channel":
                connection.createDataChannel("control")
            with pytest.raises(RuntimeError, match="400 invalid_request"):
                await offered(connection, url)
            await connection.close()
        await until(lambda: not bot._tasks)
        async with calling(url):
            with pytest.raises(RuntimeError, match="503 busy"):
                async with calling(url):
                    pass


PAGES = [  # Host and other headers of a request, and whether it is this bot's own page or no page
    ({}, True),
    ({"Host": "localhost"}, True),
    ({"Host": "bot.localhost:8070", "Origin": "http://bot.localhost:8070"}, True),
    ({"Host": "[::1]:8070", "Sec-Fetch-Site": "same-origin"}, True),
    ({"Host": "bot.example.org", "Origin": "https://bot.example.org"}, True),
    ({"Host": "localhost:8070", "Origin": "https://bot.example.org"}, True),  # a proxy that passes no Host on
    ({"Host": "elsewhere.example.org"}, False),  # a name that its owner points at this machine
    ({"Host": "elsewhere.example.org", "Origin": "http://elsewhere.example.org"}, False),
    ({"Host": "localhost.example.org"}, False),
    ({"Host": "[::1"}, False),
    ({"Host": ""}, False),
    ({"Origin": "https://elsewhere.example.org"}, False),
    ({"Origin": "null"}, False),
    ({"Host": "localhost:8070", "Origin": "http://localhost:9999"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),  # a link to the page
]


@pytest.mark.parametrize(("headers", "is_own"), PAGES)
async def test_only_its_own_page_may_use_it(fake_gateway: str, headers: dict[str, str], is_own: bool) -> None:
    turn = RTCIceServer("turn:b.example", "me", "secret")
    options: dict[str, Any] = {"ice_servers": [turn], "allowed_origins": ["https://bot.example.org/"]}
    async with serving(fake_gateway, **options) as (url, bot), aiohttp.ClientSession(headers=headers) as http:
        for path in ("/", "/ice"):
            async with http.get(f"{url}{path}") as response:
                assert response.status == (200 if is_own else 403), path
                assert is_own or "secret" not in await response.text()
        async with http.post(f"{url}/offer", json={"sdp": "v=0", "type": "offer"}) as response:
            assert response.status == (400 if is_own else 403)
        assert not bot.calls


@pytest.mark.parametrize("origin", ["bot.example.org", "https://bot.example.org/page", "ftp://a", "https://"])
def test_an_allowed_origin_has_the_form_of_one(origin: str) -> None:
    with pytest.raises(ValueError, match="must be like https"):
        Bot("ws://127.0.0.1:9", allowed_origins=[origin])


@pytest.mark.parametrize("url", ["bot.example.org", "turn:", "https://turn.example.org", "stun:a.example:port"])
def test_an_ice_server_has_the_form_of_one(url: str) -> None:
    """Otherwise every caller would be told that the offer is wrong."""
    with pytest.raises(ValueError, match=re.escape(repr(url))):
        Bot("ws://127.0.0.1:9", ice_servers=[RTCIceServer("stun:a.example"), RTCIceServer(url)])


async def an_offer(*lines: str) -> dict[str, str]:
    """An offer of the page's kind whose caller will never connect, with more lines."""
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    connection.addTransceiver("audio")
    connection.createDataChannel("control")
    await connection.setLocalDescription(await connection.createOffer())
    sdp = connection.localDescription.sdp + "".join(f"{line}\r\n" for line in lines)
    await connection.close()
    return {"sdp": sdp, "type": "offer"}


async def test_offers_without_a_connection_take_no_slot(fake_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webrtc_bot.GRACE_S", 0.0)
    async with serving(fake_gateway, max_calls=2) as (url, bot), aiohttp.ClientSession() as http:
        for _ in range(5):
            async with http.post(f"{url}/offer", json=await an_offer()) as response:
                assert response.status == 200
        async with calling(url) as caller, calling(url):
            await until(caller.speech)
            async with http.post(f"{url}/offer", json=await an_offer()) as response:
                assert (response.status, (await response.json())["code"]) == (503, "busy")
            assert len(bot.calls) == 2
        await until(lambda: not bot._tasks and not bot._ending)


async def test_an_offer_that_gives_way_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the speech server has not answered yet."""
    monkeypatch.setattr("webrtc_bot.GRACE_S", 0.0)
    monkeypatch.setattr("webrtc_bot.END_S", 0.0)

    async with (
        scripted(Connection.until_closed) as (tts_url, _),
        serving(tts_url, max_calls=1) as (url, bot),
        aiohttp.ClientSession() as http,
    ):
        first = asyncio.create_task(http.post(f"{url}/offer", json=await an_offer()))
        await until(lambda: bot._tasks)
        second = asyncio.create_task(http.post(f"{url}/offer", json=await an_offer()))
        async with await first as response:
            assert (response.status, (await response.json())["code"]) == (503, "busy")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_an_offer_asks_for_no_more_than_a_browsers(fake_gateway: str) -> None:
    address = "a=candidate:{} 1 udp 2130706431 192.0.2.1 {} typ host"
    many = [address.format(number, 1024 + number) for number in range(100)]
    async with serving(fake_gateway) as (url, bot), aiohttp.ClientSession() as http:
        for lines in (many, ["m=audio 9 UDP/TLS/RTP/SAVPF 0"]):
            async with http.post(f"{url}/offer", json=await an_offer(*lines)) as response:
                assert (response.status, (await response.json())["code"]) == (400, "invalid_request")
        assert not bot.calls


async def test_a_page_that_reads_nothing_ends_the_call(fake_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(fake_gateway, ["Yes."]) as (caller, call, bot):
        await until(lambda: call.history)
        assert call._channel is not None
        monkeypatch.setattr(type(call._channel), "bufferedAmount", 2 << 20)
        caller.interrupt()
        await until(lambda: not bot.calls)


async def test_without_a_speech_server_the_caller_is_told() -> None:
    async with serving("ws://127.0.0.1:9") as (url, bot):
        with pytest.raises(RuntimeError, match="503 connection_failed"):
            async with calling(url):
                pass
        assert not bot.calls


async def test_the_page_is_served_and_needs_nothing_else(fake_gateway: str) -> None:
    async with serving(fake_gateway) as (url, _), aiohttp.ClientSession() as http:
        async with http.get(f"{url}/") as response:
            page = await response.text()
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        for path in re.findall(r'(?:src|href)="(?!data:)([^"#]+)"', page):
            async with http.get(f"{url}/{path}") as response:
                assert response.status == 200
        async with http.get(f"{url}/webrtc_bot.py") as response:
            assert response.status == 404
        async with http.get(f"{url}/ice") as response:
            assert await response.json() == []
    servers = [RTCIceServer("stun:a.example"), RTCIceServer("turn:b.example", "me", "secret")]
    async with (
        serving(fake_gateway, ice_servers=servers) as (url, _),
        aiohttp.ClientSession() as http,
        http.get(f"{url}/ice") as response,
    ):
        assert await response.json() == [
            {"urls": "stun:a.example"},
            {"urls": "turn:b.example", "username": "me", "credential": "secret"},
        ]


async def test_speech_is_understood(speech_url: str) -> None:
    from benchmarks.recognition import Recogniser

    sentence = "The old house at the end of the road was empty for many years."
    async with talking(speech_url, [sentence]) as (caller, call, _):
        await until(lambda: call.history)
        decoder = Decoder(OPUS)
        # A server on a busy machine pauses within a word, where the bot sends silence: the words are heard without it.
        samples = np.concatenate([decoder.decode(one.payload) for one in caller.speech()])
    heard = await asyncio.to_thread(lambda: Recogniser().transcribe(samples, RATE_HZ))
    expected = set(re.findall(r"\w+", sentence.lower()))
    assert len(expected & set(heard.split())) >= 0.6 * len(expected), heard


# ---- holds -----------------------------------------------------------------------------------------------------------

NUM_NODS = 20  # of each kind of text
LEAD_PACKETS = 100  # so that the word that is heard and the next one are known
NODDED = (
    "Sure, let me check that for you. Your order left our warehouse this morning, and it should be with you by Tuesday "
    "afternoon; the driver calls you before, as you asked. If nobody is at home, the parcel goes to a neighbour, or to "
    "the shop at the corner, where you can collect it for two weeks. You have paid for it already, so there is nothing "
    "else to do, and if one of the plates is broken, tell us within a month, and we send you a new one for nothing."
)


class SteppedCall(Call):
    """A call without a connection, in steps of 20 ms, however long each takes: of the microphone and of the player.

    Attributes:
        played: where each packet begins that the caller has heard of the turn, ms.
    """

    def __init__(self, session: Session, by_words: bool) -> None:
        super().__init__(session, self._written, [])
        self._track._origin = 0
        self._by_words = by_words
        self.played: list[float] = []

    async def _written(self, history: History) -> AsyncIterator[str]:
        for piece in NODDED.split(" ") if self._by_words else [NODDED]:
            yield piece + " "
            await asyncio.sleep(0)

    def begin(self) -> Turn:
        self.played.clear()
        self._begin_turn(asked="")
        assert self.turn is not None
        return self.turn

    async def step(self, sound: Samples) -> None:
        """Hear 20 ms of the caller, do what follows, and play 20 ms."""
        self._hear(sound)
        if self._changing is not None:
            await self._changing
        turn, track = self.turn, self._track
        assert turn is not None
        if not turn.is_silent:
            await until(lambda: len(track._queue) >= LEAD_PACKETS or self._is_carried)
        if track._queue:
            self.played.append(track._queue[0].start_ms)
        track._timestamp += FRAME_SAMPLES
        track._next_payload()
        self._on_message(json.dumps({"type": "played", "rtp": track._timestamp + FRAME_SAMPLES}))


def stretches(played: list[float]) -> list[tuple[float, float]]:
    """Return the stretches of a turn's audio, ms, in the order in which they were played."""
    found: list[tuple[float, float]] = []
    for start_ms in played:
        if found and start_ms == found[-1][1]:
            found[-1] = found[-1][0], start_ms + 20
        else:
            found.append((start_ms, start_ms + 20))
    return found


def nod(rng: random.Random) -> Samples:
    """Return a sound of 100 to 340 ms, which is shorter than an interruption: [num_frames, samples]."""
    noise = np.random.default_rng(rng.randrange(1 << 30)).normal(0, 4000, (rng.randrange(5, 18), FRAME_SAMPLES))
    return noise.astype(np.int16)


@pytest.mark.parametrize("by_words", [False, True], ids=["whole", "live"])
async def test_after_nods_the_words_heard_in_all_are_the_text(
    fake_gateway: str, from_server: list[Packet], monkeypatch: pytest.MonkeyPatch, by_words: bool
) -> None:
    """Judged by the packets that the caller has played. At a join two are repeated at most: the one in which the word
    ends, and one more, since a decoder is 6.5 ms late."""
    rng, hold, release = random.Random(11), Context.hold, Context.release
    held: list[tuple[Spoken, list[Word]]] = []
    released: list[tuple[float, float]] = []  # from where, and where it was held

    async def noting_hold(context: Context, at: Literal["word", "now"] = "word") -> Spoken:
        spoken = await hold(context, at)
        held.append((spoken, list(context.words)))
        return spoken

    async def noting_release(context: Context, clause_after_ms: float = 2000.0) -> float:
        from_ms = await release(context, clause_after_ms)
        released.append((from_ms, held[-1][0].played_ms))
        return from_ms

    monkeypatch.setattr(Context, "hold", noting_hold)
    monkeypatch.setattr(Context, "release", noting_release)
    async with connect(fake_gateway, audio=OPUS) as session:
        call, quiet = SteppedCall(session, by_words), np.zeros(FRAME_SAMPLES, np.int16)
        while len(held) < NUM_NODS:
            turn, num_before = call.begin(), len(held)
            while not turn.is_over:
                sound = nod(rng)
                pause = [quiet] * rng.randrange(3, 45)
                for frame in (*sound, *[quiet] * 25, *pause):  # the detector is quiet after 20
                    if not turn.is_over:
                        await call.step(frame)
            assert call.history[-1]["content"].strip() == NODDED
            heard = stretches(call.played)
            assert heard[0][0] == 0
            assert heard[-1][1] == from_server[-1].start_ms + 20
            for before, after in itertools.pairwise(heard):
                joins = [each for each in released if after[0] <= each[0] < after[0] + 20]
                assert joins, (before, after)
                from_ms, held_ms = joins[0]
                assert after[0] <= before[1] <= after[0] + 40 + held_ms - from_ms
            for spoken, words in held[num_before:]:
                assert spoken.text == f"{NODDED} "[: spoken.chars]
                # Ends of words are corrected after they were told.
                assert not (is_inside(words, spoken) and is_inside(turn.context.words, spoken))
            from_server.clear()
            released.clear()
            call._policy, call._detector = HoldPolicy(), SpeechDetector(RATE_HZ)
        await call.hang_up()


def is_inside(words: list[Word], held: Spoken) -> bool:
    """Return whether a hold is inside a word, of which the last one may end behind the audio."""
    inside = [word for word in words if word.start_ms + 1 < held.played_ms < word.end_ms - 1]
    return inside != [] and held.chars < words[-1].end


# ---- pure ------------------------------------------------------------------------------------------------------------


def packet(start_ms: int) -> Packet:
    return Packet(b"", start_ms * 48, 960, OPUS)


def test_a_listeners_place_in_a_turn_with_gaps() -> None:
    playout = Playout()
    assert playout.heard_ms(10**6) == 0
    assert playout.sent(9600, packet(0))
    assert not playout.sent(10560, packet(20))
    assert playout.sent(12480, packet(40)), "a gap of 20 ms"
    delay = 312  # of an Opus decoder
    places = {0: 0, 9600: 0, 10560: 20, 11520: 40, 12480: 40, 12960: 50, 13440: 60, 99999: 60}
    assert {at: playout.heard_ms(at + delay) for at in places} == places
    playout.begin()
    assert playout.heard_ms(13440) == playout.sent_ms == 0


async def test_rtp_timestamps_wrap_and_impossible_ones_are_not_believed() -> None:
    track = SpeechTrack(lambda rtp_timestamp, start_ms: None)
    assert track.heard_ms(1234) == 0, "nothing was sent"
    track._origin, track._timestamp = (1 << 32) - 1000, 1920  # before, at and after the wrap
    for timestamp, start_ms in ((0, 0), (960, 20), (1920, 40)):
        track._playout.sent(timestamp, packet(start_ms))
    heard = [track.heard_ms((track._origin + timestamp + 312) % (1 << 32)) for timestamp in (-960, 0, 480, 960, 1440)]
    assert heard == [0, 0, 10, 20, 30]
    assert track.heard_ms(900 + 48_000) < 40, "a second ahead of what was sent"
    assert track.heard_ms((1 << 32) - 480_000) == 0, "ten seconds before it began"


def test_no_timestamp_is_beyond_what_was_sent() -> None:
    @given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(-2000, 200_000))
    def check(gaps: list[int], listener: int) -> None:
        playout, timestamp, sent = Playout(), 0, []
        for number, gap in enumerate(gaps):
            timestamp += gap * FRAME_SAMPLES
            playout.sent(timestamp, packet(20 * number))
            sent.append(timestamp)
            timestamp += FRAME_SAMPLES
        num_behind = sum(one + FRAME_SAMPLES <= listener - 312 for one in sent)
        heard_ms = playout.heard_ms(listener)
        assert 20 * num_behind <= heard_ms <= 20 * num_behind + 20
        assert heard_ms <= 20 * len(sent)
        assert playout.heard_ms(listener - 1) <= heard_ms

    check()
