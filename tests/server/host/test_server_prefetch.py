"""Once a server is ready, no client makes it load modules, compile patterns or build parsers: the first would
wait for that, and all other clients while the event loop is held up."""

from __future__ import annotations

import json
import re
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from server_processes import ServerProcess
from spoken_recordings import said, wav
from stream_client import open_stream
from vendor_gateways import WORKER
from websockets.asyncio.client import connect

from realtime_tts.server import app

PATIENT_S = 60.0
TEXT = 'It\'s "$12" on 3/4/2020 – for them, e.g. at a@b.org!'  # all kinds of rules
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
CARTESIA = {"model_id": "m", "voice": {"mode": "id", "id": "katie"}, "transcript": TEXT}
HTTP_SPEECH: list[tuple[str, dict[str, Any]]] = [
    *(("/v1/audio/speech", {"input": TEXT, "response_format": name}) for name in ("mp3", "opus", "aac", "flac", "wav")),
    ("/v1/audio/speech", {"input": TEXT, "stream_format": "sse"}),
    ("/tts/bytes", {**CARTESIA, "output_format": {"container": "mp3", "sample_rate": 44_100, "bit_rate": 128_000}}),
    ("/tts/sse", {**CARTESIA, "output_format": RAW}),
    ("/v1/text-to-speech/slt/stream?output_format=ulaw_8000", {"text": TEXT}),
    ("/v1/text-to-speech/slt/with-timestamps", {"text": TEXT}),
    ("/v1/speak?encoding=alaw&sample_rate=8000", {"text": TEXT}),
]
_ELEVENLABS_END = [{"text": "", "context_id": "a", "flush": True}, {"context_id": "a", "close_context": True}]
# Address, what is said, and what the last answer has in it.
SOCKETS: list[tuple[str, list[dict[str, Any]], str]] = [
    ("/tts/websocket", [{**CARTESIA, "context_id": "a", "output_format": RAW}], '"done":true'),
    (
        "/v1/text-to-speech/slt/multi-stream-input?output_format=mp3_44100_128",
        [{"text": " ", "context_id": "a"}, {"text": TEXT, "context_id": "a"}, *_ELEVENLABS_END],
        '"isFinal":true',
    ),
    ("/v1/speak?encoding=mulaw&sample_rate=8000", [{"type": "Speak", "text": TEXT}, {"type": "Flush"}], '"Flushed"'),
    (
        "/v2/speak?encoding=mulaw&sample_rate=8000",
        [{"type": "Speak", "text": TEXT}, {"type": "Flush"}],
        '"SpeechMetadata"',
    ),
    ("/v1/tts?model=m", [{"type": "input_transcript", "transcript": TEXT}, {"type": "session.flush"}], '"done"'),
]
FORMATS = (
    {},
    {"fec": True, "dtx": True},
    {"codec": "pcm_f32le", "sample_rate": 22_050},
    {"codec": "alaw", "sample_rate": 8_000},
)


async def test_the_first_client_of_each_kind_loads_compiles_and_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELL_FIRSTS", "1")
    log = tmp_path / "log.txt"
    worker = {"patch_delay_s": 0.0, "text_lag_ms": 80.0, "chars_per_patch": 40}
    server = ServerProcess(log, worker, max_late_ms=0, voices_dir=str(tmp_path / "voices"))
    try:
        async with open_stream(server.ws_url) as client:
            for number, audio in enumerate(FORMATS):
                name, params = str(number), {"speed": 1.5, "volume": 0.5} if number else {}
                await client.speak(name, TEXT, audio=audio, params=params)
                assert (await client.until_terminal(name, PATIENT_S))["type"] == "context.done"
        for address, said_there, last in SOCKETS:
            async with connect(server.url.replace("http", "ws", 1) + address, proxy=None) as socket:
                for message in said_there:
                    await socket.send(json.dumps(message))
                while last not in (answer if isinstance(answer := await socket.recv(), str) else ""):
                    pass
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=PATIENT_S) as http:
            for address in ("/", "/docs", "/openapi.json", "/metrics", "/v1/models", "/v1/voices/slt/preview"):
                assert (await http.get(address)).status_code == 200
            for address, body in HTTP_SPEECH:
                answer = await http.post(address, json=body)
                assert (answer.status_code, bool(answer.content)) == (200, True), address
            files, fields = {"reference": ("r.wav", wav(said("heart")))}, {"name": "mine", "consent": "true"}
            assert (await http.post("/v1/voices", files=files, data=fields)).status_code == 201
        assert re.findall(r"^(?:loading|compiling|building) .*", log.read_text(), re.MULTILINE) == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENT_S) == 0
    finally:
        server.close()


def test_one_thread_alone_changes_the_warnings_while_a_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    changed_in: list[str] = []

    def enter(self: warnings.catch_warnings) -> object:
        changed_in.append(threading.current_thread().name)
        return entered(self)

    entered = warnings.catch_warnings.__enter__
    monkeypatch.setattr(warnings.catch_warnings, "__enter__", enter)
    app.api_routes.cache_clear()  # another test of this process may have built them
    with GatewayHarness(worker=WORKER):
        pass
    assert set(changed_in) == {"gateway"}
