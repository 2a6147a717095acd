"""The Realtime server over WebRTC, with aiortc as a browser: an offer, media tracks, and the channel `oai-events`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from realtime_caller import SERVER_EVENT, serving, until
from realtime_server.server import Server
from webrtc_caller import RATE_HZ, Microphone

SENTENCE = "The quick brown fox."
LONG = " ".join([SENTENCE] * 16)
SOUND = np.random.default_rng(1).normal(0, 6_000, RATE_HZ).clip(-32_768, 32_767).astype(np.int16)


class Caller:
    """One call: the events that came, and how much of the audio was no silence."""

    def __init__(self, connection: RTCPeerConnection, channel: RTCDataChannel, server: Server) -> None:
        self.microphone = Microphone()
        self.server = server
        self.channel = channel
        self.events: list[dict[str, Any]] = []
        self.loud_ms = 0.0
        self.listening: asyncio.Task[None] | None = None
        connection.addTrack(self.microphone)
        connection.on("track", self._on_track)
        channel.on("message", self._on_message)

    def _on_message(self, text: str) -> None:
        SERVER_EVENT.validate_json(text)
        self.events.append(json.loads(text))

    def _on_track(self, track: Any) -> None:
        self.listening = asyncio.get_running_loop().create_task(self._listen(track))

    async def _listen(self, track: Any) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                if np.abs(frame.to_ndarray()).max() > 50:
                    self.loud_ms += frame.samples * 1000 / frame.sample_rate

    def send(self, kind: str, **fields: Any) -> None:
        self.channel.send(json.dumps({"type": kind, **fields}))

    def ask(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        self.send("response.create")

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    async def next(self, kind: str, number: int = 1) -> dict[str, Any]:
        await until(lambda: len(self.all(kind)) >= number)
        return self.all(kind)[number - 1]


async def offer(
    url: str, sdp: str, session: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Return status and body of the answer, as OpenAI's clients ask for it: SDP alone, or a form."""
    address = url.replace("ws:", "http:") + "/realtime/calls"
    async with aiohttp.ClientSession() as http:
        if session is None:
            body: Any = {"data": sdp, "headers": {"Content-Type": "application/sdp", **(headers or {})}}
        else:
            form = aiohttp.FormData()
            form.add_field("sdp", sdp)
            form.add_field("session", json.dumps(session))
            body = {"data": form, "headers": headers}
        async with http.post(address, **body) as response:
            return response.status, await response.text()


@contextlib.asynccontextmanager
async def calling(
    url: str, server: Server, session: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[Caller]:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    caller = Caller(connection, connection.createDataChannel("oai-events"), server)
    try:
        await connection.setLocalDescription(await connection.createOffer())
        status, sdp = await offer(url, connection.localDescription.sdp, session, headers)
        assert status == 201, sdp
        await connection.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="answer"))
        await caller.next("session.created")
        yield caller
    finally:
        await connection.close()
        if caller.listening is not None:
            caller.listening.cancel()
            await asyncio.gather(caller.listening, return_exceptions=True)
        await until(lambda: not server.connections)


async def test_a_turn_by_voice(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}") as (url, server), calling(url, server) as caller:
        caller.microphone.say(SOUND)
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["output"][0]["content"][0]["transcript"]) == ("completed", SENTENCE)
        await caller.next("output_audio_buffer.stopped")
        assert len(caller.all("output_audio_buffer.started")) == 1
        assert not caller.all("response.output_audio.delta")
        sent_ms = next(iter(server.connections)).core._last[1].sent_ms  # type: ignore[index]
        assert caller.loud_ms > 0.5 * sent_ms


async def test_a_page_calls_with_a_client_secret(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", key="secret", allowed_origins=["http://localhost:3000"]) as (url, server):
        page = {"Origin": "http://localhost:3000"}
        calls = url.replace("ws:", "http:") + "/realtime/calls"
        async with aiohttp.ClientSession() as http:
            asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
            async with http.options(calls, headers={**page, **asked}) as allowed:
                assert allowed.headers["Access-Control-Allow-Origin"] == page["Origin"]
                assert allowed.headers["Access-Control-Allow-Headers"] == "authorization"
            async with http.options(calls, headers={"Origin": "http://other.example.org", **asked}) as refused:
                assert "Access-Control-Allow-Origin" not in refused.headers
        granted = {"type": "realtime", "instructions": "Be brief.", "output_modalities": ["text"]}
        secret = server._secrets.issue(granted, time.monotonic() + 60, time.monotonic())
        own = {"type": "realtime", "instructions": "Be kind."}
        async with calling(url, server, own, headers={**page, "Authorization": f"Bearer {secret}"}) as caller:
            session = (await caller.next("session.updated", 2))["session"]
            assert (session["instructions"], session["output_modalities"]) == ("Be kind.", ["text"])


async def test_a_fault_in_the_hearing_ends_the_call(fake_gateway: str, caplog: pytest.LogCaptureFixture) -> None:
    def is_speech(window: object) -> bool:
        raise RuntimeError("no detector")

    async with serving(fake_gateway, "", silero=lambda: is_speech) as (url, server), calling(url, server):
        await until(lambda: not server.connections)
    assert "no detector" in caplog.text


async def test_an_interruption_truncates_the_message(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}") as (url, server), calling(url, server) as caller:
        caller.ask(f"say {LONG}")
        await until(lambda: caller.loud_ms > 1_000)
        caller.microphone.say(SOUND)
        truncated = await caller.next("conversation.item.truncated")
        await caller.next("output_audio_buffer.cleared")
        assert (await caller.next("response.done"))["response"]["status_details"]["reason"] == "turn_detected"
        item = next(iter(server.connections)).core.items.find(truncated["item_id"])
        assert item is not None
        kept = item["content"][0]["transcript"]
        assert 0 < len(kept) < len(LONG)
        assert LONG.startswith(kept)
        answer = (await caller.next("response.done", 2))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == SENTENCE


async def test_a_session_comes_with_the_offer(fake_gateway: str) -> None:
    session = {"type": "realtime", "instructions": "Be brief.", "output_modalities": ["text"]}
    async with serving(fake_gateway, "") as (url, server), calling(url, server, session) as caller:
        assert (await caller.next("session.updated"))["session"]["instructions"] == "Be brief."
        caller.ask("say Yes.")
        assert (await caller.next("response.done"))["response"]["output"][0]["content"][0]["text"] == "Yes."
        caller.send("input_audio_buffer.append", audio="AAAA")
        assert (await caller.next("error"))["error"]["param"] == "audio"


async def test_the_channel_can_clear_the_audio(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        caller.ask(f"say {LONG}")
        await until(lambda: caller.loud_ms > 500)
        caller.send("output_audio_buffer.clear")
        await caller.next("output_audio_buffer.cleared")
        assert (await caller.next("response.done"))["response"]["status"] == "cancelled"


@pytest.mark.parametrize("sdp", ["", "v=0", "m=audio\r\n" * 3, "a=candidate:1\r\n" * 100])
async def test_a_malformed_offer_is_refused(fake_gateway: str, sdp: str) -> None:
    async with serving(fake_gateway, "", max_calls=1) as (url, server):
        status, body = await offer(url, sdp)
        assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_offer")
        await until(lambda: server._num_calls == 0)


async def test_an_offer_that_never_connects_is_dropped(fake_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_server.webrtc.CONNECT_S", 0.2)
    async with serving(fake_gateway, "", max_calls=1) as (url, server):
        connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        connection.createDataChannel("oai-events")
        connection.addTrack(Microphone())
        await connection.setLocalDescription(await connection.createOffer())
        assert (await offer(url, connection.localDescription.sdp))[0] == 201
        await until(lambda: server._num_calls == 0)
        await connection.close()
