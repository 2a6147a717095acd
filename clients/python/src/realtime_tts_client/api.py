"""Entry points of the client: `connect` for asyncio, `synthesize` for blocking code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from realtime_tts_client.handshake import Endpoint, clean_key, stream_url
from realtime_tts_client.playback import PlaybackMode
from realtime_tts_client.session import Session, opening_fields
from realtime_tts_client.types import AudioFormat
from realtime_tts_client.voices import OwnVoice


def connect(
    url: str,
    *,
    voice: str | OwnVoice | None = None,
    audio: AudioFormat | None = None,
    params: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    playback: PlaybackMode = "realtime",
    open_timeout_s: float = 10.0,
    ping_interval_s: float | None = 10.0,
) -> Session:
    """Open a session: `async with connect(url) as session`.

    Args:
        url: the server's address, `host:port`, `ws://host:port` or `https://host`; `/v1/stream` is the default path.
        voice, audio, params: defaults for the contexts (None: the server's defaults; its audio is Opus at 48 kHz).
            An `OwnVoice` is made for this session and deleted with it.
            params: `cfg`, `steps`, `seed`, `language`, `instructions`, `mode`, `speed`, `volume`, `sentence_pause_ms`,
                `lexicon`, `text_type`, `adapter`, `openings`.
        api_key: if the server requires one.
        playback: how the playback position is determined, which sets the server's pace. `realtime`: packets play one
            after the other from when you take them. `consumed`: taken packets count as heard at once. `manual`: you
            call `session.played` yourself.
        open_timeout_s: limit for the connection, and again for the server's first answer.
        ping_interval_s: a connection that answers no ping for this time is closed and resumed.

    Raises:
        ValueError: an address, a key or a field is invalid.

    Raises (on entering):
        ConnectionFailed: the server cannot be reached.
        ServerError: refused (`Unauthorized`, `VoiceNotFound`, `Overloaded` …).
    """
    endpoint = Endpoint(stream_url(url), clean_key(api_key), open_timeout_s, ping_interval_s)
    name, own_voice = (None, voice) if isinstance(voice, OwnVoice) else (voice, None)
    return Session(endpoint, opening_fields(name, audio, params), playback, own_voice)


def synthesize(
    url: str,
    text: str,
    *,
    voice: str | OwnVoice | None = None,
    sample_rate: int = 24_000,
    params: Mapping[str, Any] | None = None,
    api_key: str | None = None,
) -> tuple[npt.NDArray[np.float32], int]:
    """Return all speech of a text, as fast as the server generates it. Blocks; works in a notebook too.

    Returns:
        [num_samples] float32 mono in -1…1, and their rate in Hz.

    Raises: as `connect`, and what a context can fail with.
    """

    async def run() -> npt.NDArray[np.float32]:
        audio = AudioFormat("pcm_s16le", sample_rate=sample_rate)
        session = connect(url, voice=voice, audio=audio, params=params, api_key=api_key, playback="consumed")
        async with session:
            chunks = [chunk async for chunk in session.speak(text).pcm()]
        return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run()), sample_rate
    with ThreadPoolExecutor(1, "realtime-tts synthesize") as thread:  # this one has a running loop
        return thread.submit(asyncio.run, run()).result(), sample_rate
