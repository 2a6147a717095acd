"""Which requests the shipped front lets through, before a host that answers all of them."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from front_harness import Names, haproxy_program, running_front
from gateway_harness import GatewayHarness

from deploy.ray.directory import Entry
from deploy.ray.front import Front
from realtime_tts.bench.server_process import free_port

START_S = 60.0
KEY = "rtts_a-key-that-no-log-may-have"
# Requests other than GET that leave nothing on a host which the others would have to know. A new address belongs into
# one of these lists or under the rule for voices.
TOKENS = {"/v1/tokens", "/access-token", "/v1/auth/grant", "/v1/single-use-token/{token_type}"}
REALTIME = {"/v1/realtime", "/v1/realtime/{rest:path}"}  # which say that the server does not have it
SPEECH = {
    "/v1/audio/speech",
    "/v1/speak",
    "/v2/speak",
    "/v1/vapi",
    "/v1/jambonz",
    "/tts/bytes",
    "/tts/sse",
    "/v1/text-to-speech/{voice}",
    "/v1/text-to-speech/{voice}/stream",
    "/v1/text-to-speech/{voice}/with-timestamps",
    "/v1/text-to-speech/{voice}/stream/with-timestamps",
}
ADAPTERS = {"/v1/adapters", "/v1/adapters/{name}"}  # of one host: docs/guides/adapters.md


class AnyHost(http.server.BaseHTTPRequestHandler):
    """Answers every request with 200."""

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - their names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("front")


@pytest.fixture(scope="module")
def host_port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), AnyHost) as host:
        thread = threading.Thread(target=host.serve_forever)
        thread.start()
        try:
            yield host.server_port
        finally:
            host.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def front(directory: Path, host_port: int) -> Iterator[httpx.Client]:
    """A client of a front through which no voice is changed."""
    with (
        contextlib.closing(Names(["127.0.0.1"])) as names,
        running_front(directory, names, host_port, fixed_voices=True) as port,
        client_of(port) as client,
    ):
        yield client


@contextlib.contextmanager
def running_ray_front(host_port: int) -> Iterator[httpx.Client]:
    """A client of the front of `deploy/ray`."""
    port = free_port()
    running = Front(haproxy_program()[0], "127.0.0.1", port, 2, "", 30)
    try:
        running.follow([Entry("one", "127.0.0.1", host_port, 1)])
        with client_of(port) as client:
            yield client
    finally:
        running.close()
        running._process.wait(30)


@contextlib.contextmanager
def client_of(port: int) -> Iterator[httpx.Client]:
    """A client, once the front there has found the host."""
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30, limits=limits) as client:
        end_s = time.monotonic() + START_S
        while client.get("/readyz").status_code != 200 and time.monotonic() < end_s:
            time.sleep(0.05)
        yield client


def encodings(path: str) -> list[str]:
    """The same path in spellings that a host decodes to it."""
    first = path.rindex("/") + 1
    one = path[:first] + f"%{ord(path[first]):02x}" + path[first + 1 :]
    upper = path[:first] + f"%{ord(path[first]):02X}" + path[first + 1 :]
    return [path, one, upper, "/" + "".join(f"%{ord(char):02x}" for char in path[1:]), "/" + quote(path[1:], safe="")]


def addresses(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """Those of an application and of all routers that it includes."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from addresses(route.original_router.routes)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/voices"),
        ("PATCH", "/v1/voices/one"),
        ("DELETE", "/v1/voices/one"),
        ("POST", "/v1/voices/add"),
        ("POST", "/v1/voices/one/edit"),
        ("POST", "/v1/audio/voices"),
        ("DELETE", "/v1/audio/voices/one"),
        ("POST", "/v1/audio/voice_consents"),
        ("DELETE", "/v1/audio/voice_consents/one"),
        ("POST", "/voices/clone"),
        ("PATCH", "/voices/one"),
        ("DELETE", "/voices/one"),
        ("POST", "/v1/pronunciation-dictionaries/add-from-rules"),
        ("DELETE", "/pronunciation-dicts/one"),
    ],
)
def test_no_spelling_of_an_address_changes_a_voice(front: httpx.Client, method: str, path: str) -> None:
    for spelling in [*encodings(path), path + "?sticky=one", path + "/"]:
        answer = front.request(method, spelling)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), spelling


def test_no_spelling_of_the_address_shows_the_figures(front: httpx.Client, host_port: int) -> None:
    with running_ray_front(host_port) as ray_front:
        for spelling in [*encodings("/metrics"), "/metrics?sticky=one", "/metrics/"]:
            assert front.get(spelling).status_code == 404, spelling
            assert ray_front.get(spelling).status_code == 404, spelling


@pytest.mark.parametrize("path", ["/metrics%zz", "/v1/voices/%zz", "/voices/one%2", "/%"])
def test_a_path_that_cannot_be_decoded_is_refused(front: httpx.Client, path: str) -> None:
    assert front.delete(path).status_code == 400


def test_voices_are_read_and_spoken_with(front: httpx.Client) -> None:
    for path in ("/v1/voices", "/v1/voices/one", "/voices", "/v1/audio/voices", "/v2/voices", "/metrics-of-mine"):
        assert front.get(path).status_code == 200, path
        assert front.options(path).status_code == 200, "a browser asks first"
    for path in sorted(SPEECH):  # also with a voice that is called like an address
        assert front.post(path.replace("{voice}", "voices")).status_code == 200, path


def test_each_address_of_the_server_is_on_one_side(front: httpx.Client) -> None:
    with GatewayHarness() as gateway:
        routes = list(addresses(gateway.app.routes))
    changing = {(method, route.path) for route in routes for method in route.methods - {"GET", "HEAD"}}
    let_through = {path for method, path in changing if front.request(method, path).status_code == 200}
    assert let_through == SPEECH | TOKENS | ADAPTERS | REALTIME


def test_no_log_has_a_key(front: httpx.Client, directory: Path) -> None:
    front.get("/v1/voices", headers={"Authorization": f"Bearer {KEY}"}, params={"api_key": KEY})
    front.post("/voices/clone", headers={"X-API-Key": KEY})
    assert KEY not in (directory / "output").read_text(errors="replace")
