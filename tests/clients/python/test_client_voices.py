"""Voices over HTTP: whatever answers, the error is a typed one, and the key goes to the server alone."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator

import pytest
import realtime_tts_client as client
from realtime_tts_client.voices import MAX_ANSWER_BYTES, OwnVoice, lend_voice

OWN = OwnVoice(b"a recording", consent=True)


@contextlib.contextmanager
def answering(answer: bytes, asked: list[bytes] | None = None) -> Iterator[str]:
    """The address of a stream beside which each request gets these bytes."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines = list(iter(self.rfile.readline, b"\r\n"))
            lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")]
            self.rfile.read(sum(lengths))
            if asked is not None:
                asked.extend(lines)
            with contextlib.suppress(ConnectionError):
                self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.server_address[1]}/v1/stream"
        finally:
            server.shutdown()
            thread.join()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", client.ConnectionFailed),
        (b"no HTTP at all\r\n\r\n", client.ConnectionFailed),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{}", client.ProtocolError),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n{}", client.Overloaded),
        (b"HTTP/1.1 201 Created\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", client.ConnectionFailed),
        (ok(b"no JSON"), client.ProtocolError),
        (ok(b"[]"), client.ProtocolError),
        (ok(b"{}"), client.ProtocolError),
        (ok(b"[" * 100_000), client.ProtocolError),
        (ok(b'{"id": 5}'), client.ProtocolError),
        (ok(b'{"id": "v", "warnings": [5]}'), client.ProtocolError),
        (ok(b'{"id": "' + b"v" * MAX_ANSWER_BYTES + b'"}'), client.ProtocolError),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000, client.Overloaded),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
def test_whatever_answers_the_error_is_a_typed_one(answer: bytes, expected: type[Exception]) -> None:
    with answering(answer) as url, pytest.raises(expected):
        lend_voice(url, None, OWN)


def test_the_key_is_not_sent_elsewhere() -> None:
    asked: list[bytes] = []
    with answering(ok(b'{"id": "v"}'), asked) as elsewhere:
        moved = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.replace('ws', 'http', 1)}\r\nContent-Length: 0\r\n\r\n"
        with answering(moved.encode()) as url, pytest.raises(client.ConnectionFailed, match="302"):
            lend_voice(url, "the-key", OWN)
    assert asked == []
