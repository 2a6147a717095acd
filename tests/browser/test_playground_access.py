"""Accessibility of the page: keyboard, names for screen readers, contrast, small screens, reduced motion."""

from __future__ import annotations

import re

import pytest
from fake_gateway import FakeGateway
from playground_page import PlaygroundPage
from selenium.webdriver import Keys

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(page: PlaygroundPage, scheme: str) -> None:
    emulate(page, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    page.speak("[fail] Some words are heard and some of them are not.")
    page.wait(lambda: page.struck_text(), "failed, with a notice on show")
    page.script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    pairs = page.script(VISIBLE_TEXT)
    emulate(page)
    assert len(pairs) > 30
    weak = [(text, round(contrast(fore, back), 2)) for text, fore, back in pairs if contrast(fore, back) < 4.5]
    assert weak == []


def test_every_control_has_a_name(page: PlaygroundPage) -> None:
    page.script("document.querySelector('details').open = true")
    controls = page.driver.find_elements("css selector", "button, input, select, textarea, summary, canvas, [tabindex]")
    unnamed = [c.get_attribute("id") for c in controls if c.is_displayed() and not c.accessible_name]
    assert unnamed == []


def test_changes_are_announced_politely_and_errors_at_once(page: PlaygroundPage) -> None:
    attribute = "return document.getElementById(arguments[0]).getAttribute(arguments[1])"
    assert page.script(attribute, "phase", "aria-live") == "polite"
    assert page.script(attribute, "connection", "role") == "status"
    assert page.script(attribute, "notice", "role") == "alert"
    assert page.script("return document.querySelector('#transcript-text').closest('[aria-live]')") is None


def test_everything_can_be_done_from_the_keyboard(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.script("document.getElementById('text').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: page.last()["number"] is not None, "spoken")
    page.wait(lambda: page.heard_ms() > 300, "heard")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    reached = set()
    page.script("document.body.tabIndex = -1; document.body.focus()")
    for _ in range(30):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        active = (
            "const e = document.activeElement; return [e.id || e.name || e.localName, getComputedStyle(e).outlineStyle]"
        )
        name, outline = page.script(active)
        reached.add(name)
        assert outline != "none" or name in ("body", "source"), f"{name} shows its focus"
    assert {"edit-text", "source", "voice", "summary", "speak", "transcript", "position", "replay"} <= reached


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


def test_focus_rings_are_not_clipped(page: PlaygroundPage) -> None:
    assert page.script(CLIPPED) == []


def test_the_page_stays_at_its_top_on_a_low_window(page: PlaygroundPage) -> None:
    metrics = {"width": 390, "height": 360, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.open()
    at = page.script("return [scrollY, document.querySelector('.tile').getBoundingClientRect().top > innerHeight]")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert at == [0, True], "although the chosen voice is below"


def test_no_part_of_the_https_page_scrolls_without_the_keyboard(page: PlaygroundPage) -> None:
    metrics = {"width": 320, "height": 640, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.driver.get(f"{page.url}https.html")
    wide = page.script(
        "return [...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth).length"
    )
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide == 0


SIZES = [(1440, 900), (1024, 768), (390, 844)]
BELOW = """
const inSight = (id) => {
  const { top, bottom } = document.getElementById(id).getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
};
return arguments[0].filter((id) => !inSight(id));
"""


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_what_matters_is_in_sight_without_scrolling(page: PlaygroundPage, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 768}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    before = page.script(BELOW, ["text", "speak", "wave", "voices", "use-code"])
    page.script("document.querySelector('.advanced').open = true")
    page.speak("A few words.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    page.script("scrollTo(0, 0)")
    after = page.script(BELOW, ["transcript", "speak", "wave", "replay", "voices"])
    if width > 900:
        page.script("scrollTo(0, document.body.scrollHeight)")
        after += page.script(BELOW, ["transcript", "speak", "wave"])
    page.script("document.getElementById('edit-text').click()")
    assert page.script("return document.activeElement.id") == "text", "the text is where its words were"
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert (before, after) == ([], [])


def test_nothing_sticks_out_sideways(page: PlaygroundPage) -> None:
    page.script("document.querySelector('details').open = true")
    page.speak("Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen and a few more words to fill the line.")
    page.wait(lambda: page.heard_ms() > 200, "speaking")
    for width in (320, 390, 768, 1280):
        metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 768}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert page.script("return document.documentElement.scrollWidth") <= width
        small = page.script(
            "const shown = [...document.querySelectorAll('button')].filter((b) => b.checkVisibility());"
            "return shown.filter((b) => b.offsetHeight < 32).length"
        )
        assert small == 0, "buttons large enough for a finger"
    page.press_escape()
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_reduced_motion_is_respected(page: PlaygroundPage) -> None:
    emulate(page, prefers_reduced_motion="reduce")
    page.script("document.getElementById('connection').dataset.state = 'connecting'")
    animation = page.script("return getComputedStyle(document.querySelector('#connection i')).animationName")
    emulate(page)
    assert animation == "none"
