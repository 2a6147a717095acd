"""When a session wakes its socket."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from session_config import session_config
from session_driver import FakePlanner, numbered_packets, resolve

from realtime_tts.server.admission.client import Client
from realtime_tts.server.metrics import Metrics
from realtime_tts.server.stream.live_session import LiveSession
from realtime_tts.session.messages import AudioPackets, Text
from realtime_tts.session.session import Session
from realtime_tts.speech.speaker import Piece
from realtime_tts.text.planner import Segment


@dataclass
class CountingSink:
    num_woken: int = 0

    def wake(self) -> bool:
        self.num_woken += 1
        return True

    def supersede(self) -> None:
        raise AssertionError("no other client comes")


async def test_the_socket_is_woken_for_packets_that_may_leave_and_not_for_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: now)  # no time passes, however slow this machine is
    monkeypatch.setattr("realtime_tts.server.stream.live_session.time", clock)
    session = Session("s", session_config(model="m"), resolve=resolve, make_planner=lambda _: FakePlanner(), now=now)
    admission = SimpleNamespace(charge_accepted=lambda *_: None)
    sessions = SimpleNamespace(closed=lambda live: None)
    gateway = cast("Any", SimpleNamespace(metrics=Metrics(), admission=admission, sessions=sessions))
    sink = CountingSink()
    live = LiveSession(session, gateway, Client("t"), cast("Any", sink))
    monkeypatch.setattr(live, "_start", lambda event, at: None)  # only the test speaks
    live.receive(Text("c", "A long story."))
    live.take_messages(10**9)

    def take(first: int, num_packets: int) -> tuple[int, int]:
        """How often the socket is woken, and how many packets may leave."""
        sink.num_woken = 0
        piece = Piece(Segment(0, "", 0, 0, ()), b"", 20.0 * (first + num_packets), done=False)
        live.speech_packets("c", numbered_packets(first, num_packets), piece)
        if not sink.num_woken:
            return 0, 0
        taken = live.take_messages(10**9)
        return sink.num_woken, sum(len(message.packets) for message in taken if isinstance(message, AudioPackets))

    assert take(0, 100) == (1, 100)
    assert take(100, 8) == (0, 0)
    assert not live.is_due
    assert take(108, 8) == (0, 0)
    assert take(116, 8) == (1, 24)
    live.close(1000, "over")
