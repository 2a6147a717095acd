"""axe-core finds no violation in the states of the playground, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gateway import FakeGateway
from playground_page import PlaygroundPage
from selenium.webdriver import Keys

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

AXE = Path(__file__).parents[1] / "clients/vendors/node_modules/axe-core/axe.min.js"
LONG = "The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. " * 5
# The dark scheme has the same elements in other colours.
CHECK = """
const [rules, done] = arguments;
axe.run(document, { resultTypes: ['violations'], ...(rules && { runOnly: rules }) }).then(({ violations }) =>
  done(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html.slice(0, 200))])));
"""


class Audit:
    """Violations by state and colour scheme."""

    def __init__(self, page: PlaygroundPage) -> None:
        self.page = page
        self.found: dict[str, list[list[object]]] = {}
        page.script(AXE.read_text(encoding="utf-8"))

    def check(self, state: str) -> None:
        for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            found = self.page.driver.execute_async_script(CHECK, rules)  # type: ignore[no-untyped-call]
            if found:
                self.found[f"{state}, {scheme}"] = found

    def check_dialog(self, state: str, opener: str) -> None:
        self.page.open_dialog(opener)
        self.check(state)
        self.page.press_escape()


@pytest.fixture
def audit(page: PlaygroundPage) -> Iterator[Audit]:
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm ci in tests/clients/vendors")
    yield Audit(page)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_axe_finds_no_violation(page: PlaygroundPage, gateway: FakeGateway, audit: Audit) -> None:
    audit.check("idle")
    page.speak(LONG)
    page.wait(lambda: page.heard_ms() > 300, "heard")
    audit.check("speaking")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    audit.check("interrupted")
    gateway.report = {"opening_used": True, "mended": 1}
    page.speak("A few words.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    page.script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    audit.check("take, with figures and Advanced")
    page.speak("[fail] Some words are heard and some are not.")
    page.wait(lambda: page.struck_text(), "failed, with a notice on show")
    audit.check("failed")
    page.click("compare")
    audit.check("two voices pinned")
    page.click("compare")
    audit.check_dialog("code", "use-code")
    audit.check_dialog("new voice", "new-voice")

    page.script("document.querySelector('[name=source][value=talk]').click()")
    audit.check("empty talk")
    page.choose("llm-url", "not an address")
    message = page.driver.find_element("id", "message")
    message.send_keys("Hello?", Keys.ENTER)
    audit.check("talk with a fault")
    page.choose("llm-url", "")
    message.send_keys(Keys.ENTER)
    page.wait(lambda: len(page.lit_words()) > 2, "an answer is heard")
    audit.check("talk, speaking")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    page.choose("agent-url", "http://127.0.0.1:9")
    page.click("by-voice")
    page.wait(lambda: "make agent" in page.notice(), "no voice agent")
    audit.check("talk, interrupted, without a voice agent")
    assert audit.found == {}


def test_axe_would_find_one(page: PlaygroundPage, audit: Audit) -> None:
    page.script("document.getElementById('replay').replaceChildren()")
    page.script("document.getElementById('phase').style.color = '#123'")
    audit.check("spoilt")
    found = {(state, rule) for state, violations in audit.found.items() for rule, _ in violations}
    assert found == {
        ("spoilt, light", "button-name"),
        ("spoilt, light", "color-contrast"),
        ("spoilt, dark", "color-contrast"),
    }
