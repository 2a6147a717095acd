"""Messages between a gateway and its host that cannot be encoded: they are logged and not sent, and both go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from realtime_tts.config import Settings
from realtime_tts.server.admission.slots import SlotCounts
from realtime_tts.server.host.link import HostLink
from realtime_tts.server.host.messages import (
    AdapterChanged,
    Begin,
    Charge,
    PeerNews,
    Report,
    encode,
    read,
)
from realtime_tts.server.host.process import _Gateway

pytestmark = pytest.mark.logs_errors
TOO_LARGE = Charge("tenant", "token", 2**64, 5)
GOOD = Charge("tenant", "", 0, 5)


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
    writer.write(encode(Begin(Settings(), [], 0, 1, "http://127.0.0.1:1", None)))
    link = await HostLink.open(theirs.detach(), str(directory))
    try:
        yield link, FakeHost(reader)
    finally:
        link._sender.close()
        for end in (link._writer, writer):
            end.close()
            await end.wait_closed()


async def test_a_report_that_cannot_be_encoded_loses_its_charges_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with linked(tmp_path) as (link, host):
        link.charge(TOO_LARGE)
        reporting = asyncio.create_task(link.report(lambda: Report(3, 2), asyncio.Event()))
        assert await host.hear(Report) == Report(3, 2), "the sign of life comes all the same"
        link.charge(GOOD)
        assert (await host.hear(Report)).charges == [GOOD]
        assert not reporting.done()
        reporting.cancel()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == ["message_not_sent"]


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


async def test_any_other_message_that_cannot_be_encoded_is_not_sent(tmp_path: Path) -> None:
    async with linked(tmp_path) as (link, host):
        link.adapter_changed("name", "a directory whose name is not UTF-8: \udcff")
        link.adapter_changed("name", "/adapters/name")
        assert await host.hear(AdapterChanged) == AdapterChanged("name", "/adapters/name", 0)


def test_the_host_sends_no_message_that_cannot_be_encoded(caplog: pytest.LogCaptureFixture) -> None:
    gateway = _Gateway(0, writer=Mock())
    gateway.writer.transport.is_closing.return_value = False  # type: ignore[union-attr]
    gateway.send(PeerNews([TOO_LARGE], SlotCounts(), 0, {}, []))
    gateway.send(good := PeerNews([GOOD], SlotCounts(), 0, {}, []))
    written = [call.args[0] for call in gateway.writer.write.call_args_list]  # type: ignore[union-attr]
    assert b"".join(written) == encode(good)
    assert "message_not_sent" in caplog.text
