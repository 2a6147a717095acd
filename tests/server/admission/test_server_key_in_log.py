"""A key is in no log, whatever is wrong with the request that brings it."""

from __future__ import annotations

import hashlib
import secrets
import signal
from pathlib import Path

import pytest
from raw_http import RawConnection
from server_processes import ServerProcess

KEY = "rtts_" + secrets.token_urlsafe(32)
HASH = hashlib.sha256(KEY.encode()).hexdigest()
BEARER = b"authorization: Bearer %s\r\n" % KEY.encode()
SPEECH = b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\n" + BEARER
UPGRADE = b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"
REQUESTS = {
    "too many headers": SPEECH + b"a: b\r\n" * 100 + b"\r\n",
    "headers too long": SPEECH + b"a: " + b"b" * 20_000 + b"\r\n\r\n",
    "the key in too many headers": b"GET / HTTP/1.1\r\n" + BEARER * 101 + b"\r\n",
    "no request line": BEARER + b"\r\n",
    "a bad header": SPEECH + b"\x00: " + KEY.encode() + b"\r\n\r\n",
    "a bad chunk": SPEECH + b"transfer-encoding: chunked\r\n\r\n" + KEY.encode() + b"\r\n",
    "too many trailers": SPEECH + b"transfer-encoding: chunked\r\n\r\n0\r\n" + BEARER * 101 + b"\r\n",
    "a key in an address": b"GET /v1/voices?api_key=" + KEY.encode() + b" HTTP/1.1\r\nhost: bad host\r\n\r\n",
    "a number in a body": SPEECH + b'content-length: 32\r\n\r\n{"input":"Hello.","speed":1e999} ',
    "a bad handshake": b"GET /v1/stream?api_key="
    + KEY.encode()
    + b" HTTP/1.1\r\nhost: localhost\r\n"
    + UPGRADE
    + b"\r\n",
    "a bad subprotocol": b"GET /v1/stream HTTP/1.1\r\nhost: localhost\r\nsec-websocket-protocol: realtime-tts.key."
    + KEY.encode()
    + b"\xff\r\n"
    + UPGRADE
    + b"\r\n",
}


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_a_key_is_in_no_log(tmp_path: Path, log_format: str) -> None:
    log = tmp_path / "log.txt"
    server = ServerProcess(log, api_key_hashes=["sha256:" + HASH], log_level="debug", log_format=log_format)
    try:
        for name, request in REQUESTS.items():
            async with RawConnection(server.url) as connection:
                connection.send(request)
                answer = await connection.read_until(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 4"), name
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        server.close()
    text = log.read_text()
    assert "ready" in text, "the log is one"
    assert KEY not in text
    assert HASH not in text
