"""The playground's talk by voice: spoken turns through the Realtime server, in Chromium with a fake microphone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from chromium import running_chromium
from scripted_llm import ScriptedLLM
from selenium import webdriver
from selenium.webdriver import Keys
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))
sys.path.insert(0, str(ROOT / "tests/browser"))

from page_origins import origins_of
from playground_page import PlaygroundPage
from realtime_caller import serving
from realtime_server.ear import IsSpeech

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

FLAGS = (
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--allow-loopback-in-peer-connection",
)
STORY = "The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. " * 6
TURNS = "return [...document.querySelectorAll('#turns li')].map((e) => [e.className, e.lastElementChild.textContent])"
CUT = """
const [mark] = document.querySelectorAll('#turns .cut-here'), answer = mark?.parentElement;
return mark && answer.textContent.slice(0, answer.textContent.indexOf(mark.textContent));
"""
BUTTON = "return document.getElementById('by-voice').getAttribute('aria-label')"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    profile = tmp_path_factory.mktemp("profile")
    with running_chromium(profile, *FLAGS, without=("WebRtcHideLocalIpsWithMdns",)) as driver:
        yield driver


class Visitor:
    """The page in a thread, and what the detector of speech hears."""

    def __init__(self, page: PlaygroundPage) -> None:
        self.page, self.speaks = page, False

    def detector(self) -> IsSpeech:
        return lambda window: float(self.speaks)

    async def do(self, action: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(action, *arguments)

    async def wait(self, condition: Callable[[], Any], what: str) -> None:
        await self.do(self.page.wait, condition, what, 60)

    async def open(self, agent: str, llm: str = "") -> None:
        await self.do(self.page.open)
        await self.do(self.page.script, "document.querySelector('[name=source][value=talk]').click()")
        for element_id, value in (("agent-url", agent), ("llm-url", llm)):
            await self.do(self.page.driver.find_element("id", element_id).send_keys, value)
        await self.do(self.page.click, "by-voice")

    async def type(self, message: str) -> None:
        await self.do(self.page.driver.find_element("id", "message").send_keys, message, Keys.ENTER)


async def test_spoken_turns_are_cut_where_the_listener_was(fake_gateway: str, chromium: webdriver.Chrome) -> None:
    page = PlaygroundPage(chromium, f"{fake_gateway.replace('ws', 'http', 1)}/")
    visitor = Visitor(page)
    heard = (f"say {STORY}", "say Good.")
    llm = ScriptedLLM(["Fine."], [], allowed_origin=page.url.rstrip("/"))
    llm.go_on.set()
    async with serving(fake_gateway, *heard, silero=visitor.detector) as (url, server), llm.running():
        await visitor.open(url.replace("ws", "http", 1).removesuffix("/v1"), llm.url)
        await visitor.wait(lambda: page.text_of("phase") == "Listening", "the call is on")
        assert await visitor.do(page.script, BUTTON) == "Hang up"
        visitor.speaks = True
        await visitor.wait(lambda: page.text_of("phase") == "You are speaking", "the agent hears it")
        visitor.speaks = False
        await visitor.wait(lambda: page.phase() == "speaking" and len(page.lit_words()) >= 4, "four words are heard")
        visitor.speaks = True
        await visitor.wait(lambda: page.script(CUT), "interrupted by voice")
        visitor.speaks = False
        cut = (await visitor.do(page.script, CUT)).rstrip()
        items = next(iter(server.connections)).core.items
        assert STORY.startswith(cut)
        assert cut == items[1]["content"][0]["transcript"].rstrip(), "as the agent's model is told"
        await visitor.wait(lambda: page.script(TURNS)[2:] == [["asked", "say Good."], ["answer", "Good."]], "answered")
        await visitor.wait(lambda: page.text_of("phase") == "Listening", "to its end")
        await visitor.type("say Typed.")
        await visitor.wait(lambda: page.script(TURNS)[4:] == [["asked", "say Typed."], ["answer", "Typed."]], "typed")
        await visitor.wait(lambda: page.text_of("phase") == "Listening", "to its end")
        await visitor.do(page.click, "by-voice")
        await visitor.wait(lambda: not server.connections, "hung up")
        assert await visitor.do(page.script, BUTTON) == "Talk by voice"
        await visitor.type("And now?")
        await visitor.wait(lambda: llm.messages, "the page's own model is asked")
        told = [message["content"].rstrip() for message in llm.messages[0][1:]]
        assert told == [heard[0].rstrip(), cut, "say Good.", "Good.", "say Typed.", "Typed.", "And now?"]
        await visitor.do(page.press_escape)
    errors = await visitor.do(page.console_errors)
    await visitor.do(page.leave)
    assert errors == []


async def test_what_is_missing_is_told(fake_gateway: str, chromium: webdriver.Chrome) -> None:
    page = PlaygroundPage(chromium, f"{fake_gateway.replace('ws', 'http', 1)}/")
    visitor = Visitor(page)
    await visitor.open("http://127.0.0.1:9/")
    await visitor.wait(lambda: "make agent" in page.notice(), "told what to start")
    assert page.phase() == "failed"
    await visitor.do(
        page.script,
        "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', 'NotAllowedError'))",
    )
    await visitor.do(page.click, "by-voice")
    await visitor.wait(lambda: "microphone was refused" in page.notice(), "told")
    await visitor.do(page.driver.find_element("id", "agent-url").clear)
    await visitor.do(page.driver.find_element("id", "agent-url").send_keys, "localhost")
    await visitor.do(page.click, "by-voice")
    assert "http://" in await visitor.do(page.text_of, "agent-url-fault")
    await visitor.do(page.leave)


async def test_pages_of_the_speech_server_may_call_and_others_may_not(fake_gateway: str) -> None:
    assert set(origins_of("ws://localhost:8000")) == {"http://localhost:8000", "http://127.0.0.1:8000"}
    assert set(origins_of("wss://tts.example.org/x")) == {"https://tts.example.org"}
    assert "http://localhost:8000" in origins_of("127.0.0.1:8000")
    async with serving(fake_gateway, "") as (url, _), aiohttp.ClientSession() as http:
        calls = f"{url.replace('ws', 'http', 1)}/realtime/calls"
        for origin, status in ((fake_gateway.replace("ws", "http", 1), 400), ("http://elsewhere.example.org", 403)):
            async with http.post(calls, data={"sdp": ""}, headers={"Origin": origin}) as response:
                allowed = response.headers.get("Access-Control-Allow-Origin")
                assert (response.status, allowed) == (status, origin if status == 400 else None)
