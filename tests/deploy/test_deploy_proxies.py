"""The shipped nginx and Caddy configurations, run as they are before a gateway."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from proxy_harness import DEPLOY, NAME, Certificate, Proxy, running_proxy
from stream_client import StreamClient, open_stream
from websockets.exceptions import InvalidStatus

from realtime_tts.audio.decode import MAX_BYTES
from realtime_tts.bench.server_process import free_port
from realtime_tts.config import ServerConfig
from realtime_tts.server.voices.forms import MAX_BODY_BYTES

ORIGIN = f"https://{NAME}"


@contextlib.asynccontextmanager
async def stream_through(proxy: Proxy, query: str = "", **options: Any) -> AsyncIterator[StreamClient]:
    """`wss://tts.example.com/v1/stream`, found at the proxy."""
    address = {"host": "127.0.0.1", "port": proxy.https_port, "ssl": proxy.certificate.context()}
    async with open_stream(f"wss://{NAME}/v1/stream{query}", **address, **options) as client:
        yield client


async def refused(proxy: Proxy, query: str = "", **options: Any) -> tuple[int, str]:
    """Status and code of a handshake that must fail."""
    with pytest.raises(InvalidStatus) as caught:
        async with stream_through(proxy, query, **options):
            pass
    return caught.value.response.status_code, json.loads(caught.value.response.body)["code"]


def bearer(key: tuple[str, str]) -> dict[str, str]:
    return {"Authorization": f"Bearer {key[0]}"}


async def test_a_page_speaks_through_it(proxy: Proxy, key: tuple[str, str]) -> None:
    page = proxy.client().get("/")
    assert (page.status_code, "default-src 'self'" in page.headers["content-security-policy"]) == (200, True)
    assert proxy.client().get("/docs").status_code == 200
    async with stream_through(proxy, f"?api_key={key[0]}", origin=ORIGIN) as client:
        await client.speak("a", "Hello through the proxy.")
        done = await client.until_terminal("a")
        assert done["type"] == "context.done"
        assert len(client.contexts["a"].packets) * 20 >= done["audio_ms"] > 0
        await client.send("text", context_id="b", text="command never. ")
        await client.until("audio")
        await client.send("cancel", context_id="b")
        assert (await client.until_terminal("b"))["type"] == "context.cancelled"


async def test_a_program_speaks_through_it(proxy: Proxy, key: tuple[str, str]) -> None:
    async with stream_through(proxy, additional_headers=bearer(key)) as client:
        await client.speak("a", "No page, no origin.")
        assert (await client.until_terminal("a"))["type"] == "context.done"


@pytest.mark.parametrize("origin", ["https://evil.example", "https://tts.example.com.evil.example", "null"])
async def test_a_page_of_another_origin_is_refused(proxy: Proxy, key: tuple[str, str], origin: str) -> None:
    assert await refused(proxy, origin=origin, additional_headers=bearer(key)) == (403, "forbidden")
    assert proxy.client().get("/v1/voices", origin=origin, **bearer(key)).status_code == 403


def test_another_host_name_is_refused(proxy: Proxy, key: tuple[str, str]) -> None:
    assert proxy.client().get("/v1/voices", **bearer(key)).status_code == 200
    answer = proxy.client().get("/v1/voices", host="evil.example", **bearer(key))
    assert answer.status_code in (403, 421)
    assert b"voices" not in answer.content
    with pytest.raises(httpx.ConnectError, match=r"(?i)ssl|alert"):
        proxy.client("evil.example").get("/v1/voices", host="evil.example")


async def test_forwarded_headers_of_a_client_do_not_let_it_in(proxy: Proxy, key: tuple[str, str]) -> None:
    local = {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "X-Forwarded-Host": "localhost"}
    assert await refused(proxy, additional_headers=local) == (401, "unauthorized")
    assert proxy.client().get("/v1/voices", **local, Forwarded="for=127.0.0.1").status_code == 401
    far = {"X-Forwarded-For": "203.0.113.9", **bearer(key)}
    assert proxy.client().get("/v1/voices", **far).status_code == 200


def test_metrics_are_not_let_through(proxy: Proxy, proxied_gateway: GatewayHarness, key: tuple[str, str]) -> None:
    assert (
        httpx.get(f"{proxied_gateway.url}/metrics", headers=bearer(key), trust_env=False, timeout=30).status_code == 200
    )
    for path in ("/metrics", "/%6detrics", "//metrics", "/metrics/", "/x/../metrics"):
        answer = proxy.client().get(path, **bearer(key))
        assert b"realtime_tts_" not in answer.content, path
    assert proxy.client().get("/readyz").status_code == 200


def test_a_recording_gets_through_whole(proxy: Proxy, key: tuple[str, str]) -> None:
    """As long a body as the server takes; it is the server that finds nothing to hear in it."""
    files = {"reference": bytes(MAX_BYTES)}
    answer = proxy.client().post("/v1/voices", files, **bearer(key))
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")


def test_nginx_lets_through_what_the_server_takes() -> None:
    allowed_mib = re.search(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    assert allowed_mib is not None
    assert int(allowed_mib.group(1)) * 2**20 >= MAX_BODY_BYTES


def test_plain_http_is_led_to_https(proxy: Proxy) -> None:
    answer = httpx.get(f"http://127.0.0.1:{proxy.http_port}/docs", headers={"host": NAME}, trust_env=False, timeout=30)
    assert answer.status_code in (301, 308)
    assert answer.headers["location"].startswith(f"https://{NAME}")


async def test_no_log_has_a_key(proxy: Proxy, key: tuple[str, str]) -> None:
    async with stream_through(proxy, f"?api_key={key[0]}"):
        pass
    assert await refused(proxy, f"?api_key={key[0]}x") == (401, "unauthorized")
    logs = [path.read_text(errors="replace") for path in proxy.directory.iterdir() if path.is_file()]
    assert not any(key[0] in log for log in logs)


KEY = "rtts_a-key-that-no-log-may-have"
# Each place where a client may put a key: `server/admission/auth.py`.
KEY_HEADERS = [
    {"Authorization": f"Bearer {KEY}"},
    {"Authorization": f"Token {KEY}"},
    {"X-API-Key": KEY},
    {"xi-api-key": KEY},
    {"Sec-WebSocket-Protocol": f"realtime-tts.key.{KEY}"},
    {"Sec-WebSocket-Protocol": f"token, {KEY}"},
    {"Sec-WebSocket-Protocol": f"openai-insecure-api-key.{KEY}"},
    {"Cookie": f"key={KEY}"},
]
KEY_QUERIES = ["api_key", "xi_api_key", "access_token", "single_use_token", "authorization"]
KEYED = [("", headers) for headers in KEY_HEADERS] + [(f"?{name}={KEY}", {}) for name in KEY_QUERIES]
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}


class BreakingUpstream(socketserver.StreamRequestHandler):
    """A server that is lost in the middle: of an answer, or of what follows a handshake."""

    def handle(self) -> None:
        lines = [line for line in iter(self.rfile.readline, b"\r\n") if line]
        if any(line.lower().startswith(b"upgrade") for line in lines):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nnot a thousand")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset


@contextlib.contextmanager
def breaking_upstream() -> Iterator[int]:
    """Its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), BreakingUpstream) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("proxy_name", ["nginx", "caddy"])
def test_no_log_has_a_key_when_the_server_is_lost(proxy_name: str, certificate: Certificate, tmp_path: Path) -> None:
    for kind, upstream in (("dead", contextlib.nullcontext(free_port())), ("breaking", breaking_upstream())):
        directory = tmp_path / kind
        directory.mkdir()
        with upstream as port, running_proxy(proxy_name, directory, certificate, port) as proxy:
            for query, headers in KEYED:
                for path, more in (("/v1/voices", {}), ("/v1/stream", UPGRADE)):
                    with contextlib.suppress(httpx.HTTPError):  # an answer that breaks off
                        answer = proxy.client().get(f"{path}{query}", **headers, **more)
                        assert answer.status_code in ((502,) if kind == "dead" else (101, 200, 502))
        logs = "".join(path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file())
        assert KEY not in logs
        if (proxy_name, kind) == ("caddy", "dead"):
            assert "connection refused" in logs, "the operator is told why"


@pytest.mark.parametrize("proxy_name", ["nginx", "caddy"])
async def test_without_keys_a_proxy_opens_nothing(
    proxy_name: str, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server has no keys: the name that the proxy passes on is not this machine's."""
    with GatewayHarness() as gateway:
        port = int(gateway.url.rpartition(":")[2])
        with running_proxy(proxy_name, tmp_path_factory.mktemp(proxy_name), certificate, port) as proxy:
            assert await refused(proxy) == (403, "forbidden")
            assert proxy.client().get("/v1/voices").status_code == 403


def test_the_proxys_patience_outlasts_two_pings() -> None:
    timeouts = re.findall(r"proxy_(?:read|send)_timeout (\d+)s", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    timeouts_of = ServerConfig().timeouts
    assert len(timeouts) == 2
    assert min(map(int, timeouts)) >= 2 * (timeouts_of.ping_interval_s + timeouts_of.ping_timeout_s)
