"""What was heard is kept: replay from any place, download, the last takes, the same settings and seed again."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from fake_gateway import MS_PER_CHAR, PARAMS, FakeGateway
from gateway_harness import GatewayHarness
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome, Keys

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

TEXT = "Some words to hear again, and then a few more of them."
POSITION = "return Number(document.getElementById('position').value)"
LIT = """
const canvas = document.getElementById('wave'), { width, height } = canvas;
const { data } = canvas.getContext('2d').getImageData(0, height / 2, width, 1);
const isHeard = (_, x) => [0xf6, 0xbc, 0x62].every((value, channel) => data[4 * x + channel] === value);
return Array.from({ length: width }, isHeard).lastIndexOf(true) / width;
"""
CLICK_WORD = "document.querySelectorAll('.word')[arguments[0]].click()"


@pytest.fixture
def downloads(chromium: Chrome, tmp_path: Path) -> Iterator[Path]:
    """Directory in which the browser saves files."""
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    yield tmp_path
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "default"})


def finish(page: PlaygroundPage) -> None:
    page.wait(lambda: page.phase() == "finished", "heard to the end")


def take_button(page: PlaygroundPage, row: int, name: str) -> None:
    rows = page.driver.find_elements("css selector", "#takes li")
    page.driver.execute_script(
        "arguments[0].click()", rows[row].find_element("css selector", f"[aria-label^='{name}']")
    )  # type: ignore[no-untyped-call]


def saved(page: PlaygroundPage, directory: Path, name: str) -> bytes:
    path = directory / name
    page.wait(lambda: path.is_file() and path.stat().st_size > 0, f"{name} is saved")
    return path.read_bytes()


PLACES = """
return ['speak', 'wave', 'takes'].map((id) => Math.round(document.getElementById(id).getBoundingClientRect().top));
"""


@pytest.fixture(params=[(1440, 900), (1024, 768)], ids=str)
def wide_page(page: PlaygroundPage, request: pytest.FixtureRequest) -> Iterator[PlaygroundPage]:
    width, height = request.param
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield page
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_nothing_moves_when_a_take_enters_the_list(wide_page: PlaygroundPage) -> None:
    places = wide_page.script(PLACES)
    for text in (TEXT, f"{TEXT} {TEXT}"):
        wide_page.speak(text)
        finish(wide_page)
        assert wide_page.script(PLACES) == places
    rightmost = """const canvas = document.getElementById('wave'), { width } = canvas;
    const { data } = canvas.getContext('2d').getImageData(width - 10, 4, 10, 1);
    return Array.from({ length: 10 }, (_, x) => data[4 * x + 3] > 127).filter(Boolean).length;"""
    assert wide_page.script(rightmost) >= 7, "the playhead's knob is whole at the end"


def test_four_voices_are_shown_without_scrolling(wide_page: PlaygroundPage) -> None:
    wide_page.click("compare")
    assert wide_page.script("""const tiles = document.getElementById('voices');
    while (tiles.children.length < 4) tiles.append(tiles.firstElementChild.cloneNode(true));
    return tiles.scrollHeight <= tiles.clientHeight;""")


COLUMN = """
return ['voices', 'compare', 'arrival'].map((id) => {
  const { top, right } = document.getElementById(id).getBoundingClientRect();
  return [Math.round(top), Math.round(right)];
});
"""


def test_nothing_moves_when_two_voices_are_compared(wide_page: PlaygroundPage) -> None:
    places = wide_page.script(COLUMN)
    wide_page.click("compare")
    assert wide_page.driver.find_element("id", "pair").is_displayed()
    assert wide_page.script(COLUMN) == places
    names = "return [...document.querySelectorAll('#pair .name')].every((e) => e.scrollWidth <= e.clientWidth)"
    assert wide_page.script(names), "the names are shown whole"
    wide_page.click("compare")
    assert wide_page.script(COLUMN) == places


LATENCY = """
const shown = (selector) => [...document.querySelectorAll(selector)];
return [document.querySelector('#latency .origin').textContent,
  document.querySelector('#latency .bar').getAttribute('aria-label').split(/ [0-9]+ ms(?:, )?/),
  shown('#latency .dots i').length,
  shown('.takes .about').map((e) => e.textContent.split(' · ').filter((part) => !/^(after|seed)/.test(part)))];
"""


def test_what_came_from_memory_and_what_was_mended_is_told_on_the_take(
    page: PlaygroundPage, gateway: FakeGateway
) -> None:
    gateway.params = {**PARAMS, "openings": {"choices": ["on", "off"], "default": "off"}}
    page.open()
    page.speak(TEXT)
    finish(page)
    origin, stages, num_dots, takes = page.script(LATENCY)
    assert (origin, num_dots, takes) == ("", 1, [["High", "2.2 s"]])
    assert page.script("return document.querySelector('.past').hidden"), "one take has no median"
    assert {"server", "jitter buffer"} <= set(stages)
    gateway.report = {"opening_used": True, "mended": 1}
    page.choose("seed", "7")
    page.speak(TEXT)
    finish(page)
    origin, _, num_dots, takes = page.script(LATENCY)
    assert (origin, num_dots) == ("from memory", 2)
    assert not page.script("return document.querySelector('.past').hidden")
    assert takes[0] == ["High", "2.2 s", "from memory", "1 slip mended"]
    take_button(page, 1, "Replay")
    page.wait(lambda: page.script(LATENCY)[0] == "", "the figures of the first take")
    first, second = (message["params"] for message in gateway.messages("text"))
    assert second == {"openings": "on", "seed": 7}
    assert 0 <= first["seed"] < 100, "a seed of its own, of the server's range"


def test_a_take_is_replayed_from_any_place_and_saved_with_the_same_samples(
    page: PlaygroundPage, downloads: Path
) -> None:
    assert not page.driver.find_element("id", "replay").is_enabled(), "nothing to replay yet"
    number = page.speak(TEXT)
    assert not page.driver.find_element("id", "position").is_enabled(), "not while it is spoken"
    finish(page)
    assert page.script(LIT) > 0.6, "the waveform shows that it was heard"
    page.click("replay")
    page.wait(lambda: page.phase().startswith("replay") and page.script(POSITION) > 200, "replayed")
    page.script(CLICK_WORD, 8)
    page.wait(lambda: page.script(POSITION) >= TEXT.index("more") * MS_PER_CHAR - 100, "from the clicked word on")
    assert page.lit_words()[:8] == TEXT.split()[:8]
    page.wait(lambda: page.phase() == "replayed", "to the end")
    assert page.lit_words() == TEXT.split()
    page.script("document.getElementById('position').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.HOME, Keys.PAGE_UP)
    position_ms = page.script(POSITION)
    assert 0 < position_ms < len(TEXT) * MS_PER_CHAR / 2
    assert page.lit_words() == [word for k, word in enumerate(TEXT.split()) if starts_ms()[k] < position_ms]

    page.click("save-wav")
    with wave.open(io.BytesIO(saved(page, downloads, "some-words-to-hear-again-1.wav"))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, page.sample_rate())
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    np.testing.assert_allclose(samples / 32768, page.samples("decoded", number), atol=1 / 32768)


def starts_ms() -> list[int]:
    """Start of each word of the text."""
    words = TEXT.split(" ")
    return [(sum(map(len, words[:k])) + k) * MS_PER_CHAR for k in range(len(words))]


def test_all_that_was_made_of_an_interrupted_take_is_replayed(page: PlaygroundPage) -> None:
    page.speak(TEXT)
    page.wait(lambda: page.heard_ms() > 300, "heard")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    heard_ms = page.heard_ms()
    assert page.struck_text()
    page.click("replay")
    page.wait(lambda: page.phase() != "interrupted" and page.script(POSITION) > heard_ms, "beyond the interruption")
    assert page.struck_text() == ""
    page.wait(lambda: page.phase() == "replayed", "replayed to the end")
    page.click("replay")
    page.wait(lambda: page.phase() == "replaying", "from the beginning")
    page.press_escape()
    page.wait(lambda: page.phase() == "replayed", "Escape stops a replay, too")
    page.speak("Something else.")
    finish(page)
    take_button(page, 1, "Replay")
    page.wait(lambda: page.phase() == "replaying" and page.text_of("transcript-text") == TEXT, "the older take")


def test_the_seed_is_kept_and_a_takes_settings_come_back(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.choose_voice("low")
    page.choose("speed", "1.5")
    page.speak("First.")
    finish(page)
    page.click("keep-seed")
    assert page.script("return document.getElementById('keep-seed').ariaPressed") == "true"
    page.choose_voice("high")
    page.choose("speed", "")
    page.speak("Second.")
    finish(page)
    opened = [(message["voice"], message["params"]) for message in gateway.messages("text")]
    assert opened == [("low", {"speed": 1.5}), ("high", {"seed": 1})]
    page.click("keep-seed")
    assert page.script("return document.getElementById('seed').value") == ""

    take_button(page, 1, "Same settings")
    assert page.chosen_voice() == "low"
    values = "return ['text', 'speed', 'seed', 'codec'].map((id) => document.getElementById(id).value)"
    assert page.script(values) == ["First.", "1.5", "1", "auto"]
    for _ in range(10):
        page.speak("Ah.")
        finish(page)
    texts = "return [...document.querySelectorAll('#takes .excerpt')].map((e) => e.textContent)"
    assert page.script(texts) == ["Ah."] * 10, "the last ten"


HOLD_BACK_THE_MP3 = """
const { fetch } = window;
const arrival = new Promise((resolve) => (window.__letItArrive = resolve));
window.__numAsked = 0;
window.fetch = async (...asked) => {
  if (asked[1]?.method === 'POST') __numAsked += 1;
  const answer = await fetch(...asked);
  await arrival;
  return answer;
};
"""
IS_BUSY = "return document.getElementById('save-mp3').ariaBusy"


def test_the_server_makes_an_mp3(chromium: Chrome, downloads: Path) -> None:
    with GatewayHarness(worker={"patch_delay_s": 0.002}) as gateway:
        page = PlaygroundPage(chromium, f"{gateway.url}/")
        page.open()
        page.speak("Good morning.")
        finish(page)
        seed = page.text_of("keep-seed").split()[-1]
        page.script(HOLD_BACK_THE_MP3)
        page.click("save-mp3")
        assert page.script(IS_BUSY) == "true", "it shows that the press was taken"
        page.click("save-mp3")
        page.script("__letItArrive()")
        encoded = saved(page, downloads, f"good-morning-{seed}.mp3")
        assert page.script(IS_BUSY) == "false"
        assert page.script("return __numAsked") == 1
        page.leave()
    with av.open(io.BytesIO(encoded)) as file:
        assert file.format.name == "mp3"
        assert sum(frame.samples for frame in file.decode(audio=0)) / 24_000 > 0.5
