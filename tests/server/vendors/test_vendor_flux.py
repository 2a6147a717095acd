"""Deepgram's second WebSocket (Flux) on a real server: what an interruption reports, and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

TEXT = "Hello there, this is a whole sentence. And here is another one!"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def measured() -> Iterator[GatewayHarness]:
    """A gateway whose worker measures the times of words, and that sends all audio at once."""
    worker = {"patch_delay_s": 0.001, "text_lag_ms": 80.0, "chars_per_patch": 2.5}
    with GatewayHarness(mode="clause", max_lead_s=60.0, worker=worker) as harness:
        yield harness


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.pcm = b""

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def interrupt(self, at_ms: float) -> dict[str, Any]:
        await self.send("Interrupt", playback_offset={"type": "time_ms", "value": at_ms})
        return await self.until("SpeechInterrupted")

    async def until(self, kind: str) -> dict[str, Any]:
        """Skip what comes before; `self.pcm` has the audio of the connection."""
        async with asyncio.timeout(WAIT_S):
            while True:
                frame = await self.socket.recv()
                if isinstance(frame, bytes):
                    self.pcm += frame
                elif (message := json.loads(frame))["type"] == kind:
                    return dict(message)

    async def until_heard(self, ms: float) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.pcm) < ms * 48:
                if isinstance(frame := await self.socket.recv(), bytes):
                    self.pcm += frame


@contextlib.asynccontextmanager
async def client(gateway: GatewayHarness, query: str = "") -> AsyncIterator[Client]:
    url = gateway.url.replace("http", "ws", 1)
    async with connect(f"{url}/v2/speak?model=flux-haley-en{query}", proxy=None) as socket:
        yield Client(socket)


async def natively_heard(gateway: GatewayHarness, at_ms: float) -> str:
    async with open_stream(gateway.ws_url) as stream:
        await stream.speak("n", TEXT)
        await stream.until_terminal("n", WAIT_S)
        await stream.send("hold", context_id="n", at="now", played_ms=at_ms)
        return str((await stream.until("context.held", WAIT_S))["spoken_text"])


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("at_ms", [0, 550, 1150, 2050])
async def test_an_interruption_reports_the_words_of_the_native_protocol(
    measured: GatewayHarness, at_ms: int, ended: bool
) -> None:
    """In mid-text and after the turn's end, in the second turn of a connection."""
    text = TEXT if ended else TEXT + " And this is never said"
    async with client(measured) as talk:
        await talk.send("Speak", text="First. ")
        await talk.send("Flush")
        begin_ms = (await talk.until("SpeechMetadata"))["audio_duration_ms"]
        assert begin_ms == len(talk.pcm) / 48
        await talk.send("Speak", text=text)
        if ended:
            await talk.send("Flush")
            await talk.until("SpeechMetadata")
        else:
            await talk.until_heard(begin_ms + at_ms)
        told = await talk.interrupt(begin_ms + at_ms)
        assert told["text_spoken"] == await natively_heard(measured, at_ms)
        assert told["text_spoken"] + told["text_remaining"] == text
        assert (told["audio_played_ms"], told["metadata"]["input_character_count"]) == (begin_ms + at_ms, len(text))
        talk.pcm = b""
        await talk.send("Speak", text="Next.")
        await talk.send("Flush")
        assert (await talk.until("SpeechMetadata"))["audio_duration_ms"] == len(talk.pcm) / 48
        await talk.send("Close")
        total = (await talk.until("SessionMetadata"))["total_input_character_count"]
        assert total == len("First. " + text + "Next.")


async def test_an_interruption_silences_turns_that_wait(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        for text in ("command never. ", "And more. "):
            await talk.send("Speak", text=text)
            await talk.send("Flush")
        await talk.until_heard(200)
        told = await talk.interrupt(100)
        talk.pcm = b""
        await talk.send("Configure", speed=1.0)
        assert (await talk.until("ConfigureSuccess"))["applied"] == {"speed": 1.0}
    assert (told["text_spoken"] + told["text_remaining"], talk.pcm) == ("command never. ", b"")


async def test_to_close_is_to_hear_the_rest(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.send("Speak", text="Hello.")
        await talk.send("Close")
        assert (await talk.until("SessionMetadata"))["total_audio_duration_ms"] == len(talk.pcm) / 48 > 0
        with pytest.raises(ConnectionClosedOK):
            await asyncio.wait_for(talk.socket.recv(), WAIT_S)


@pytest.mark.parametrize(
    "frame", ["nonsense", b"\x00", '{"type":"Clear"}', '{"type":"Interrupt","playback_offset":{"value":"now"}}']
)
async def test_an_invalid_message_is_answered_and_the_turn_goes_on(gateway: GatewayHarness, frame: str | bytes) -> None:
    async with client(gateway) as talk:
        await talk.send("Speak", text="Hello ")
        await talk.socket.send(frame)
        assert (await talk.until("Error"))["code"] == "invalid_message"
        await talk.send("Speak", text="there.")
        await talk.send("Flush")
        assert (await talk.until("SpeechMetadata"))["input_character_count"] == 12


async def test_a_turn_that_is_too_long_ends_and_the_next_one_is_spoken(gateway: GatewayHarness) -> None:
    async with client(gateway) as talk:
        await talk.send("Speak", text="Hi " * 10_000)
        assert (await talk.until("Error"))["code"] == "text_too_long"
        assert (await talk.until("SpeechMetadata"))["audio_duration_ms"] == 0
        await talk.send("Speak", text="more ")
        await talk.send("Flush")
        assert (await talk.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await talk.send("Speak", text="Next.")
        await talk.send("Flush")
        assert (await talk.until("SpeechMetadata"))["audio_duration_ms"] > 0


async def test_an_unsupported_format_is_refused(gateway: GatewayHarness) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with client(gateway, "&encoding=mp3"):
            pass
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body)["err_code"] == "unsupported_audio_format"
