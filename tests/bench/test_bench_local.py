"""The local benchmark on a machine that is too slow for its load."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from benchmarks import local
from realtime_tts.bench.streams import Heard


class Socket:
    async def close(self) -> None:
        pass


class Server:
    """Refuses connections with 503 for as long as `num_open` are open, or for the first `num_refusals`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int, num_refusals: int = 0) -> None:
        self._limit, self._num_refusals = limit, num_refusals
        monkeypatch.setattr(local, "open_stream", self._open)
        monkeypatch.setattr(local, "speak", self._speak)
        monkeypatch.setattr(local, "RETRY_S", 0.0)

    async def _open(self, url: str) -> Socket:
        if self._num_refusals > 0 or self._limit == 0:
            self._num_refusals -= 1
            raise InvalidStatus(Response(503, "Service Unavailable", Headers()))
        self._limit -= 1
        return Socket()

    async def _speak(self, socket: Socket, context_id: str, text: str, **_: Any) -> Heard:
        return Heard(chunks=[(0.1, 0.0), (0.2, 0.02)], cancelled_at_s=0.3, ended_s=0.4, last_s=0.3)


def test_streams_that_are_refused_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch, limit=2)
    row = local.parallel_row(asyncio.run(local.parallel_streams("ws://test", 3)))
    assert row["refused"] == 1
    assert row["first_packet_ms_max"] == pytest.approx(100)
    assert local.described(row).endswith("; 1 refused")


def test_a_row_without_a_stream_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch, limit=0)
    row = local.parallel_row(asyncio.run(local.parallel_streams("ws://test", 1)))
    assert row == {"refused": 1}
    assert local.described(row) == "1 refused"


def test_the_next_scenario_waits_until_it_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch, limit=1, num_refusals=3)
    assert len(asyncio.run(local.barge_ins("ws://test", 2))) == 2
