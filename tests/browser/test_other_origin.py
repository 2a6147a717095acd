"""A page of another origin speaks over HTTP, with `fetch` and with the packages of OpenAI and ElevenLabs."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome
from vendor_gateways import API_KEY, running_gateway, with_key

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

VENDORS = Path(__file__).parents[1] / "clients/vendors"
CALL = "const done = arguments[arguments.length - 1]; ({}).then(done, (error) => done({{error: String(error)}}))"
FETCH = CALL.format(
    """(async ([url, options]) => {
        const answer = await fetch(url, options);
        const body = await answer.arrayBuffer();
        return {status: answer.status, bytes: body.byteLength, notice: answer.headers.get('realtime-tts-notice'),
                id: answer.headers.get('x-request-id')};
    })(arguments)"""
)
RUN = CALL.format("run(...Array.from(arguments).slice(0, -1))")


class Quiet(SimpleHTTPRequestHandler):
    timeout = 1.0  # browsers open connections ahead, and say nothing on them

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the other origin serves."""
    directory = tmp_path_factory.mktemp("pages")
    (directory / "index.html").write_text("<!doctype html><title>Another site</title>")
    (directory / "favicon.ico").touch()
    return directory


@pytest.fixture(scope="module")
def site(pages: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(pages))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server(site: str) -> Iterator[str]:
    """A gateway that allows the site, in a process of its own: browsers keep connections to it longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVER_PYTHON", sys.executable)
        with running_gateway({**with_key(), "allowed_origins": [site]}) as url:
            yield url


def fetched(chromium: Chrome, url: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = chromium.execute_async_script(FETCH, url, options)
    return found


def test_a_page_of_an_allowed_origin_fetches_speech_and_reads_the_headers(
    chromium: Chrome, site: str, server: str
) -> None:
    chromium.get(site)
    headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
    body = '{"input": "Hello there.", "voice": "alloy", "response_format": "pcm"}'
    spoken = fetched(chromium, f"{server}/v1/audio/speech", method="POST", headers=headers, body=body)
    assert spoken["status"] == 200
    assert spoken["bytes"] > 10_000
    assert "alloy" in spoken["notice"]
    assert spoken["id"]
    assert fetched(chromium, f"{server}/v1/voices", headers=headers)["status"] == 200
    assert fetched(chromium, f"{server}/v1/voices")["status"] == 401, "the page learns what is wrong"


def test_a_page_of_another_origin_reads_nothing(chromium: Chrome, site: str, server: str) -> None:
    chromium.get(site.replace("127.0.0.1", "localhost"))
    headers = {"authorization": f"Bearer {API_KEY}"}
    for options in ({}, {"headers": headers}):
        assert "Failed to fetch" in fetched(chromium, f"{server}/v1/voices", **options)["error"]
    chromium.get_log("browser")  # it has complained


@pytest.fixture(scope="module")
def clients_page(pages: Path) -> str:
    """Name of a page with the packages."""
    bundler = VENDORS / "node_modules/.bin/esbuild"
    if not bundler.is_file():
        pytest.skip("needs the JavaScript clients: npm ci in tests/clients/vendors")
    options = ("--bundle", "--platform=browser", "--define:process.env={}", "--log-level=error")
    command = [str(bundler), "browser_page.mjs", *options, f"--outfile={pages / 'clients.js'}"]
    subprocess.run(command, cwd=VENDORS, check=True, timeout=60)
    (pages / "clients.html").write_text("<!doctype html><script src='clients.js'></script>")
    return "clients.html"


def run(chromium: Chrome, name: str, server: str, key: str = API_KEY) -> Any:
    return chromium.execute_async_script(RUN, name, server, key)


@pytest.mark.slow
def test_the_packages_speak_on_a_page(chromium: Chrome, site: str, clients_page: str, server: str) -> None:
    chromium.get(f"{site}/{clients_page}")
    voice = httpx.get(f"{server}/v1/voices", headers={"authorization": f"Bearer {API_KEY}"}).json()["default_voice"]
    spoken = run(chromium, "openaiSpeech", server)
    assert spoken["bytes"] > 10_000, spoken
    assert spoken["voice"] == voice
    assert "alloy" in spoken["notice"]
    assert spoken["id"]
    assert run(chromium, "openaiModels", server) == ["fake-voice"]
    spoken = run(chromium, "elevenlabsSpeech", server)
    assert spoken["bytes"] > 10_000, spoken
    assert spoken["voice"] == voice
    assert voice in run(chromium, "elevenlabsVoices", server)


def test_the_packages_are_told_of_a_wrong_key(chromium: Chrome, site: str, clients_page: str, server: str) -> None:
    chromium.get(f"{site}/{clients_page}")
    for name in ("openaiSpeech", "elevenlabsSpeech"):
        assert run(chromium, name, server, "wrong")["status"] == 401
    chromium.get_log("browser")  # it has complained
