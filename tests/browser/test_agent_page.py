"""The voice agent's page with a scripted call."""

from __future__ import annotations

import pytest
from fake_gateway import PAGE, FakeGateway
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome
from server_environment import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]

AGENTS = ROOT / "agents"
FILES = {
    "index.html": AGENTS / "realtime_server/page/index.html",
    "page.js": AGENTS / "realtime_server/page/page.js",
    "page.css": AGENTS / "webrtc/page.css",
    "errors.js": PAGE / "errors.js",
    "kind-words.js": PAGE / "kind-words.js",
}
SCRIPTED_CALL = b"""
window.__calls = [];
export class VoiceCall extends EventTarget {
  static begin() {
    return new Promise((resolve) => __calls.push({ call: new VoiceCall(), answer() { resolve(this.call); } }));
  }
  send() {}
  hangUp() { this.dispatchEvent(new CustomEvent('ended', { detail: null })); }
}
"""


@pytest.fixture
def page(chromium: Chrome, gateway: FakeGateway) -> PlaygroundPage:
    gateway.pages = {f"/agent/{name}": path.read_bytes() for name, path in FILES.items()}
    gateway.pages["/agent/voice-call.js"] = SCRIPTED_CALL
    chromium.get(f"{gateway.url}agent/index.html")
    agent = PlaygroundPage(chromium, gateway.url)
    agent.wait(lambda: agent.script("return window.__calls !== undefined"), "the page is ready")
    return agent


def test_two_presses_are_one_call(page: PlaygroundPage) -> None:
    page.script("for (const _ of [1, 2]) document.getElementById('call').click()")
    assert page.script("return __calls.length") == 1
    page.script("__calls[0].answer()")
    page.wait(lambda: page.script("return !document.getElementById('call').disabled"), "answered")
    page.click("call")
    page.wait(lambda: page.script("return document.getElementById('state').dataset.state") == "idle", "hung up")
