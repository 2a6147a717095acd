"""What a socket leaves is free at once. In circles it would wait for a collection of garbage, and be many sockets'."""

from __future__ import annotations

import gc
import http.client
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlsplit

import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream
from websockets.exceptions import InvalidStatus

NUM_SOCKETS = 5


@pytest.fixture
def gateway(make_gateway: Callable[..., GatewayHarness]) -> GatewayHarness:
    """A gateway that waits for no lost client."""
    return make_gateway(resume_window_s=0.0)


@pytest.fixture
def garbage(gateway: GatewayHarness) -> Iterator[Callable[[], Counter[str]]]:
    """Counts the server's objects that nothing refers to and that are there all the same."""
    baseline = gateway.usage()

    def collect() -> Counter[str]:
        assert gateway.settle(baseline) == baseline
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            names = (f"{type(found).__module__}.{type(found).__name__}" for found in gc.garbage)
            return Counter(name for name in names if name.startswith(("realtime_tts.", "uvicorn.", "starlette.")))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()

    gc.collect()
    gc.disable()
    yield collect
    gc.enable()
    gc.collect()


async def speak(url: str) -> None:
    async with open_stream(url) as client:
        await client.speak("c", "Hello there.")
        await client.until_terminal("c")


async def vanish(url: str) -> None:
    async with open_stream(url) as client:
        await client.speak("c", "Hello there. " * 20)
        await client.until("context.started")
        client.socket.transport.abort()


async def say_too_much(url: str) -> None:
    async with open_stream(url) as client:
        await client.socket.send("x" * 1_000_000)
        assert (await client.until_closed())[0] == 1009


async def be_refused(url: str) -> None:
    with pytest.raises(InvalidStatus):
        async with open_stream(url, additional_headers={"Origin": "https://elsewhere.example"}):
            pass


@pytest.mark.parametrize("use", [speak, vanish, say_too_much, be_refused])
async def test_a_websocket_leaves_no_garbage(
    gateway: GatewayHarness, garbage: Callable[[], Counter[str]], use: Callable[[str], Awaitable[None]]
) -> None:
    for _ in range(NUM_SOCKETS):
        await use(gateway.ws_url)
    assert garbage().total() < NUM_SOCKETS


def test_a_request_leaves_no_garbage(gateway: GatewayHarness, garbage: Callable[[], Counter[str]]) -> None:
    for _ in range(NUM_SOCKETS):
        connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc)
        connection.request("GET", "/v1/voices")
        assert connection.getresponse().read()
        connection.close()
    assert garbage().total() < NUM_SOCKETS
