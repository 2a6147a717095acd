"""The page and its server: keys, ranges, refusals, restarts, and an address where browsers allow no sound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_gateway import FakeGateway
from gateway_harness import GatewayHarness
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome, Keys
from vendor_gateways import API_KEY, with_key

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

KEY = "rtts_the-right_one"
STORED = "return sessionStorage.getItem('realtime-tts.key')"


@pytest.fixture
def visitor(chromium: Chrome, gateway: FakeGateway) -> Iterator[PlaygroundPage]:
    """A page that is not open yet; whatever it logs as an error fails the test."""
    playground = PlaygroundPage(chromium, gateway.url)
    yield playground
    errors = playground.console_errors()
    playground.leave()
    assert errors == []


def asked(page: PlaygroundPage) -> bool:
    return bool(page.script("return document.getElementById('key-dialog').open"))


def enter(page: PlaygroundPage, key: str) -> None:
    page.wait(lambda: asked(page), "asked for a key")
    page.driver.find_element("id", "key").send_keys(key, Keys.ENTER)


def test_a_key_is_asked_for_and_kept_for_the_tab(visitor: PlaygroundPage, gateway: FakeGateway) -> None:
    page, gateway.key = visitor, KEY
    page.visit()
    enter(page, "rtts_a-wrong-one")
    page.wait(lambda: "did not accept" in page.text_of("key-fault"), "told that it is wrong")
    enter(page, "no key at all, ☃")
    page.wait(lambda: asked(page) and "did not accept" in page.text_of("key-fault"), "told again")
    enter(page, f"  {KEY}")
    page.wait(lambda: page.connection() == "open", "let in")
    assert page.notice() == ""
    page.speak("Heard.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")

    page.open()  # a reload asks nothing
    assert not asked(page)
    assert page.script(STORED) == KEY
    assert KEY not in page.script("return JSON.stringify(localStorage) + document.cookie")
    assert page.script("return document.getElementById('key').value") == "", "not left in the page"
    logged = [entry["message"] for entry in page.driver.get_log("browser")]
    assert not [line for line in [page.driver.current_url, *logged, *gateway.requests] if KEY in line]


def test_a_visitor_without_a_key_is_not_nagged(visitor: PlaygroundPage, gateway: FakeGateway) -> None:
    page, gateway.key = visitor, KEY
    page.visit()
    page.wait(lambda: asked(page), "asked for a key")
    page.press_escape()
    page.wait(lambda: "requires an API key" in page.notice(), "told")
    assert page.connection() == "closed"
    page.click("speak")
    page.wait(lambda: asked(page), "asked again")
    page.press_escape()
    page.wait(lambda: page.text_of("phase") == "Not spoken", "nothing waits for a key that does not come")
    page.click("speak")
    enter(page, KEY)
    page.wait(lambda: page.connection() == "open", "let in")
    page.wait(lambda: page.notice() == "", "and that is history")
    page.wait(lambda: page.phase() == "finished", "what was asked for is spoken")


HOLD_BACK_THE_OFFER = """{
  const { fetch } = window;
  const arrival = new Promise((resolve) => (window.__letItArrive = resolve));
  window.fetch = async (...asked) => {
    const answer = await fetch(...asked);
    if (`${asked[0]}`.endsWith('/v1/models')) await arrival;
    return answer;
  };
}"""


def test_what_is_asked_for_before_the_page_is_connected_is_spoken_once(
    visitor: PlaygroundPage, gateway: FakeGateway
) -> None:
    page = visitor
    slow = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HOLD_BACK_THE_OFFER})
    try:
        page.visit()
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", slow)
    page.write("Patience.")
    page.click("speak")
    assert page.text_of("phase") == "Waiting for the server"
    assert page.text_of("speak").split()[0] == "Stop"
    page.click("speak")
    assert page.text_of("phase") == "Stopped before it began"
    page.click("speak")
    page.press_control_and(Keys.ENTER)
    assert page.text_of("phase") == "Waiting for the server"
    assert page.connection() == "connecting"
    page.script("__letItArrive()")
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    assert [message["text"] for message in gateway.messages("text")] == ["Patience."]
    assert len(gateway.messages("session.start")) == 1, "no press begins anew"


def test_a_key_that_is_withdrawn_is_asked_for_again(page: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.key = KEY
    gateway.cut()
    enter(page, KEY)
    page.wait(lambda: page.connection() == "open", "let in again")
    assert page.notice() == ""


def test_the_ranges_are_the_servers(visitor: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.params = {"steps": {"min": 3, "max": 7, "default": 5}, "cfg": {"min": 1.0, "max": 4.5, "default": 2.0}}
    visitor.open()
    bounds = "const { min, max, placeholder } = document.getElementById(arguments[0]); return [min, max, placeholder]"
    assert visitor.script(bounds, "steps") == ["3", "7", "5"]
    assert visitor.script(bounds, "cfg") == ["1", "4.5", "2"]
    gateway.params = None  # an older server: it judges by itself
    visitor.open()
    assert visitor.script(bounds, "steps") == ["1", "", "model’s own"]
    assert visitor.script(bounds, "seed") == ["0", "", "random"]


def test_all_settings_reach_the_server(page: PlaygroundPage, gateway: FakeGateway) -> None:
    wanted = {"speed": "1.5", "volume": "0.5", "sentence_pause_ms": "400", "language": "en-GB", "text-type": "text"}
    for control, value in {**wanted, "style": "warm", "lexicon": "nginx = engine x\nno entry\nSQL=sequel"}.items():
        page.choose(control, value)
    page.speak("With all of them.")
    [opening] = [message for message in gateway.messages("text") if "params" in message]
    assert opening["params"] == {
        "speed": 1.5,
        "volume": 0.5,
        "sentence_pause_ms": 400,
        "language": "en-GB",
        "text_type": "text",
        "instructions": "warm",
        "lexicon": {"nginx": "engine x", "SQL": "sequel"},
    }


def test_the_text_is_counted_against_the_servers_limit_and_tags_are_inserted(page: PlaygroundPage) -> None:
    text = page.driver.find_element("id", "text")
    text.clear()
    text.send_keys("AB-12")
    assert page.text_of("count") == "5 / 20,000"
    page.script("document.getElementById('text').select()")
    page.click("insert-spelling")
    page.script("document.getElementById('text').selectionStart = 0; document.getElementById('text').selectionEnd = 0")
    page.click("insert-pause")
    assert text.get_property("value") == " [pause 500ms] <spell>AB-12</spell>"
    page.choose("text", "🙂" * 20_001)
    assert page.text_of("count") == "20,001 / 20,000: too long", "as the server counts, and none is cut"
    assert text.get_attribute("aria-invalid") == "true"


def test_what_does_not_fit_of_a_pasted_text_is_told(page: PlaygroundPage) -> None:
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.driver.execute_cdp_cmd("Browser.grantPermissions", allowed)
    page.script("document.querySelector('.advanced').open = true")
    field = page.driver.find_element("id", "language")
    for length, told in [(35, ""), (40, "The last 5 characters do not fit: 35 at most.")]:
        copy = "navigator.clipboard.writeText('e'.repeat(arguments[0])).then(arguments[1])"
        page.driver.execute_async_script(copy, length)  # type: ignore[no-untyped-call]
        field.clear()
        field.send_keys(Keys.CONTROL, "v")
        page.wait(lambda: len(field.get_property("value")) == 35, "pasted")  # type: ignore[arg-type]
        page.wait(lambda told=told: field.get_property("validationMessage") == told, "told")  # type: ignore[misc]
    field.send_keys(Keys.BACKSPACE)
    assert field.get_property("validationMessage") == "", "it is changed"


def test_an_adapter_is_chosen_where_there_is_one(page: PlaygroundPage, gateway: FakeGateway) -> None:
    assert page.script("return document.getElementById('adapter-field').hidden")
    gateway.params = {"adapter": {"choices": ["calm", "support"]}}
    page.open()
    page.choose("adapter", "support")
    page.speak("With it.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    page.choose("adapter", "")
    page.speak("Without.")
    assert [message["params"].get("adapter") for message in gateway.messages("text")] == ["support", None]


def test_a_wrong_value_that_is_folded_away_is_shown(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.choose("steps", "65")
    page.write("This is not sent.")
    page.click("speak")
    page.wait(lambda: page.text_of("steps-fault") == "A whole number from 2 to 64, or nothing.", "told")
    assert page.script("return document.querySelector('.advanced').open")
    assert page.script("return document.activeElement.id") == "steps"
    assert gateway.messages("text") == []
    page.driver.switch_to.active_element.send_keys(Keys.BACKSPACE)
    assert page.text_of("steps-fault") == "", "6 will do"
    page.speak("This is.")
    assert gateway.messages("text")[0]["params"] == {"steps": 6}


def test_a_full_server_says_so_instead_of_a_lost_connection(visitor: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.full = True
    visitor.visit()
    visitor.wait(lambda: "handshake_refused" in visitor.notice(), "told")
    assert "it may be full" in visitor.notice()
    gateway.full = False
    visitor.wait(lambda: visitor.connection() == "open", "let in when there is room")
    assert visitor.notice() == ""


SEND_A_WITHDRAWN_KEY = """
window.__fetch = window.fetch;
const old = { Authorization: 'Bearer rtts_old' };
window.fetch = (to, options) => __fetch(to, { ...options, headers: { ...options.headers, ...old } });
"""


def test_without_https_the_page_speaks_over_http_and_says_what_to_do(chromium: Chrome) -> None:
    with GatewayHarness(**with_key()) as gateway:  # without keys it answers to this machine's names only
        port = gateway.url.rsplit(":", 1)[1]
        page = PlaygroundPage(chromium, f"http://lan.test:{port}/")
        page.visit()
        assert page.script("return isSecureContext") is False
        enter(page, API_KEY)
        page.wait(lambda: page.driver.find_element("id", "insecure").is_displayed(), "told")
        advice = page.text_of("insecure")
        assert f"ssh -L {port}:localhost:{port} lan.test" in advice
        tunnel = page.driver.find_element("id", "tunnel-address").get_attribute("href")
        assert tunnel == f"http://localhost:{port}/"
        page.write("Heard at last.")
        page.click("speak")
        page.wait(lambda: page.phase() == "replaying", "all of it is here, and plays")
        page.wait(lambda: page.phase() == "replayed", "to the end")
        assert page.text_of("transcript-text") == "Heard at last."
        assert page.notice() == ""
        page.script("for (const _ of [1, 2]) document.getElementById('form').requestSubmit();")
        page.wait(lambda: page.phase() == "replaying", "the second one, in place of the first")
        page.wait(lambda: page.phase() == "replayed", "to the end")
        assert page.notice() == ""
        assert page.console_errors() == []
        page.write("Far too long. " * 1500)
        page.click("speak")
        page.wait(lambda: "text_too_long" in page.notice(), "told why, not that the connection was lost")
        page.click("dismiss")
        page.write("Short.")
        page.script(SEND_A_WITHDRAWN_KEY)
        for press in ("document.getElementById('speak').click()", "document.querySelector('.hear').click()"):
            page.script(press)
            page.wait(lambda: asked(page), "asked for the key that is accepted now")
            page.press_escape()
            page.wait(lambda: "requires an API key" in page.notice(), "told")
            page.click("dismiss")
        page.script("window.fetch = __fetch")
        page.click("speak")
        enter(page, API_KEY)
        page.wait(lambda: page.connection() == "open", "let in")
        assert page.notice() == ""
        page.driver.find_element("link text", "put the server behind https").click()
        page.wait(lambda: "Speech at once needs https" in page.driver.title, "the page that explains it")
        page.leave()


def test_a_link_brings_text_voice_and_settings_and_a_reload_keeps_changes(
    page: PlaygroundPage, gateway: FakeGateway
) -> None:
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    page.driver.execute_cdp_cmd("Browser.grantPermissions", allowed)
    values = (
        "const { text, voice, speed, source, versus } = document.getElementById('form').elements;"
        "return [text.value, voice.value, speed.value, source.value, versus.value]"
    )
    page.let_a_model_write(40)
    page.click("compare")
    assert page.chosen_voice() == "low", "pinned beside high"
    page.choose("speed", "1.5")
    page.write("Say “it & that”.\nTwice.")
    chosen = page.script(values)
    assert chosen == ["Say “it & that”.\nTwice.", "low", "1.5", "llm", "high"]
    page.click("copy-link")
    page.wait(lambda: page.text_of("copy-link") == "Link copied", "copied")
    link = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")  # type: ignore[no-untyped-call]

    page.open()
    assert page.script(values)[1:] == ["high", "", "typed", ""], "another visitor"
    page.driver.get(link)  # the same page: only what is behind # changes
    page.wait(lambda: page.script(values) == chosen, "as it was copied")
    page.choose_voice("high")
    page.script("document.querySelector('.skip').click()")
    assert page.script(values)[:2] == [chosen[0], "high"], "a jump within the page is no link"
    page.driver.refresh()
    page.wait(lambda: page.connection() == "open", "again")
    assert page.script(values) == [chosen[0], "high", *chosen[2:4], "low"], "the change is kept, not the link's voice"
    assert "text=" not in page.driver.current_url
    assert not [path for path in gateway.requests if "Twice" in path], "no server sees the text"
    page.driver.get("about:blank")
    page.driver.get(link.replace("voice=low", "voice=gone"))
    page.wait(lambda: page.text_of("voice-note") == "The voice gone is not on this server.", "told")
