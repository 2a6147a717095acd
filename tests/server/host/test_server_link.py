"""What a gateway reports to its host, and when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from realtime_tts.config import Settings
from realtime_tts.server.host.link import HostLink
from realtime_tts.server.host.messages import Begin, Charge, Report, encode, read
from realtime_tts.server.run import Address


class FakeHost:
    """The host's end of a gateway's connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def hear(self, kind: type[Any]) -> Any:
        while True:
            if isinstance(message := await asyncio.wait_for(read(self._reader), 20), kind):
                return message


@contextlib.asynccontextmanager
async def linked(directory: Path) -> AsyncIterator[tuple[HostLink, FakeHost]]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    writer.write(encode(Begin(Settings(), [], 0, Address("http://127.0.0.1:1", None))))
    link = await HostLink.open(theirs.detach(), str(directory))
    try:
        yield link, FakeHost(reader)
    finally:
        for end in (link._writer, writer):
            end.close()
            await end.wait_closed()


async def test_a_report_has_the_charges_since_the_last_one(tmp_path: Path) -> None:
    async with linked(tmp_path) as (link, host):
        link.charge(Charge("tenant", "", 0, 2))
        link.charge(Charge("tenant", "", 0, 3))
        reporting = asyncio.create_task(link.report(lambda: Report(3, 2), asyncio.Event()))
        assert await host.hear(Report) == Report(3, 2, charges=[Charge("tenant", "", 0, 5)])
        link.charge(other := Charge("tenant", "token", 7, 5))
        while not (charges := (await host.hear(Report)).charges):
            pass
        assert charges == [other]
        assert not reporting.done()
        reporting.cancel()


async def test_a_gateway_without_clients_looks_for_news_when_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.server.host.link.SIGN_OF_LIFE_S", 3600.0)
    looks, num_open, connected = [], 0, asyncio.Event()

    def look() -> Report:
        looks.append(num_open)
        return Report(len(looks), num_open)

    async with linked(tmp_path) as (link, host):
        reporting = asyncio.create_task(link.report(look, connected))
        assert await host.hear(Report) == Report(1, 0)
        await asyncio.sleep(0.1)
        assert looks == [0]
        num_open = 1
        connected.set()
        for number in (2, 3, 4):
            assert await host.hear(Report) == Report(number, 1)
        reporting.cancel()
