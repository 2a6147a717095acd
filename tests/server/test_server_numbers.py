"""Numbers that no machine's integers or floats hold are refused wherever a client can send one."""

from __future__ import annotations

import httpx
import pytest
from gateway_harness import GatewayHarness
from spoken_recordings import said, wav
from stream_client import open_stream
from websockets.asyncio.client import connect

# "#" stands for each of these below.
NUMBERS = [
    str(2**63),
    str(2**64),
    str(-(2**64)),
    "1" + "0" * 400,
    "9" * 5000,
    "1e308",
    "-1e308",
    "1e999",
    "NaN",
    "Infinity",
]
SPEECH, CARTESIA, ELEVENLABS = "/v1/audio/speech", "/tts/bytes", "/v1/text-to-speech/slt"
RAW = '"container":"raw","encoding":"pcm_s16le","sample_rate":'
BODIES = [
    ("/v1/vapi", '{"message":{"type":"voice-request","text":"Hello.","sampleRate":#}}'),
    (SPEECH, '{"input":"Hello.","speed":#}'),
    (SPEECH, '{"input":"Hello.","volume":#}'),
    (SPEECH, '{"input":"Hello.","sentence_pause_ms":#}'),
    (CARTESIA, '{"transcript":"Hello.","output_format":{' + RAW + "#}}"),
    (CARTESIA, '{"transcript":"Hello.","output_format":{"container":"mp3","sample_rate":44100,"bit_rate":#}}'),
    (CARTESIA, '{"transcript":"Hello.","output_format":{' + RAW + '44100},"generation_config":{"speed":#}}'),
    (CARTESIA, '{"transcript":"Hello.","output_format":{' + RAW + '44100},"generation_config":{"volume":#}}'),
    (ELEVENLABS, '{"text":"Hello.","seed":#}'),
    (ELEVENLABS, '{"text":"Hello.","voice_settings":{"speed":#}}'),
]
ADDRESSES = [
    ("POST", "/v1/speak?sample_rate=#"),
    ("POST", "/v1/speak?bit_rate=#"),
    ("POST", "/v1/speak?speed=#"),
    ("POST", "/v2/speak?speed=#"),
    ("POST", "/v1/jambonz?sample_rate=#"),
    ("POST", ELEVENLABS + "?output_format=pcm_#"),
    ("GET", "/voices?limit=#"),
    ("GET", "/v1/audio/voice_consents?limit=#"),
]
PARAMS = ("cfg", "steps", "seed", "speed", "volume", "sentence_pause_ms")
MESSAGES = [
    '{"type":"session.start","audio":{"sample_rate":#}}',
    '{"type":"session.start","audio":{"frame_ms":#}}',
    '{"type":"session.start","audio":{"bitrate":#}}',
    *('{"type":"text","context_id":"c","text":"Hello.","params":{"' + name + '":#}}' for name in PARAMS),
    '{"type":"session.resume","session_id":"s0_x","contexts":{"c":#}}',
]
SOCKETS = [
    ("/tts/websocket", '{"context_id":"c","transcript":"Hello.","output_format":{' + RAW + "#}}"),
    ("/tts/websocket", '{"context_id":"c","transcript":"Hello.","max_buffer_delay_ms":#}'),
    ("/v1/text-to-speech/slt/stream-input", '{"text":"Hello. ","voice_settings":{"speed":#}}'),
    ("/v1/tts", '{"type":"session.create","sample_rate":#}'),
]


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_in_a_body(gateway: GatewayHarness, path: str, body: str) -> None:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as http:
        answers = {number: http.post(path, content=body.replace("#", number)) for number in NUMBERS}
    assert {number[:30]: answer.status_code for number, answer in answers.items() if answer.status_code != 400} == {}


@pytest.mark.parametrize(("method", "address"), ADDRESSES)
def test_in_an_address(gateway: GatewayHarness, method: str, address: str) -> None:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as http:
        for number in NUMBERS:
            answer = http.request(method, address.replace("#", number), content=b'{"text":"Hello."}')
            assert answer.status_code == 400, number[:30]


def test_in_a_form(gateway: GatewayHarness) -> None:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as http:
        for number in NUMBERS:
            fields = {"ttl_s": number[:400], "consent": "true"}
            answer = http.post("/v1/voices", data=fields, files={"reference": wav(said("heart"))})
            assert (answer.status_code, answer.json()["field"]) == (400, "ttl_s"), number[:30]


@pytest.mark.parametrize("message", MESSAGES)
async def test_in_a_message(gateway: GatewayHarness, message: str) -> None:
    for number in NUMBERS:
        async with open_stream(gateway.ws_url) as client:
            await client.socket.send(message.replace("#", number))
            error = await client.until("error")
            assert error["retryable"] is False
            await client.speak("after", "Hello.")
            assert (await client.until_terminal("after"))["type"] == "context.done"


@pytest.mark.parametrize("number", NUMBERS)
async def test_in_a_playback_position(gateway: GatewayHarness, number: str) -> None:
    """A finite one is taken, and means that all is heard; no other is."""
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c", "Hello there.")
        await client.until("audio")
        await client.socket.send('{"type":"playback","context_id":"c","played_ms":' + number + "}")
        assert (await client.until_terminal("c"))["type"] == "context.done"


@pytest.mark.parametrize(("path", "message"), SOCKETS)
async def test_in_a_message_of_another_service(gateway: GatewayHarness, path: str, message: str) -> None:
    for number in NUMBERS:
        async with connect(gateway.url.replace("http", "ws", 1) + path, proxy=None) as socket:
            await socket.send(message.replace("#", number))
            assert "error" in str(await socket.recv())
