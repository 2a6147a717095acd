"""The page of the Realtime server in headless Chromium, with a microphone of which the sound is speech for the test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import aiohttp
import pytest
from chromium import running_chromium
from selenium import webdriver
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from realtime_caller import serving, until
from realtime_server.ear import IsSpeech

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

FLAGS = (
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--allow-loopback-in-peer-connection",
)
SENTENCE = "The quick brown fox."


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    profile = tmp_path_factory.mktemp("profile")
    with running_chromium(profile, *FLAGS, without=("WebRtcHideLocalIpsWithMdns",)) as driver:
        yield driver


def one_turn() -> IsSpeech:
    """Return a detector that finds a second of speech, then none."""
    windows = iter(range(1 << 30))
    return lambda window: float(next(windows) < 32)


async def test_a_call_shows_both_sides(fake_gateway: str, chromium: webdriver.Chrome) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}", silero=one_turn) as (url, server):
        page = url.replace("ws:", "http:").removesuffix("/v1")

        def rows() -> list[str]:
            script = "return [...document.querySelectorAll('#transcript p:not(.empty)')].map((row) => row.textContent)"
            found: list[str] = chromium.execute_script(script)
            return found

        await asyncio.to_thread(chromium.get, page)
        await asyncio.to_thread(chromium.execute_script, "document.getElementById('call').click()")
        shown: list[str] = []
        async with asyncio.timeout(90):
            while shown != [f"say {SENTENCE}", SENTENCE]:
                shown = await asyncio.to_thread(rows)
        await asyncio.to_thread(chromium.execute_script, "document.getElementById('call').click()")
        await until(lambda: not server.connections)


async def test_the_page_is_for_this_machine(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, _), aiohttp.ClientSession() as http:
        page = url.replace("ws:", "http:").removesuffix("/v1")
        async with http.get(page) as response:
            assert (response.status, response.content_type) == (200, "text/html")
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        async with http.get(page, headers={"Host": "elsewhere.example.org"}) as response:
            assert response.status == 403
