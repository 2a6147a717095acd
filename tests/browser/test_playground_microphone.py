"""Interrupting by voice: a microphone that plays a recording, in a browser that gives or refuses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_gateway import PAGE, FakeGateway
from fake_microphone import NOISE_FROM_S, NOISE_TO_S
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome, Keys

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

STORY = "The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. " * 8
STATE = "return document.getElementById('voice-switch').dataset.state"
WORDS = "return document.querySelector('#voice-switch [role=status]').textContent"
PRESSED = "return document.getElementById('microphone').getAttribute('aria-pressed')"


@pytest.fixture
def listening_page(listening_chromium: Chrome, gateway: FakeGateway) -> Iterator[PlaygroundPage]:
    playground = PlaygroundPage(listening_chromium, gateway.url)
    playground.open()
    yield playground
    errors = playground.console_errors()
    playground.leave()
    assert errors == []


@pytest.mark.slow
def test_speaking_interrupts_and_noise_does_not(listening_page: PlaygroundPage, gateway: FakeGateway) -> None:
    page = listening_page
    page.script(
        "window.__changes = []; window.__loudest = -90; const dispatch = EventTarget.prototype.dispatchEvent;"
        "EventTarget.prototype.dispatchEvent = function (event) {"
        "  if (event.type === 'speech') __changes.push(event.detail);"
        "  if (event.type === 'level') __loudest = Math.max(__loudest, event.detail);"
        "  return dispatch.call(this, event); };"
    )
    page.speak(STORY)
    asked = len(gateway.requests)
    page.click("microphone")
    page.wait(lambda: page.script("return __loudest") > -40, "the noise is loud")
    page.wait(lambda: page.phase() != "speaking", "interrupted", 40)
    assert page.phase() == "interrupted"
    first = page.script("return __changes[0].at / __playground.voiceSwitch.microphone.context.sampleRate")
    assert first > (NOISE_FROM_S + NOISE_TO_S) / 2, "by the voice, not by the noise before it"
    assert page.struck_text()
    page.wait(lambda: page.script(STATE) == "listening", "and once it is quiet it listens again")
    assert {message["type"] for message in gateway.received} <= {
        "session.start",
        "text",
        "end",
        "playback",
        "hold",
        "release",
        "cancel",
        "ping",
    }
    assert [path for path in gateway.requests[asked:] if not (PAGE / path[1:]).is_file()] == [], "nothing was sent"


# Chromium's microphone beeps: none but the sounds of the test, from before the speech that a beep would interrupt.
DEAF = "__playground.voiceSwitch.microphone.node.port.onmessage = null"
SOUND = """
const { microphone } = __playground.voiceSwitch;
const [speaking, soundMs, quietMs] = arguments;
microphone.dispatchEvent(new CustomEvent('activity', { detail: { speaking, soundMs, quietMs } }));
"""


def test_a_nod_holds_the_speech_and_an_interruption_ends_it(page: PlaygroundPage) -> None:
    page.click("microphone")
    page.wait(lambda: page.script(STATE) == "listening", "the microphone is open")
    page.script(DEAF)
    page.script(SOUND, False, 0, 1000)
    page.speak(STORY)
    page.wait(lambda: page.heard_ms() > 300, "heard")
    page.script(SOUND, True, 120, 0)
    page.wait(lambda: page.text_of("phase").startswith("Held"), "held at the first sound")
    page.script(SOUND, True, 300, 200)
    page.wait(lambda: page.text_of("phase") == "Speaking", "goes on after a nod")
    page.script(SOUND, True, 120, 0)
    page.script(SOUND, True, 500, 0)
    page.wait(lambda: page.phase() == "interrupted", "ends with a longer sound")
    page.click("microphone")


def test_it_is_switched_on_and_off_from_the_keyboard(page: PlaygroundPage) -> None:
    page.script("document.getElementById('microphone').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.SPACE)
    page.wait(lambda: page.script(STATE) == "listening", "the microphone is open")
    assert page.script(PRESSED) == "true"
    page.script("window.__track = __playground.voiceSwitch.microphone.stream.getAudioTracks()[0]")
    assert page.script("return __track.getSettings().echoCancellation") is True
    page.wait(
        lambda: page.script("return document.querySelector('.level span').style.transform") != "scaleX(0.000)",
        "a level is seen",
    )
    page.driver.switch_to.active_element.send_keys(Keys.SPACE)
    page.wait(lambda: page.script(STATE) == "off", "closed")
    assert page.script("return __track.readyState") == "ended"
    assert page.script(PRESSED) == "false"


@pytest.mark.parametrize(
    ("error", "words"),
    [("NotAllowedError", "refused"), ("NotFoundError", "no microphone"), ("NotReadableError", "another program")],
)
def test_why_there_is_none_is_told_and_it_can_be_tried_again(page: PlaygroundPage, error: str, words: str) -> None:
    page.script(
        "window.__open = navigator.mediaDevices.getUserMedia;"
        "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', arguments[0]))",
        error,
    )
    page.click("microphone")
    page.wait(lambda: words in page.script(WORDS), "told")
    assert page.script(PRESSED) == "false"
    page.script("navigator.mediaDevices.getUserMedia = window.__open")
    page.click("microphone")
    page.wait(lambda: page.script(STATE) == "listening", "the microphone is open")
