"""Tags at the addresses of all services: letter by letter or whole, none is in the text that the model receives."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from websockets.asyncio.client import connect

from realtime_tts.text.tags import ELEMENTS

TAGS = [
    *(f"<{name} value='sad'/>" for name in ELEMENTS if name not in ("spell", "speak")),
    '<expr type="expression" label="say it really playfully"/>', '<EXPR type="sound" label="laugh"/>', "[LAUGHS]",
    "[very Sad]", "[whispers softly]", "[[sigh]]", "<<Sympathetic>>", "[Question-ah]", "[Pause]",
    r"\{pause:500ms\}", r'\{"word": "zebra", "pronounce": "ˈzɛbrə"\}',
]  # fmt: skip
TEXT = "zebra " + "".join(f"{tag} zebra " for tag in TAGS)
VOICE = {"model_id": "m", "voice": {"mode": "id", "id": "slt"}}
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
PCM = {"codec": "pcm_s16le", "sample_rate": 24_000}
HTTP: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/audio/speech": ("input", {"voice": "slt", "response_format": "pcm"}),
    "/tts/bytes": ("transcript", {**VOICE, "output_format": RAW}),
    "/v1/text-to-speech/slt?output_format=pcm_24000": ("text", {}),
    "/v1/speak?model=slt&encoding=linear16&container=none": ("text", {}),
    "/v2/speak?model=slt&encoding=linear16&container=none": ("text", {}),
    "/v1/jambonz": ("text", {"voice": "slt", "type": "text"}),
}
# Address, a piece of the text, messages at its end, and the last answer.
Door = tuple[str, dict[str, Any], list[dict[str, Any]], str]
STREAMS: dict[str, Door] = {
    "native": (
        "/v1/stream", {"type": "text", "context_id": "c", "text": 0, "audio": PCM},
        [{"type": "end", "context_id": "c"}], '"context.done"',
    ),
    "cartesia": (
        "/tts/websocket", {**VOICE, "output_format": RAW, "context_id": "c", "transcript": 0, "continue": True},
        [{**VOICE, "output_format": RAW, "context_id": "c", "transcript": "", "continue": False}], '"done":true',
    ),
    "elevenlabs": (
        "/v1/text-to-speech/slt/stream-input?output_format=pcm_24000", {"text": 0}, [{"text": ""}], '"isFinal":true',
    ),
    "deepgram": ("/v1/speak?model=slt", {"type": "Speak", "text": 0}, [{"type": "Flush"}], '"Flushed"'),
    "flux": ("/v2/speak?model=slt", {"type": "Speak", "text": 0}, [{"type": "Flush"}], '"SpeechMetadata"'),
    "livekit": (
        "/v1/tts?model=m", {"type": "input_transcript", "transcript": 0}, [{"type": "session.flush"}], '"done"',
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of the messages that the worker receives."""
    return tmp_path_factory.mktemp("worker") / "asked"


@pytest.fixture(scope="module")
def harness(asked: Path) -> Iterator[GatewayHarness]:
    with GatewayHarness(worker={"asked": str(asked), "chars_per_patch": 50}, max_lead_s=60.0) as made:
        yield made


def words_for_model(asked: Path) -> set[str]:
    """Words that the worker was asked to speak since the last call."""
    messages = [json.loads(line) for line in asked.read_text().splitlines()]
    asked.write_text("")
    return {word.lower() for message in messages for word in re.findall(r"\w+", str(message.get("text", "")))}


@pytest.mark.parametrize("address", HTTP)
def test_over_http(harness: GatewayHarness, asked: Path, address: str) -> None:
    name, body = HTTP[address]
    answer = httpx.post(harness.url + address, json={**body, name: TEXT}, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    assert words_for_model(asked) == {"zebra"}
    assert "markup has no effect" in answer.headers["realtime-tts-notice"]


def test_over_vapis_address(harness: GatewayHarness, asked: Path) -> None:
    body = {"message": {"type": "voice-request", "text": TEXT, "sampleRate": 24_000}}
    answer = httpx.post(harness.url + "/v1/vapi", json=body, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    assert words_for_model(asked) == {"zebra"}


@pytest.mark.parametrize("door", STREAMS)
async def test_in_a_stream_letter_by_letter(harness: GatewayHarness, asked: Path, door: str) -> None:
    address, piece, end, last = STREAMS[door]
    name = next(name for name, value in piece.items() if value == 0 and value is not False)
    async with connect(harness.url.replace("http", "ws", 1) + address, proxy=None, max_size=None) as socket:
        if door == "elevenlabs":
            await socket.send(json.dumps({"text": " "}))
        for message in [*({**piece, name: char} for char in TEXT), *end]:
            await socket.send(json.dumps(message))
        answers: list[str] = []
        while not (answers and last in answers[-1].replace(" ", "")):
            answer = await asyncio.wait_for(socket.recv(), 30)
            answers += [answer] if isinstance(answer, str) else []
    assert words_for_model(asked) == {"zebra"}
