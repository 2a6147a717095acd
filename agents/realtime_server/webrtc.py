"""Session over WebRTC: audio over media tracks, events over the data channel `oai-events`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import av
import numpy as np
from aiortc import (
    InvalidStateError,
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from peer import CONNECT_S, answer_offer
from realtime_tts_client import Packet, Session
from speech_track import SpeechTrack

from realtime_server.connection import Connection, Parts
from realtime_server.events import Fields

logger = logging.getLogger("realtime_server")

LEAD_MS = 60.0  # of the packets given to the track, which sends one each 20 ms
MAX_BUFFERED_BYTES = 1 << 20  # for a client that sends and does not read
MAX_WAITING = 100  # messages that wait to be processed


class CallConnection(Connection):
    """One caller, one peer connection."""

    has_track = True

    def __init__(self, parts: Parts, speech: Session, model: str) -> None:
        super().__init__(parts, speech, model)
        self.lead_ms = LEAD_MS
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._track = SpeechTrack(lambda timestamp, start_ms: None)
        self._channel: RTCDataChannel | None = None
        self._opened = asyncio.Event()
        self._over = asyncio.Event()
        self._messages: asyncio.Queue[str | bytes] = asyncio.Queue(MAX_WAITING)
        self._hearing: asyncio.Task[None] | None = None
        self._peer.on("connectionstatechange", self._on_state)
        self._peer.on("datachannel", self._on_channel)
        self._peer.on("track", self._on_track)

    async def answer(self, sdp: str, *sessions: Fields) -> str:
        """Return the answer to an offer. Raises ValueError: it is not of Opus both ways and a data channel.

        sessions: settings, each over those before.
        """
        for session in sessions:
            self._put(json.dumps({"type": "session.update", "session": session}))
        made = await answer_offer(self._peer, self._track, RTCSessionDescription(sdp=sdp, type="offer"))
        return str(made.sdp)

    async def run(self) -> None:
        """Run the session until the caller hangs up. Raises TimeoutError: no connection could be made."""
        await asyncio.wait_for(self._opened.wait(), CONNECT_S)
        reading = asyncio.get_running_loop().create_task(self._read(), name="reading")
        reading.add_done_callback(self._on_task_end)
        try:
            await self._over.wait()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def hang_up(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
        await self.close()
        await self._peer.close()

    async def _read(self) -> None:
        await self.flush()
        while True:
            await self.receive(await self._messages.get())

    async def _listen(self, track: MediaStreamTrack) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                if isinstance(frame, av.AudioFrame):
                    samples = frame.to_ndarray()[0, :: frame.layout.nb_channels]
                    await self.hear(samples.astype(np.float32) / np.float32(32_768))
        self.end()

    def _on_state(self) -> None:
        if self._peer.connectionState in ("failed", "closed"):
            self.end()

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """End the call if one of its tasks has failed: it would process nothing more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a call ended with a fault", exc_info=error)
            self.end()

    def end(self) -> None:
        """Let `run` return."""
        self._opened.set()
        self._over.set()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is None:
            self._channel = channel
            channel.on("message", self._put)
            channel.on("close", self.end)
            self._opened.set()

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._hearing = asyncio.get_running_loop().create_task(self._listen(track), name="hearing")
        self._hearing.add_done_callback(self._on_task_end)

    def _put(self, message: str | bytes) -> None:
        try:
            self._messages.put_nowait(message)
        except asyncio.QueueFull:
            self.end()

    # ---- the line ------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        if self._channel is not None:  # until then, events wait
            await super().flush()

    async def _send(self, text: str) -> None:
        if self._channel is None or self._channel.bufferedAmount > MAX_BUFFERED_BYTES:
            self.end()
            return
        with contextlib.suppress(InvalidStateError, ConnectionError):  # it is being closed
            self._channel.send(text)

    def _play(self, packet: Packet) -> None:
        self._track.put(packet)

    def _stop_playing(self) -> None:
        self._track.drop()
