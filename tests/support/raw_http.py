"""HTTP by hand, for requests that no decent client would make."""

from __future__ import annotations

import asyncio
import contextlib


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


class RawConnection:
    """One TCP connection. Use as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> RawConnection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port_of(self._url))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def end(self) -> None:
        """Send no more."""
        self._writer.write_eof()

    async def read_until(self, end: bytes, timeout_s: float = 20.0) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(end), timeout_s)

    async def read_all(self, timeout_s: float = 20.0) -> bytes:
        """Everything up to the server's close; a reset ends it too."""
        parts: list[bytes] = []
        with contextlib.suppress(ConnectionError):
            while part := await asyncio.wait_for(self._reader.read(65536), timeout_s):
                parts.append(part)
        return b"".join(parts)

    async def drip(self, data: bytes, interval_s: float = 0.02, timeout_s: float = 20.0) -> bytes:
        """Send one byte after the other (the last one for ever), until the server closes; returns what it said."""
        answer = asyncio.ensure_future(self.read_all(timeout_s))
        index = 0
        while not answer.done():
            self.send(data[index : index + 1])
            index = min(index + 1, len(data) - 1)
            await asyncio.wait([answer], timeout=interval_s)
        return answer.result()
