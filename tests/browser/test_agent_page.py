"""The voice agent's page with a scripted call."""

from __future__ import annotations

import json
from typing import Any

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
TELL = "__calls[0].call.dispatchEvent(new CustomEvent('event', { detail: JSON.parse(arguments[0]) }))"
BUBBLES = "return [...document.querySelectorAll('.you, .bot')].map((e) => e.textContent)"
AT_END = "const e = document.getElementById('transcript'); return e.scrollHeight - e.clientHeight - e.scrollTop < 2"


@pytest.fixture
def page(chromium: Chrome, gateway: FakeGateway) -> PlaygroundPage:
    gateway.pages = {f"/agent/{name}": path.read_bytes() for name, path in FILES.items()}
    gateway.pages["/agent/voice-call.js"] = SCRIPTED_CALL
    chromium.get(f"{gateway.url}agent/index.html")
    agent = PlaygroundPage(chromium, gateway.url)
    agent.wait(lambda: agent.script("return window.__calls !== undefined"), "the page is ready")
    return agent


def tell(page: PlaygroundPage, kind: str, **fields: Any) -> None:
    page.script(TELL, json.dumps({"type": kind, **fields}))


def call(page: PlaygroundPage) -> None:
    page.click("call")
    page.script("__calls[0].answer()")
    page.wait(lambda: page.script("return !document.getElementById('call').disabled"), "answered")
    tell(page, "session.created")
    assert page.text_of("call").strip() == "Hang up"


def test_two_presses_are_one_call(page: PlaygroundPage) -> None:
    page.script("for (const _ of [1, 2]) document.getElementById('call').click()")
    assert page.script("return __calls.length") == 1
    page.script("__calls[0].answer()")
    page.wait(lambda: page.script("return !document.getElementById('call').disabled"), "answered")
    page.click("call")
    page.wait(lambda: page.script("return document.getElementById('state').dataset.state") == "idle", "hung up")


def test_a_noise_leaves_no_empty_bubble_and_a_failed_recognition_is_told(page: PlaygroundPage) -> None:
    call(page)
    for item, kind, fields in [
        ("a", "completed", {"transcript": ""}),
        ("b", "completed", {"transcript": "Hello?"}),
        ("c", "failed", {"error": {"code": "overloaded", "message": "all are busy"}}),
    ]:
        tell(page, "conversation.item.added", item={"id": item, "role": "user"})
        tell(page, f"conversation.item.input_audio_transcription.{kind}", item_id=item, **fields)
    assert page.script(BUBBLES) == ["Hello?"]
    assert "Every voice is busy" in page.notice()


def test_the_end_of_a_long_conversation_is_in_sight(page: PlaygroundPage) -> None:
    call(page)
    for number in range(40):
        item = str(number)
        tell(page, "conversation.item.added", item={"id": item, "role": "assistant"})
        tell(page, "response.output_audio_transcript.delta", item_id=item, delta=f"Answer {number}.")
    assert page.script("const e = document.getElementById('transcript'); return e.scrollHeight > e.clientHeight")
    assert page.script(AT_END)


def test_an_answer_runs_in_its_own_direction(page: PlaygroundPage) -> None:
    call(page)
    tell(page, "conversation.item.added", item={"id": "a", "role": "assistant"})
    tell(page, "response.output_audio_transcript.delta", item_id="a", delta="\u05e9\u05dc\u05d5\u05dd!")
    places = (
        "const [first, last] = [0, 4].map((at) => {"
        "  const range = document.createRange();"
        "  range.setStart(document.querySelector('.bot').firstChild, at);"
        "  range.setEnd(document.querySelector('.bot').firstChild, at + 1);"
        "  return range.getBoundingClientRect().left;"
        "}); return last < first"
    )
    assert page.script(places), "the exclamation mark is at its left"
