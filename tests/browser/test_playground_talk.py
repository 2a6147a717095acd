"""Talk to a language model in the playground: spoken answers, interruptions, and the history of what was heard."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_gateway import FakeGateway
from gateway_harness import GatewayHarness
from playground_page import PlaygroundPage
from scripted_llm import ScriptedLLM, pieces
from selenium.webdriver import Chrome, Keys
from vendor_gateways import WORKER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

STORY = (
    "The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. "
    "You told the sea about your day, about the bread and the broken gate and the letter from your sister. "
)
LONG_STORY = STORY * 4  # half a minute: a busy machine may take seconds to interrupt it
KEPT = "return JSON.stringify(localStorage) + location.href"
NONE_OPEN = "return [...__playground.session().contexts.values()].every(({ state }) => state !== 'open')"
TURNS = "return [...document.querySelectorAll('#turns li')].map((e) => [e.className, e.lastElementChild.textContent])"
ORIGIN = "return document.querySelector('#latency .origin').textContent"
BELOW_TOP = """
const [last] = [...document.querySelectorAll('#turns .answer p')].slice(-1);
return last.offsetTop - document.getElementById('transcript').scrollTop;
"""
CUT = """
const [answer] = document.querySelectorAll('#turns .answer p'), mark = answer.querySelector('.cut-here');
const words = [...answer.querySelectorAll('.word.heard')].map((e) => e.textContent);
return { words, mark: mark.textContent, struck: answer.querySelector('s').textContent };
"""


@contextmanager
def running_llm(first: str, rest: str, allowed_origin: str, size: int = 4) -> Iterator[ScriptedLLM]:
    """Run the scripted model in a thread; `go_on` is set through `tell`."""
    llm = ScriptedLLM(list(pieces(first, size)), list(pieces(rest, size)), allowed_origin=allowed_origin)
    ready = threading.Event()
    stopping = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with llm.running():
            ready.set()
            await stopping.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(60)
        yield llm
    finally:
        loops[0].call_soon_threadsafe(stopping.set)
        thread.join(60)


def begin(page: PlaygroundPage, llm_url: str) -> None:
    """Choose the talk with a model at this address."""
    page.open()
    page.script("document.querySelector('[name=source][value=talk]').click()")
    for element_id, value in (("llm-url", llm_url), ("llm-model", "scripted")):
        page.driver.find_element("id", element_id).send_keys(value)


def send(page: PlaygroundPage, message: str) -> None:
    page.driver.find_element("id", "message").send_keys(message, Keys.ENTER)


def test_an_interrupted_answer_is_remembered_as_far_as_it_was_heard(chromium: Chrome) -> None:
    with GatewayHarness(worker=WORKER) as gateway, running_llm(LONG_STORY, "", gateway.url) as llm:
        page = PlaygroundPage(chromium, f"{gateway.url}/")
        begin(page, llm.url)
        send(page, "Tell me a story.")
        page.wait(lambda: len(page.lit_words()) >= 4, "four words are heard", 60)
        assert llm.events == ["asked"], "the model is still writing"

        send(page, "A shorter one, please.")  # while it speaks
        page.wait(lambda: len(llm.messages) == 2, "asked again", 60)
        page.wait(lambda: "hung up" in llm.events, "the first answer is stopped", 60)
        system, question, heard, next_question = llm.messages[1]
        assert [message["role"] for message in llm.messages[1]] == ["system", "user", "assistant", "user"]
        assert system == llm.messages[0][0]
        assert question["content"] == "Tell me a story."
        assert next_question["content"] == "A shorter one, please."
        cut = page.script(CUT)
        assert heard["content"].split() == cut["words"]
        assert cut["mark"] == "interrupted"
        assert cut["struck"].strip()
        assert LONG_STORY.startswith(f"{heard['content'].rstrip()} {cut['struck'].lstrip()}")

        page.wait(lambda: page.phase() == "speaking" and page.heard_ms() > 0, "the second answer is heard", 60)
        assert page.script(BELOW_TOP) <= 1, "as much of it as possible is in sight"
        page.press_escape()
        page.wait(lambda: page.phase() == "interrupted", "interrupted", 60)
        assert [kind for kind, _ in page.script(TURNS)] == ["asked", "answer"] * 2
        page.click("new-talk")
        assert page.script(TURNS) == []
        errors = page.console_errors()
        page.leave()
        assert errors == []


def test_an_answer_is_begun_while_its_question_is_typed(chromium: Chrome) -> None:
    with GatewayHarness(worker=WORKER) as gateway, running_llm("It is ten. ", "No, later.", gateway.url) as llm:
        llm.go_on.set()
        page = PlaygroundPage(chromium, f"{gateway.url}/")
        begin(page, llm.url)
        send(page, "What time is it?")
        page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
        message = page.driver.find_element("id", "message")
        message.send_keys("And")
        message.send_keys(" now?")
        page.wait(lambda: llm.events.count("finished") == 2, "an answer is drafted", 60)
        assert len(page.script(TURNS)) == 2, "and not shown"
        message.send_keys(" And tomorrow?")
        page.wait(lambda: llm.events.count("finished") == 3, "another one, to the whole question", 60)
        assert page.phase() == "finished", "none of them was heard"
        message.send_keys(Keys.ENTER)
        page.wait(lambda: page.phase() == "finished" and len(page.script(TURNS)) == 4, "heard to the end", 60)
        assert page.script(ORIGIN).startswith("begun early")
        assert page.script(TURNS)[2:] == [["asked", "And now? And tomorrow?"], ["answer", "It is ten. No, later."]]
        assert llm.questions == ["What time is it?", "And now?", "And now? And tomorrow?"]
        send(page, "Thank you.")
        page.wait(lambda: len(llm.messages) == 4, "asked again", 60)
        questions = [each["content"] for each in llm.messages[3][1::2]]
        assert questions == ["What time is it?", "And now? And tomorrow?", "Thank you."], "without what was dropped"
        page.press_escape()
        errors = page.console_errors()
        page.leave()
        assert errors == []


def test_a_draft_that_is_refused_is_not_told(page: PlaygroundPage, gateway: FakeGateway) -> None:
    with running_llm("[refuse] No.", "", gateway.url.rstrip("/"), size=20) as llm:
        llm.go_on.set()
        begin(page, llm.url)
        message = page.driver.find_element("id", "message")
        message.send_keys("Is there room?")
        page.wait(lambda: gateway.messages("text") and page.script(NONE_OPEN), "a draft is refused", 60)
        assert (page.notice(), page.script(TURNS)) == ("", [])
        message.send_keys(Keys.ENTER)
        page.wait(lambda: "busy" in page.notice(), "told when it is sent", 60)
        assert len(llm.questions) == 2


def test_a_whole_answer_is_remembered_and_settings_are_kept(page: PlaygroundPage, gateway: FakeGateway) -> None:
    with running_llm("It is ", "late.", gateway.url.rstrip("/")) as llm:
        llm.go_on.set()
        begin(page, f"{llm.url}/v1")
        send(page, "What time is it?")
        page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
        send(page, "Thank you.")
        page.wait(lambda: len(llm.messages) == 2, "asked again", 60)
        assert [message["content"] for message in llm.messages[1][1:]] == [
            "What time is it?",
            "It is late.",
            "Thank you.",
        ]
        page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
        page.driver.find_element("id", "llm-key").send_keys("a-secret-key")
        assert "a-secret-key" not in page.script(KEPT)
        page.driver.refresh()
        page.wait(lambda: page.connection() == "open", "connected again", 60)
        fields = page.script(
            "return ['llm-url', 'llm-model', 'llm-key'].map((id) => document.getElementById(id).value)"
        )
        assert fields == [f"{llm.url}/v1", "scripted", "a-secret-key"]


def test_a_model_that_cannot_be_reached_is_told_and_the_talk_goes_on(page: PlaygroundPage) -> None:
    def field() -> list[str]:
        return list(
            page.script(
                "return [document.getElementById('llm-url').getAttribute('aria-invalid'),"
                "document.getElementById('llm-url-fault').textContent]"
            )
        )

    with running_llm("Never ", "heard.", "http://elsewhere.test") as llm:
        begin(page, llm.url)
        send(page, "Hello?")
        page.wait(lambda: "does not allow this page" in page.notice(), "told that the page is refused", 60)
        assert field() == ["true", "Its server does not allow this page."]
        assert llm.messages == []
        assert ["CORS" in error for error in page.console_errors()] == [True]  # the browser's own
    send(page, "")
    page.wait(lambda: "does not answer" in page.notice(), "told that nothing answers there any more", 60)
    assert page.script(TURNS) == []
    address = page.driver.find_element("id", "llm-url")
    address.clear()
    address.send_keys("localhost:11434")
    send(page, "")
    assert field() == ["true", "An address that begins with http:// or https://, or nothing."]
    address.clear()
    send(page, "")  # the message is still there
    page.wait(lambda: len(page.lit_words()) >= 3, "a scripted answer is heard", 60)
    assert (page.notice(), field()) == ("", ["false", ""])
    assert page.script(TURNS)[0] == ["asked", "Hello?"]
    page.click("hold")
    page.wait(lambda: page.text_of("phase").startswith("Held"), "held", 60)
    page.click("hold")
    page.wait(lambda: page.text_of("phase") == "Speaking", "goes on", 60)
    page.click("speak")
    page.wait(lambda: page.phase() == "interrupted", "stopped", 60)


SCRIPTED_CALL = b"""
window.__calls = [];
export class VoiceCall extends EventTarget {
  static begin() {
    return new Promise((resolve) => __calls.push({ call: new VoiceCall(), answer() { resolve(this.call); } }));
  }
  hangUp() { this.isOver = true; }
}
"""


def test_a_call_that_is_answered_after_the_talk_was_left_is_hung_up(page: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.pages = {"/voice-call.js": SCRIPTED_CALL}
    page.script("document.querySelector('[name=source][value=talk]').click()")
    page.click("by-voice")
    page.wait(lambda: page.text_of("phase") == "Calling the voice agent", "calling")
    page.script("document.querySelector('[name=source][value=typed]').click()")
    assert page.text_of("phase") == "The call is over."
    page.script("__calls[0].answer()")
    page.wait(lambda: page.script("return __calls[0].call.isOver"), "the microphone is free")
    assert page.script("return document.getElementById('by-voice').ariaPressed") == "false"
    page.speak("Typed again.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")
