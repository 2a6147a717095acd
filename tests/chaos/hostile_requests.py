"""HTTP requests that are expensive to read, on loopback only, each attack bounded in what it sends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
from honest_client import Site

CHUNK_BYTES_PER_S = 1_500_000
CHUNKS = b"1\r\nx\r\n" * 1024
NUM_CONNECTIONS = 8


async def one_byte_chunks(site: Site, end: float) -> int:
    """One connection without a key, whose body comes one byte a chunk."""
    head = b"POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    return await _send_for_ever(site, end, lambda: _endless(head, CHUNKS), 1, CHUNK_BYTES_PER_S)


async def many_headers(site: Site, end: float) -> int:
    """Connections without a key, each with 60 KB of short headers a request."""
    headers = b"".join(b"a%d: b\r\n" % number for number in range(6000))
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n" + headers + b"\r\n"
    return await _send_for_ever(site, end, lambda: _endless(b"", request), NUM_CONNECTIONS, 250_000)


async def many_trailers(site: Site, end: float) -> int:
    """The same behind a body."""
    head = b"POST /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    request = head + b"".join(b"a%d: b\r\n" % number for number in range(6000)) + b"\r\n"
    return await _send_for_ever(site, end, lambda: _endless(b"", request), NUM_CONNECTIONS, 250_000)


async def one_byte_chunks_everywhere(site: Site, end: float) -> int:
    """As `one_byte_chunks`, on several connections."""
    head = b"POST /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    # The same bytes in all: the sender takes time of this machine too.
    share = CHUNK_BYTES_PER_S / NUM_CONNECTIONS
    return await _send_for_ever(site, end, lambda: _endless(head, CHUNKS), NUM_CONNECTIONS, share)


def _endless(head: bytes, part: bytes) -> Iterator[bytes]:
    yield head
    while True:
        yield part


async def _send_for_ever(
    site: Site, end: float, parts: Callable[[], Iterator[bytes]], num_connections: int, bytes_per_s: float
) -> int:
    """Returns how many bytes were sent. Each connection sends so many a second, and comes back when it is closed."""
    address = urlsplit(site.url)
    assert address.hostname == "127.0.0.1", "hostile traffic stays on this machine"

    async def connection() -> int:
        num_sent = 0
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                num_sent += await _send_on_one(address.port or 80, end, parts(), bytes_per_s)
            await asyncio.sleep(0.05)
        return num_sent

    return sum(await asyncio.gather(*[connection() for _ in range(num_connections)]))


async def _send_on_one(port: int, end: float, parts: Iterator[bytes], bytes_per_s: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun_s, num_sent = time.monotonic(), 0
    try:
        for part in parts:
            if time.monotonic() >= end or reader.at_eof():
                break
            writer.write(part)
            await asyncio.wait_for(writer.drain(), max(0.001, end - time.monotonic()))
            num_sent += len(part)
            await asyncio.sleep(max(0.0, begun_s + num_sent / bytes_per_s - time.monotonic()))
        return num_sent
    except OSError:
        return num_sent
    finally:
        writer.transport.abort()


async def pipelined_requests(site: Site, end: float) -> int:
    """Connections without a key, each with requests one behind the other, without a pause."""
    requests = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 100
    return await _send_for_ever(site, end, lambda: _endless(b"", requests), NUM_CONNECTIONS, 250_000)


async def unbounded_tokens(site: Site, end: float) -> int:
    """Tokens with limits that no machine's integers hold, each spoken with at once where it is given. Returns how many
    were asked for."""
    num_asked = 0
    async with httpx.AsyncClient(base_url=site.url, trust_env=False, timeout=10) as http:
        while time.monotonic() < end:
            limit = (2**63, 2**64, 10**400)[num_asked % 3]
            for name in ("max_chars_per_minute", "max_sessions"):
                with contextlib.suppress(httpx.HTTPError):
                    answer = await http.post("/v1/tokens", json={name: limit}, headers=_bearer(site.key))
                    token = answer.json().get("token", "none")
                    await http.post("/v1/audio/speech", json={"input": "Hello."}, headers=_bearer(token))
            num_asked += 1
            await asyncio.sleep(0.2)
    return num_asked


def _bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}
