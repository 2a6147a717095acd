"""Time from first token to first audio through the dialects of other services, compared with the native protocol.

    python -m benchmarks.dialect_latency --rounds 40

Ways take turns on one server, so that what else runs on the machine meets all of them; what counts is the difference
within a round. A turn's tokens are sent 10 ms apart, on connections that stand.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable

from tqdm import tqdm
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.first_audio import differences, measured

TOKENS = ["Well, ", "let ", "me ", "see ", "what ", "we ", "can ", "do ", "about ", "that. "]
TOKEN_EVERY_S = 0.01
VOICE = "slt"

Turn = Callable[[ClientConnection, str], Awaitable[float]]


async def native(socket: ClientConnection, name: str) -> float:
    """Return the seconds from the first token to the first packet."""
    audio = {"codec": "pcm_s16le", "sample_rate": 24_000, "frame_ms": 40}
    frames = [json.dumps({"type": "text", "context_id": name, "text": token, "audio": audio}) for token in TOKENS]
    begun, writing = await _write(socket, frames)
    while not isinstance(await socket.recv(), bytes):
        pass
    heard = time.perf_counter()
    await writing
    await socket.send(json.dumps({"type": "cancel", "context_id": name}))
    while '"context.cancelled"' not in str(await socket.recv()):
        pass
    return heard - begun


async def elevenlabs(socket: ClientConnection, name: str) -> float:
    """Return the same time as `native`; the context is opened with the first token."""
    frames = [json.dumps({"context_id": name, "text": token}) for token in TOKENS]
    begun, writing = await _write(socket, frames)
    while not json.loads(await socket.recv()).get("audio"):
        pass
    heard = time.perf_counter()
    await writing
    await socket.send(json.dumps({"context_id": name, "close_context": True}))
    while '"isFinal":true' not in str(await socket.recv()):
        pass
    return heard - begun


async def cartesia(socket: ClientConnection, name: str) -> float:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    opening = {"context_id": name, "voice": {"mode": "id", "id": VOICE}, "output_format": raw, "continue": True}
    begun, writing = await _write(socket, [json.dumps({**opening, "transcript": token}) for token in TOKENS])
    while '"chunk"' not in str(await socket.recv()):
        pass
    heard = time.perf_counter()
    await writing
    await socket.send(json.dumps({"context_id": name, "cancel": True}))
    while '"done":true' not in str(await socket.recv()):
        pass
    return heard - begun


async def deepgram(socket: ClientConnection, name: str) -> float:
    """Return the same time as `native`; turns have no ids."""
    begun, writing = await _write(socket, [json.dumps({"type": "Speak", "text": token}) for token in TOKENS])
    while not isinstance(await socket.recv(), bytes):
        pass
    heard = time.perf_counter()
    await writing
    await socket.send('{"type":"Clear"}')
    while '"Cleared"' not in str(await socket.recv()):
        pass
    return heard - begun


async def _write(socket: ClientConnection, frames: list[str]) -> tuple[float, asyncio.Task[None]]:
    """Send the tokens of a turn: when the first one left, and the task that sends the others."""
    begun = time.perf_counter()
    await socket.send(frames[0])
    return begun, asyncio.create_task(_write_rest(socket, frames[1:]))


async def _write_rest(socket: ClientConnection, frames: list[str]) -> None:
    for frame in frames:
        await asyncio.sleep(TOKEN_EVERY_S)
        await socket.send(frame)


def elevenlabs_path(output_format: str) -> str:
    return f"/v1/text-to-speech/{VOICE}/multi-stream-input?output_format={output_format}"


REFERENCE = "native, PCM"
WAYS: dict[str, tuple[str, Turn]] = {
    REFERENCE: ("/v1/stream", native),
    "Cartesia, PCM": ("/tts/websocket", cartesia),
    "Deepgram, PCM": (f"/v1/speak?model={VOICE}&encoding=linear16&sample_rate=24000", deepgram),
    "ElevenLabs, PCM": (elevenlabs_path("pcm_24000"), elevenlabs),
    "ElevenLabs, MP3": (elevenlabs_path("mp3_22050_32"), elevenlabs),
    "ElevenLabs, Ogg Opus": (elevenlabs_path("opus_48000_64"), elevenlabs),
}


async def measure(url: str, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each round, by dialect."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    address = url.replace("http", "ws", 1)
    sockets = {name: await connect(address + path, proxy=None, max_size=None) for name, (path, _) in WAYS.items()}
    chance = random.Random(0)
    for index in tqdm(range(rounds + 2)):
        for name in chance.sample(list(WAYS), len(WAYS)):
            elapsed_s = await WAYS[name][1](sockets[name], f"turn-{index}")
            if index >= 2:  # the first rounds are warm-up
                times[name].append(1000 * elapsed_s)
    for socket in sockets.values():
        await socket.close()
    return times


def main() -> None:
    print(differences(measured(__doc__, measure), REFERENCE))


if __name__ == "__main__":
    main()
