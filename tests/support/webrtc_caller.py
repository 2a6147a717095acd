"""Caller of the WebRTC bot in this process: plays audio as a browser does, and records the times."""

from __future__ import annotations

import asyncio
import contextlib
import fractions
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import av
import numpy as np
import numpy.typing as npt
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError

RATE_HZ = 48_000
FRAME_SAMPLES = 960
FRAME_S = FRAME_SAMPLES / RATE_HZ
BUFFER_FRAMES = 2  # as much as a browser keeps on a network without jitter
REPORT_EVERY = 3  # frames
CONNECT_S = 20.0
SILENCE = b"\xf8\xff\xfe"


@dataclass(frozen=True)
class Received:
    at: float
    timestamp: int
    payload: bytes

    @property
    def is_silence(self) -> bool:
        return self.payload == SILENCE


class Microphone(MediaStreamTrack):
    """Silence, and what `say` gives it."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._pending: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self._num_frames = 0
        self._began_at = time.monotonic()
        self.spoke_at: float | None = None  # when the first sample of the last `say` left

    def say(self, samples: npt.NDArray[np.int16]) -> None:
        """[n] int16 mono, 48 kHz."""
        self._pending, self.spoke_at = samples, None

    async def recv(self) -> av.AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        await asyncio.sleep(max(0.0, self._began_at + self._num_frames * FRAME_S - time.monotonic()))
        samples, self._pending = self._pending[:FRAME_SAMPLES], self._pending[FRAME_SAMPLES:]
        if len(samples) and self.spoke_at is None:
            self.spoke_at = time.monotonic()
        padded = np.pad(samples, (0, FRAME_SAMPLES - len(samples)))
        frame = av.AudioFrame.from_ndarray(padded[None, :], format="s16", layout="mono")
        frame.sample_rate, frame.pts = RATE_HZ, self._num_frames * FRAME_SAMPLES
        frame.time_base = fractions.Fraction(1, RATE_HZ)
        self._num_frames += 1
        return frame


@dataclass
class Caller:
    """
    Attributes:
        received: RTP packets as they came.
        played: those that the listener has heard; `played_at`: when each began, by its timestamp.
        told: messages of the bot's, each with when it came.
    """

    connection: RTCPeerConnection
    channel: RTCDataChannel
    microphone: Microphone
    received: list[Received] = field(default_factory=list)
    played: list[Received] = field(default_factory=list)
    played_at: dict[int, float] = field(default_factory=dict)
    told: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    is_answering: bool = True  # as the bot's page does
    _buffered: asyncio.Event = field(default_factory=asyncio.Event)
    _muted_at: int | None = None
    _silent_until: int | None = None

    def messages(self, kind: str) -> list[dict[str, Any]]:
        return [message for _, message in self.told if message["type"] == kind]

    def at(self, kind: str) -> float:
        """Return the time of the last message of a kind."""
        return [at for at, message in self.told if message["type"] == kind][-1]

    def speech(self) -> list[Received]:
        return [one for one in self.received if not one.is_silence]

    def interrupt(self) -> None:
        """Press the button: the page stops before the bot receives the message."""
        self._mute()
        self._say("interrupt")

    def on_rtp(self, timestamp: int, payload: bytes) -> None:
        self.received.append(Received(time.monotonic(), timestamp, payload))
        if len(self.received) == BUFFER_FRAMES:
            self._buffered.set()

    def on_message(self, text: str) -> None:
        message = json.loads(text)
        self.told.append((time.monotonic(), message))
        if message["type"] == "cut":
            self._silent_until = message["rtp"]
            self._mute()
            if self.is_answering:
                self._say("cut", turn=message["turn"], rtp=self._muted_at)

    async def play(self) -> None:
        """A packet every 20 ms, once some are there."""
        await self._buffered.wait()
        next_at, position = time.monotonic(), 0
        while True:
            position = self._play_one(position)
            while len(self.received) - position > BUFFER_FRAMES and self.received[position].is_silence:
                position = self._play_one(position)  # what a stall has put behind is caught up with in a pause
            next_at += FRAME_S
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    def _play_one(self, position: int) -> int:
        """Where the next packet is."""
        if position == len(self.received):
            return position
        packet = self.received[position]
        # On a busy machine the packet is here before the message that names it.
        if self._silent_until is not None and (packet.timestamp - self._silent_until) % (1 << 32) < 1 << 31:
            self._muted_at = self._silent_until = None
        if self._muted_at is None:
            self.played.append(packet)
            self.played_at[packet.timestamp] = time.monotonic()
            if position % REPORT_EVERY == 0:
                self._say("played", rtp=self._position())
        return position + 1

    def _mute(self) -> None:
        if self._muted_at is None:
            self._muted_at = self._position()

    def _position(self) -> int:
        return (self.played[-1].timestamp + FRAME_SAMPLES) % (1 << 32) if self.played else 0

    def _say(self, kind: str, **fields: Any) -> None:
        if self.channel.readyState == "open":
            self.channel.send(json.dumps({"type": kind, **fields}))


async def offered(connection: RTCPeerConnection, url: str) -> RTCSessionDescription:
    """The bot's answer.

    Raises:
        RuntimeError: it refused, with the code.
    """
    await connection.setLocalDescription(await connection.createOffer())
    offer = {"sdp": connection.localDescription.sdp, "type": connection.localDescription.type}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/offer", json=offer) as response:
        fields = await response.json()
        if response.status != 200:
            raise RuntimeError(f"{response.status} {fields['code']}")
        return RTCSessionDescription(**fields)


@contextlib.asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    """Raises RuntimeError: the bot refused."""
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    try:
        caller = Caller(connection, connection.createDataChannel("control"), Microphone())
        connection.addTrack(caller.microphone)
        caller.channel.on("message", caller.on_message)
        _tap(connection.getTransceivers()[0].receiver, caller.on_rtp)
        opened = asyncio.Event()
        caller.channel.on("open", opened.set)
        await connection.setRemoteDescription(await offered(connection, url))
        await asyncio.wait_for(opened.wait(), CONNECT_S)
        playing = asyncio.create_task(caller.play(), name="playing")
        try:
            yield caller
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
    finally:
        await connection.close()


def _tap(receiver: RTCRtpReceiver, on_rtp: Callable[[int, bytes], None]) -> None:
    """aiortc shows decoded samples only; what is asked here is what came over the wire."""
    handle = receiver._handle_rtp_packet

    async def tapped(packet: Any, arrival_time_ms: int) -> None:
        on_rtp(packet.timestamp, bytes(packet.payload))
        await handle(packet, arrival_time_ms=arrival_time_ms)

    receiver._handle_rtp_packet = tapped
