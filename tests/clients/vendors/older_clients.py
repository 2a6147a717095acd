"""Drives one package of an older major version against a gateway, and prints what came of it as one JSON object.

Arguments: name of the package, address of the gateway, key. Run by the Python of these packages' own environment.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

TEXT = "Hello there, this is a turn. And one more."


def words_of(text: str) -> Iterator[str]:
    return (f"{word} " for word in text.split())


def drive_openai(url: str, key: str) -> dict[str, Any]:
    from openai import APIStatusError, OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        wanted: dict[str, Any] = {"model": "tts-1", "voice": "rms", "input": TEXT, "response_format": "pcm"}
        try:
            whole = client.audio.speech.create(**wanted).read()
        except APIStatusError as error:
            return {"status": error.status_code, "code": error.code}
        with client.audio.speech.with_streaming_response.create(**wanted) as answer:
            streamed = b"".join(answer.iter_bytes())
        return {
            "whole": len(whole),
            "streamed": len(streamed),
            "models": [model.object for model in client.models.list()],
        }


def drive_cartesia(url: str, key: str) -> dict[str, Any]:
    from cartesia import Cartesia
    from cartesia.core.api_error import ApiError

    # It speaks to a WebSocket without TLS only if the address says localhost.
    client = Cartesia(api_key=key, base_url=url.replace("127.0.0.1", "localhost"))
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    wanted: dict[str, Any] = {"model_id": "sonic-2", "voice": {"mode": "id", "id": "rms"}, "output_format": raw}
    try:
        whole = b"".join(client.tts.bytes(transcript=TEXT, **wanted))
    except ApiError as error:
        return {"status": error.status_code}
    events = [event.type for event in client.tts.sse(transcript=TEXT, **wanted)]
    socket = client.tts.websocket()
    try:
        answers = list(socket.send(transcript=TEXT, stream=True, add_timestamps=True, **wanted))
        context = socket.context()
        deltas = list(context.send(transcript=words_of(TEXT), **wanted))
    finally:
        socket.close()
    words = [word for answer in answers if answer.word_timestamps for word in answer.word_timestamps.words]
    return {
        "whole": len(whole),
        "events": sorted(set(events)),
        "socket": sum(len(answer.audio) for answer in answers if answer.audio),
        "words": words,
        "deltas": sum(len(answer.audio) for answer in deltas if answer.audio),
        "voices": [voice.id for voice in client.voices.list()],
        "voice": client.voices.get("rms").id,
        "token": bool(client.auth.access_token(expires_in=60, grants={"tts": True}).token),
    }


def drive_elevenlabs(url: str, key: str) -> dict[str, Any]:
    import httpx
    from elevenlabs.client import ElevenLabs
    from elevenlabs.core.api_error import ApiError
    from elevenlabs.environment import ElevenLabsEnvironment

    # `base_url` would become https.
    socket_url = url.replace("http", "ws", 1)
    environment = ElevenLabsEnvironment(base=url, wss=socket_url)
    with httpx.Client(timeout=60) as http:
        client = ElevenLabs(api_key=key, environment=environment, httpx_client=http)
        speech = client.text_to_speech
        try:
            whole = b"".join(speech.convert("rms", text=TEXT, output_format="pcm_24000"))
        except ApiError as error:
            return {"status": error.status_code, "code": error.body["detail"]["status"]}
        speech._ws_base_url = socket_url  # else wss
        timed = speech.convert_with_timestamps("rms", text=TEXT, output_format="pcm_24000")
        deltas = speech.convert_realtime(
            "rms", text=words_of(TEXT), model_id="any", output_format="pcm_24000", voice_settings=None
        )
        return {
            "whole": len(whole),
            "streamed": len(b"".join(speech.convert_as_stream("rms", text=TEXT, output_format="pcm_24000"))),
            "deltas": len(b"".join(deltas)),
            "characters": "".join(timed.alignment.characters),
            "voices": [voice.voice_id for voice in client.voices.get_all().voices],
            "found": [voice.voice_id for voice in client.voices.search(search="rms").voices],
            "models": len(client.models.get_all()),
            "user": client.user.get().subscription.status,
            "subscription": client.user.get_subscription().status,
        }


def drive_deepgram(url: str, key: str) -> dict[str, Any]:
    from deepgram import DeepgramClient, DeepgramClientOptions, SpeakOptions, SpeakWebSocketEvents, SpeakWSOptions

    client = DeepgramClient(key, DeepgramClientOptions(url=url))
    options = SpeakOptions(model="rms", encoding="linear16", container="none", sample_rate=24_000)
    try:
        answer = client.speak.rest.v("1").stream_memory({"text": TEXT}, options)
    except Exception as error:  # it has a class for each way to fail
        return {"refused": str(getattr(error, "status", "") or error)}
    socket = client.speak.websocket.v("1")
    audio, flushed = bytearray(), threading.Event()
    socket.on(SpeakWebSocketEvents.AudioData, lambda _, data, **rest: audio.extend(data))
    socket.on(SpeakWebSocketEvents.Flushed, lambda *_, **rest: flushed.set())
    is_open = socket.start(SpeakWSOptions(model="rms", encoding="linear16", sample_rate=24_000))
    for word in words_of(TEXT):
        socket.send_text(word)
    socket.flush()
    was_flushed = flushed.wait(20)
    socket.finish()
    return {
        "whole": len(answer.stream_memory.getvalue()),
        "characters": answer.characters,
        "model": bool(answer.model_uuid and answer.model_name and answer.request_id),
        "open": is_open,
        "flushed": was_flushed,
        "deltas": len(audio),
        "token": bool(client.auth.v("1").grant_token().access_token),
    }


DRIVES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "openai": drive_openai,
    "cartesia": drive_cartesia,
    "elevenlabs": drive_elevenlabs,
    "deepgram-sdk": drive_deepgram,
}

if __name__ == "__main__":
    name, url, key = sys.argv[1:]
    sys.stdout.write(json.dumps(DRIVES[name](url, key)))
