"""Local LiveKit server on loopback, and callers that record the audio of its rooms."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from livekit import api, rtc
from ports import PORTS, free_port

KEY, SECRET = "devkey", "secret-secret-secret-secret-secret1"
RATE_HZ = 48_000
FRAME_MS = 10
AUDIBLE_RMS = 150.0  # of int16: speech is far above, what an Opus decoder makes of silence far below
TEXT_TOPIC = "lk.chat"


def livekit_server_path() -> str | None:
    return os.environ.get("LIVEKIT_SERVER") or shutil.which("livekit-server")


@dataclass(frozen=True)
class LiveKitServer:
    url: str

    def environment(self) -> dict[str, str]:
        return {"LIVEKIT_URL": self.url, "LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET}

    def token(self, room: str, identity: str) -> str:
        grants = api.VideoGrants(room_join=True, room=room)
        return api.AccessToken(KEY, SECRET).with_identity(identity).with_grants(grants).to_jwt()


@contextlib.contextmanager
def running_livekit(path: str, pids: dict[str, int] | None = None) -> Iterator[LiveKitServer]:
    """Run a LiveKit server on loopback only. `pids` gets its process id, by name."""
    port, tcp_port = free_port(), free_port()
    udp_start = random.randrange(*PORTS, 100)
    config = {
        "port": port,
        "bind_addresses": ["127.0.0.1"],
        "keys": {KEY: SECRET},
        "logging": {"level": "error"},
        "rtc": {
            "tcp_port": tcp_port,
            "port_range_start": udp_start,
            "port_range_end": udp_start + 99,
            "use_external_ip": False,
            "node_ip": "127.0.0.1",
            "enable_loopback_candidate": True,
            "interfaces": {"includes": ["lo"]},
            "stun_servers": ["127.0.0.1:3478"],  # else clients would ask public ones
        },
    }
    command = [path, "--config-body", json.dumps(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for_http(f"http://127.0.0.1:{port}", process)
            if pids is not None:
                pids["LiveKit server"] = process.pid
            yield LiveKitServer(f"ws://127.0.0.1:{port}")
        finally:
            process.kill()  # asked to end it would wait for its rooms to be empty


def wait_for_http(url: str, process: subprocess.Popen[Any], timeout_s: float = 120.0) -> None:
    """Wait until the address answers with 200.

    Raises:
        RuntimeError: the process has ended.
        TimeoutError: no such answer in time.
    """
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with status {process.returncode}")
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{url} does not answer")


@dataclass
class Hearing:
    """Audio received by a caller, in frames of 10 ms with arrival times."""

    frames: list[npt.NDArray[np.int16]] = field(default_factory=list)
    came_at: list[float] = field(default_factory=list)  # time.time()
    audible_at: list[float] = field(default_factory=list)  # of `came_at` those of audible frames

    def add(self, samples: npt.NDArray[np.int16]) -> None:
        self.frames.append(samples)
        self.came_at.append(time.time())
        if float(np.sqrt(np.mean(np.square(samples.astype(np.float64))))) > AUDIBLE_RMS:
            self.audible_at.append(self.came_at[-1])

    def audible(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Return the arrival times of audible frames."""
        return [at for at in self.audible_at if since <= at < until]

    def samples(self, since: float = 0.0, until: float = float("inf")) -> npt.NDArray[np.int16]:
        heard = [frame for frame, at in zip(self.frames, self.came_at, strict=True) if since <= at < until]
        return np.concatenate(heard) if heard else np.zeros(0, np.int16)


class Caller:
    """Simulated participant in a room: receives the agent's audio, sends text, and speaks."""

    def __init__(self, room: rtc.Room) -> None:
        self.room = room
        self.hearing = Hearing()
        self._listening: asyncio.Task[None] | None = None
        self._source: rtc.AudioSource | None = None
        self._has_track = asyncio.Event()
        room.on("track_subscribed", self._on_track)

    async def agent_is_here(self, timeout_s: float = 120.0) -> None:
        await asyncio.wait_for(self._has_track.wait(), timeout_s)

    async def type(self, text: str) -> None:
        await self.room.local_participant.send_text(text, topic=TEXT_TOPIC)

    async def speak(self, samples: npt.NDArray[np.int16]) -> None:
        """Int16 at 48 kHz; returns when it was said."""
        if self._source is None:
            self._source = rtc.AudioSource(RATE_HZ, 1)
            track = rtc.LocalAudioTrack.create_audio_track("microphone", self._source)
            options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
            publication = await self.room.local_participant.publish_track(track, options)
            await publication.wait_for_subscription()
        step = RATE_HZ * FRAME_MS // 1000
        for start in range(0, len(samples) - step + 1, step):
            await self._source.capture_frame(rtc.AudioFrame(samples[start : start + step].tobytes(), RATE_HZ, 1, step))
        await self._source.wait_for_playout()

    async def until_audible(self, since: float, timeout_s: float = 30.0) -> float:
        """Wait for the first sound after a time. Return when it arrived."""

        async def poll() -> float:
            while not (found := self.hearing.audible(since)):
                await asyncio.sleep(0.005)
            return found[0]

        return await asyncio.wait_for(poll(), timeout_s)

    async def until_heard(self, since: float, duration_s: float, timeout_s: float = 60.0) -> None:
        """Wait until so much sound has arrived since a time, which takes longer where the speech is made slowly."""

        async def poll() -> None:
            while len(self.hearing.audible(since)) * FRAME_MS < duration_s * 1000:
                await asyncio.sleep(0.02)

        await asyncio.wait_for(poll(), timeout_s)

    async def until_silent(self, since: float, for_s: float = 0.6, timeout_s: float = 60.0) -> float:
        """When the last sound came, once there was none for so long; `since` if there was none at all."""

        async def poll() -> float:
            while True:
                last = max(self.hearing.audible(since), default=since)
                if time.time() - last > for_s:
                    return last
                await asyncio.sleep(0.02)

        return await asyncio.wait_for(poll(), timeout_s)

    def _on_track(self, track: rtc.Track, publication: Any, participant: Any) -> None:
        if track.kind == rtc.TrackKind.KIND_AUDIO:
            if self._listening is not None:
                self._listening.cancel()
            self._listening = asyncio.get_running_loop().create_task(self._listen(track))
            self._has_track.set()

    async def _listen(self, track: rtc.Track) -> None:
        stream = rtc.AudioStream(track, sample_rate=RATE_HZ, num_channels=1, frame_size_ms=FRAME_MS)
        try:
            async for event in stream:
                self.hearing.add(np.frombuffer(event.frame.data, np.int16).copy())
        finally:
            await stream.aclose()

    async def leave(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self.room.disconnect()


@contextlib.asynccontextmanager
async def calling(server: LiveKitServer, room_name: str, identity: str = "caller") -> AsyncIterator[Caller]:
    room = rtc.Room()
    caller = Caller(room)
    await room.connect(server.url, server.token(room_name, identity))
    try:
        yield caller
    finally:
        await caller.leave()
