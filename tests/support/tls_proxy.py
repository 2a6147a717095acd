"""TLS in front of a gateway, as nginx or Caddy are in front of one: some clients know no other addresses."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit


def make_certificate(openssl: str, directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, "req", *kind, *names, *files], check=True, capture_output=True)
    return certificate, key


@contextlib.contextmanager
def tls_proxy(url: str, certificate: Path, key: Path) -> Iterator[str]:
    """The https address of a proxy to an http one."""
    target = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # A client that reads in one thread and writes in another must not read a ticket while it writes its first request:
    # before Python 3.13 nothing guards the two, and about one request in a thousand is never sent.
    context.num_tickets = 0
    loop = asyncio.new_event_loop()
    over, found = asyncio.Event(), []
    writers: list[asyncio.StreamWriter] = []
    ready = threading.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        behind_reader, behind_writer = await asyncio.open_connection(target.hostname, target.port)
        writers.append(behind_writer)
        with contextlib.suppress(asyncio.CancelledError):  # the proxy ends, and asyncio would log it as a failure
            await asyncio.gather(pump(reader, behind_writer), pump(behind_reader, writer))

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()
        await over.wait()
        server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)  # transports close with a later turn of the loop

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="tls proxy")
    thread.start()
    try:
        assert ready.wait(10)
        yield f"https://127.0.0.1:{found[0]}"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()
