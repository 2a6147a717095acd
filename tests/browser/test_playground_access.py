"""Accessibility of the page: keyboard, names for screen readers, contrast, small screens, reduced motion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gateway import FakeGateway
from playground_page import PlaygroundPage
from selenium.webdriver import Keys

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

PAGE_FILES = Path(__file__).parents[2] / "clients/browser"
VISIBLE_TEXT = """
const seen = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility() || element.closest('.hidden, .skip, :disabled')) continue;
  if (element.closest('option, script')) continue;
  let ground = element;
  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  if (element.parentElement.matches('.source label') && element.previousElementSibling?.checked) ground = element;
  seen.push([node.data.trim(), getComputedStyle(element).color, getComputedStyle(ground).backgroundColor]);
}
return seen;
"""


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def emulate(page: PlaygroundPage, **features: str) -> None:
    listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": listed})


def choose_talk(page: PlaygroundPage) -> None:
    page.script("document.querySelector('[name=source][value=talk]').click()")


def weak_text(page: PlaygroundPage) -> list[tuple[str, str, float]]:
    """Texts on show without enough contrast, by colour scheme."""
    weak = []
    for scheme in ("light", "dark"):
        emulate(page, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        assert page.script("return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", scheme)
        pairs = page.script(VISIBLE_TEXT)
        assert len(pairs) > 30
        contrasts = [(scheme, text, round(contrast(fore, back), 2)) for text, fore, back in pairs]
        weak += [found for found in contrasts if found[-1] < 4.5]
    emulate(page)
    return weak


def test_all_text_has_contrast(page: PlaygroundPage) -> None:
    page.speak("[fail] Some words are heard and some of them are not.")
    page.wait(lambda: page.struck_text(), "failed, with a notice on show")
    page.script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert weak_text(page) == []
    choose_talk(page)
    page.choose("llm-url", "not an address")
    page.driver.find_element("id", "message").send_keys("Hello?", Keys.ENTER)
    assert page.text_of("llm-url-fault")
    assert weak_text(page) == [], "the empty talk, its settings and a fault"
    page.choose("llm-url", "")
    page.driver.find_element("id", "message").send_keys(Keys.ENTER)
    page.wait(lambda: len(page.lit_words()) > 2, "an answer is heard")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    assert weak_text(page) == [], "turns"


def resize(page: PlaygroundPage, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 768}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture
def own_size(page: PlaygroundPage) -> Iterator[None]:
    """The window has its own size again after the test."""
    yield
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


CLIPPED = """
const ring = 5; // width and offset of the outline
return [...document.querySelectorAll('button, input, select, textarea, summary, [tabindex="0"]')].filter((control) => {
  if (!control.checkVisibility()) return false;
  const box = (control.closest('.tile, .source label') ?? control).getBoundingClientRect();
  for (let around = control.parentElement; around !== document.body; around = around.parentElement) {
    if (getComputedStyle(around).overflowX === 'visible') continue;
    const { left, right } = around.getBoundingClientRect();
    if (box.left - left < ring || right - box.right < ring) return true;
  }
  return false;
}).map((control) => control.id || control.value);
"""


def test_controls_have_names_and_focus_rings_and_changes_are_announced(page: PlaygroundPage) -> None:
    assert page.script(CLIPPED) == [], "focus rings"

    attribute = "return document.getElementById(arguments[0]).getAttribute(arguments[1])"
    assert page.script(attribute, "phase", "aria-live") == "polite"
    assert page.script(attribute, "connection", "role") == "status"
    assert page.script(attribute, "notice", "role") == "alert"
    assert page.script("return document.querySelector('#transcript-text').closest('[aria-live]')") is None

    page.script("document.querySelector('details').open = true")
    for prepare in (lambda page: None, choose_talk):
        prepare(page)
        controls = page.driver.find_elements(
            "css selector", "button, input, select, textarea, summary, canvas, [tabindex]"
        )
        unnamed = [c.get_attribute("id") for c in controls if c.is_displayed() and not c.accessible_name]
        assert unnamed == []


NOTE_FOCUS = """
window.__focused = [];
document.addEventListener('focusin', ({ target }) => {
  __focused.push([target.id || target.name || target.localName, getComputedStyle(target).outlineStyle]);
});
document.body.tabIndex = -1;
document.body.focus();
"""


def test_everything_can_be_done_from_the_keyboard(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.script("document.getElementById('text').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: page.last()["number"] is not None, "spoken")
    page.wait(lambda: page.heard_ms() > 300, "heard")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    page.script(NOTE_FOCUS)
    page.driver.switch_to.active_element.send_keys(Keys.TAB * 30)
    focused = page.script("return __focused")
    unseen = [name for name, outline in focused if outline == "none" and name != "source"]
    assert unseen == [], "the focus is shown"
    reached = {name for name, _ in focused}
    assert {"edit-text", "source", "voice", "summary", "speak", "transcript", "position", "replay"} <= reached


@pytest.mark.usefixtures("own_size")
def test_the_page_stays_at_its_top_on_a_low_window(page: PlaygroundPage) -> None:
    resize(page, 390, 360)
    page.open()
    at = page.script("return [scrollY, document.querySelector('.tile').getBoundingClientRect().top > innerHeight]")
    assert at == [0, True], "although the chosen voice is below"


@pytest.mark.usefixtures("own_size")
def test_no_part_of_the_https_page_scrolls_without_the_keyboard(page: PlaygroundPage) -> None:
    resize(page, 320, 640)
    page.driver.get(f"{page.url}https.html")
    wide = page.script(
        "return [...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth).length"
    )
    assert wide == 0


SIZES = [(1440, 900), (1024, 768), (390, 844), (844, 390)]
BELOW = """
const inSight = (id) => {
  const { top, bottom } = document.getElementById(id).getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
};
return arguments[0].filter((id) => !inSight(id));
"""


@pytest.mark.usefixtures("own_size")
def test_what_matters_is_in_sight_without_scrolling(page: PlaygroundPage) -> None:
    below = {}
    for size in SIZES:
        resize(page, *size)
        below["before", size] = page.script(BELOW, ["text", "speak", "wave", "voices", "use-code"])
    page.script("document.querySelector('.advanced').open = true")
    page.speak("A few words.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    for size in SIZES:
        resize(page, *size)
        page.script("scrollTo(0, 0)")
        below["after", size] = page.script(BELOW, ["transcript", "speak", "wave", "replay", "voices"])
        if size[0] > 900:
            page.script("scrollTo(0, document.body.scrollHeight)")
            below["scrolled", size] = page.script(BELOW, ["transcript", "speak", "wave"])
    page.script("document.getElementById('edit-text').click()")
    assert page.script("return document.activeElement.id") == "text", "the text is where its words were"
    choose_talk(page)
    for size in SIZES:
        resize(page, *size)
        page.script("scrollTo(0, 0)")
        below["talk", size] = page.script(BELOW, ["transcript", "message", "speak", "wave"])
    assert {place: hidden for place, hidden in below.items() if hidden} == {}


@pytest.mark.usefixtures("own_size")
def test_nothing_sticks_out_sideways(page: PlaygroundPage) -> None:
    page.script("document.querySelector('details').open = true")
    page.speak("Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen and a few more words to fill the line.")
    page.wait(lambda: page.heard_ms() > 200, "speaking")
    for width, height in [(320, 844), (390, 844), (768, 844), (844, 390), (1280, 844)]:
        resize(page, width, height)
        assert page.script("return document.documentElement.scrollWidth") <= width
        small = page.script(
            "const shown = [...document.querySelectorAll('button')].filter((b) => b.checkVisibility());"
            "return shown.filter((b) => b.offsetHeight < 32).length"
        )
        assert small == 0, "buttons large enough for a finger"
        choose_talk(page)
        assert page.script("return document.documentElement.scrollWidth") <= width, "talk"
        page.script("document.querySelector('[name=source][value=typed]').click()")
    page.press_escape()


PLACES_OF_LETTERS = """
const words = document.getElementById('transcript-text');
const texts = document.createTreeWalker(words, NodeFilter.SHOW_TEXT), lefts = [];
for (let node; (node = texts.nextNode()); ) {
  for (let at = 0; at < node.length; at += 1) {
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    lefts.push(range.getBoundingClientRect().left);
  }
}
return lefts;
"""


def test_each_paragraph_runs_in_its_own_direction(page: PlaygroundPage) -> None:
    text = "שלום, עולם!\nHello, world!"
    page.speak(text)
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    lefts = page.script(PLACES_OF_LETTERS)
    assert len(lefts) == len(text)
    end = text.index("\n")
    assert lefts[:end] == sorted(lefts[:end], reverse=True), "from the right, the exclamation mark at the left"
    assert lefts[end + 1 :] == sorted(lefts[end + 1 :])
    direction = "return getComputedStyle(document.querySelector(arguments[0])).unicodeBidi"
    for place in ("#text", ".marks", "#message"):
        assert page.script(direction, place) == "plaintext", "where it is written, too"


def test_reduced_motion_is_respected(page: PlaygroundPage) -> None:
    page.script("document.getElementById('connection').dataset.state = 'connecting'")
    animations = []
    for wanted in ("no-preference", "reduce"):
        emulate(page, prefers_reduced_motion=wanted)
        animations.append(page.script("return getComputedStyle(document.querySelector('#connection i')).animationName"))
    emulate(page)
    assert animations == ["pulse", "none"]


def test_the_page_is_light() -> None:
    """All files together, uncompressed."""
    files = [path for path in PAGE_FILES.iterdir() if path.suffix in {".js", ".css", ".html", ".svg"}]
    assert 100_000 < sum(path.stat().st_size for path in files) < 400_000
