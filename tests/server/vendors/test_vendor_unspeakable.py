"""Text that cannot be spoken, wholly or in part, at the addresses of other services: short silence, and a notice."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from gateway_harness import GatewayHarness
from websockets.asyncio.client import ClientConnection, connect

from tests.support.sound_files import read_sound_file

NOTHING = ("...", ".", "\U0001f600", "***", "\u0645\u0631\u062d\u0628\u0627", "- - -")
PARTLY = "Hello \U0001f600 there. This is \u4f60\u597d again."
WHOLE_NOTICE = "nothing in the text can be spoken, the answer is silence"
LEFT_OUT = "parts of the text cannot be spoken and are left out"
PARTS_NOTICE = f"{LEFT_OUT}: at character 7, 24 to 25"
CARTESIA = {"model_id": "fake-voice", "voice": {"mode": "id", "id": "slt"}}
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}

# Address, the name of the text's field, the rest of the body, and the rate of an answer without a header (else 0).
Door = tuple[str, str, dict[str, Any], int]
DOORS: dict[str, Door] = {
    **{
        f"openai {name}": ("/v1/audio/speech", "input", {"voice": "slt", "response_format": name}, rate)
        for name, rate in {"mp3": 0, "opus": 0, "aac": 0, "flac": 0, "wav": 0, "pcm": 24_000}.items()
    },
    "cartesia raw": ("/tts/bytes", "transcript", {**CARTESIA, "output_format": RAW}, 24_000),
    **{
        f"cartesia {container}": (
            "/tts/bytes",
            "transcript",
            {**CARTESIA, "output_format": {**RAW, "container": container, "bit_rate": 128_000}},
            0,
        )
        for container in ("wav", "mp3")
    },
    **{
        f"elevenlabs {name}": (f"/v1/text-to-speech/slt?output_format={name}", "text", {}, rate)
        for name, rate in {"mp3_44100_128": 0, "opus_48000_64": 0, "wav_16000": 0, "pcm_24000": 24_000}.items()
    },
    **{
        f"deepgram {query}": (f"/v1/speak?model=slt&{query}", "text", {}, rate)
        for query, rate in {
            "encoding=mp3": 0,
            "encoding=opus": 0,
            "encoding=flac": 0,
            "encoding=aac": 0,
            "encoding=linear16": 0,
            "encoding=mulaw": 0,
            "encoding=linear16&container=none": 24_000,
        }.items()
    },
}


@pytest.fixture
def http(gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        yield client


def samples_of(data: bytes, rate: int) -> tuple[np.ndarray, int]:
    """The samples of an answer, from -1 to 1, and their rate."""
    if rate:
        return np.frombuffer(data, "<i2") / 32768, rate
    return read_sound_file(data)


def is_short_silence(samples: np.ndarray, rate: int) -> bool:
    """Whether it is the silence, with at most the delay of an encoder."""
    return 0.1 <= len(samples) / rate <= 0.3 and float(np.abs(samples).max()) < 0.001


@pytest.mark.parametrize("door", DOORS)
def test_text_without_anything_to_speak_is_short_silence_in_every_format(http: httpx.Client, door: str) -> None:
    path, name, body, rate = DOORS[door]
    response = http.post(path, json={**body, name: "..."})
    assert response.status_code == 200
    assert is_short_silence(*samples_of(response.content, rate))
    assert response.headers["realtime-tts-notice"] == WHOLE_NOTICE


@pytest.mark.parametrize("text", NOTHING)
@pytest.mark.parametrize("door", ["openai mp3", "cartesia raw", "elevenlabs mp3_44100_128", "deepgram encoding=mp3"])
def test_it_does_not_matter_why_nothing_can_be_spoken(http: httpx.Client, door: str, text: str) -> None:
    path, name, body, rate = DOORS[door]
    response = http.post(path, json={**body, name: text})
    assert is_short_silence(*samples_of(response.content, rate))
    assert response.headers["realtime-tts-notice"] == WHOLE_NOTICE


@pytest.mark.parametrize("door", ["openai mp3", "cartesia raw", "elevenlabs mp3_44100_128", "deepgram encoding=mp3"])
def test_a_text_that_is_spoken_in_part_says_which_part_is_not(http: httpx.Client, door: str) -> None:
    path, name, body, rate = DOORS[door]
    response = http.post(path, json={**body, name: PARTLY})
    assert len(samples_of(response.content, rate)[0]) / 24_000 > 0.5
    assert response.headers["realtime-tts-notice"] == PARTS_NOTICE
    assert "realtime-tts-notice" not in http.post(path, json={**body, name: "Hello there."}).headers


def test_the_notice_joins_others(http: httpx.Client) -> None:
    response = http.post("/v1/audio/speech", json={"input": PARTLY, "voice": "alloy"})
    assert response.headers["realtime-tts-notice"] == f"voice 'alloy' is not known here, 'slt' speaks; {PARTS_NOTICE}"


def test_of_many_parts_the_first_are_told(http: httpx.Client) -> None:
    response = http.post("/v1/audio/speech", json={"input": "so \u4f60 " * 40, "voice": "slt"})
    assert response.headers["realtime-tts-notice"] == f"{LEFT_OUT}: at character 4, 9, 14, 19 and others"


def test_a_long_text_is_looked_through_as_far_as_it_is_planned_before_it_is_heard(http: httpx.Client) -> None:
    for num_before, is_told in ((3_000, True), (15_000, False)):
        text = "Some words are here. " * (num_before // 21) + "\u4f60" + " More of them." * 10
        with http.stream("POST", "/v1/audio/speech", json={"input": text, "voice": "slt"}) as response:
            assert ("realtime-tts-notice" in response.headers) is is_told


def test_a_pause_is_no_text_without_anything_to_speak(http: httpx.Client) -> None:
    body = {"input": '<break time="500ms"/>', "voice": "slt", "response_format": "pcm"}
    response = http.post("/v1/audio/speech", json=body)
    assert len(response.content) == 24_000
    assert "realtime-tts-notice" not in response.headers


@pytest.mark.parametrize(
    ("path", "name", "body"),
    [
        ("/v1/audio/speech", "input", {"response_format": "pcm", "stream_format": "sse"}),
        ("/tts/sse", "transcript", {**CARTESIA, "output_format": RAW}),
        ("/v1/text-to-speech/slt/with-timestamps?output_format=pcm_24000", "text", {}),
        ("/v1/text-to-speech/slt/stream/with-timestamps?output_format=pcm_24000", "text", {}),
    ],
)
def test_events_and_lines_carry_the_silence(http: httpx.Client, path: str, name: str, body: dict[str, Any]) -> None:
    response = http.post(path, json={**body, name: "..."})
    lines = [line.removeprefix("data: ") for line in response.text.splitlines()]
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    encoded = [answer.get(key) for answer in answers for key in ("audio", "data", "audio_base64")]
    audio = b"".join(base64.b64decode(piece) for piece in encoded if piece)
    assert is_short_silence(*samples_of(audio, 24_000))


# ---- WebSockets ------------------------------------------------------------------------------------------------------


async def told(socket: ClientConnection, is_last: str) -> tuple[bytes, list[dict[str, Any]]]:
    """The audio and the JSON of a turn, up to the message that has `is_last` as a member that is true, or as a type."""
    audio, found = b"", list[dict[str, Any]]()
    while not (found and (found[-1].get(is_last) or found[-1].get("type") == is_last)):
        frame = await asyncio.wait_for(socket.recv(), 10)
        if isinstance(frame, bytes):
            audio += frame
        else:
            found.append(json.loads(frame))
            audio += base64.b64decode(found[-1].get("audio") or found[-1].get("data") or "")
    return audio, found


async def cartesia_turn(gateway: GatewayHarness, text: str, **fields: Any) -> tuple[bytes, list[dict[str, Any]]]:
    address = gateway.url.replace("http", "ws", 1) + "/tts/websocket"
    async with connect(address, proxy=None) as socket:
        wanted = {**CARTESIA, "output_format": RAW, "context_id": "a", "transcript": text, **fields}
        await socket.send(json.dumps({**wanted, "continue": True}))
        await socket.send(json.dumps({**wanted, "continue": False, "transcript": ""}))
        return await told(socket, "done")


async def elevenlabs_turn(
    gateway: GatewayHarness, text: str, output_format: str = "pcm_24000", **query: str
) -> tuple[bytes, list[dict[str, Any]]]:
    asked = "&".join(f"{name}={value}" for name, value in {"output_format": output_format, **query}.items())
    address = gateway.url.replace("http", "ws", 1) + f"/v1/text-to-speech/slt/multi-stream-input?{asked}"
    async with connect(address, proxy=None) as socket:
        for message in ({"text": " "}, {"text": text}, {"text": "", "flush": True}, {"close_context": True}):
            await socket.send(json.dumps({**message, "context_id": "a"}))
        return await told(socket, "isFinal")


async def deepgram_turn(gateway: GatewayHarness, text: str) -> tuple[bytes, list[dict[str, Any]]]:
    async with connect(gateway.url.replace("http", "ws", 1) + "/v1/speak?sample_rate=24000", proxy=None) as socket:
        await socket.send(json.dumps({"type": "Speak", "text": text}))
        await socket.send(json.dumps({"type": "Flush"}))
        return await told(socket, "Flushed")


@pytest.mark.parametrize("text", NOTHING)
@pytest.mark.parametrize("turn", [cartesia_turn, elevenlabs_turn, deepgram_turn])
async def test_a_turn_without_anything_to_speak_is_short_silence(gateway: GatewayHarness, turn: Any, text: str) -> None:
    audio, _ = await turn(gateway, text)
    assert is_short_silence(*samples_of(audio, 24_000))


@pytest.mark.parametrize("name", ["mp3_44100_128", "opus_48000_64"])
async def test_files_by_websocket_have_frames_for_it(gateway: GatewayHarness, name: str) -> None:
    audio, _ = await elevenlabs_turn(gateway, "...", name)
    assert is_short_silence(*samples_of(audio, 0))


async def test_auto_mode_has_silence_too(gateway: GatewayHarness) -> None:
    audio, _ = await elevenlabs_turn(gateway, "***", auto_mode="true")
    assert is_short_silence(*samples_of(audio, 24_000))


async def test_a_flushed_context_that_stays_open_has_silence_too(gateway: GatewayHarness) -> None:
    """Pipecat closes a context of ElevenLabs' after its audio."""
    address = gateway.url.replace("http", "ws", 1) + "/v1/text-to-speech/slt/multi-stream-input?output_format=pcm_24000"
    async with connect(address, proxy=None) as socket:
        for message in ({"text": " "}, {"text": "..."}, {"flush": True}):
            await socket.send(json.dumps({**message, "context_id": "a"}))
        audio, _ = await told(socket, "audio")
        assert audio
        await socket.send(json.dumps({"context_id": "a", "text": "Hello there."}))
        await socket.send(json.dumps({"context_id": "a", "flush": True}))
        await socket.send(json.dumps({"context_id": "a", "close_context": True}))
        more, _ = await told(socket, "isFinal")
        assert len(samples_of(audio + more, 24_000)[0]) > 12_000


@pytest.mark.parametrize("text", ["...", PARTLY])
async def test_the_end_of_a_turn_says_that_text_was_left_out(gateway: GatewayHarness, text: str) -> None:
    for turn in (cartesia_turn, elevenlabs_turn):
        _, answers = await turn(gateway, text)
        assert answers[-1]["realtime_tts_notice"] == LEFT_OUT
        _, answers = await turn(gateway, "Hello there.")
        assert not [answer for answer in answers if "realtime_tts_notice" in answer]
    _, answers = await deepgram_turn(gateway, text)
    assert LEFT_OUT in [answer["description"] for answer in answers if answer["type"] == "Warning"]


async def test_a_turn_of_blanks_stays_empty(gateway: GatewayHarness) -> None:
    """Some clients open and close contexts without a word; what they hear next must not be late."""
    for turn in (cartesia_turn, elevenlabs_turn, deepgram_turn):
        assert (await turn(gateway, " "))[0] == b""
