"""Text in, sound out, stopped when the visitor interrupts: with the scripted gateway and with the real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from fake_gateway import FakeGateway
from gateway_harness import GatewayHarness
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome
from vendor_gateways import WORKER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

SENTENCE = "Good morning, I can hear you well."
STORY = (
    "The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. "
    "You told the sea about your day, about the bread and the broken gate and the letter from your sister."
)
LONG_STORY = " ".join([STORY] * 4)  # half a minute: a busy machine may take seconds to interrupt it
FADE_S = 0.008
# Noted in the page: from outside, a busy machine sees few of the states.
NOTE_LIT_WORDS = """
window.litWords = [];
const note = () => window.litWords.push(document.querySelectorAll('.word.heard').length);
new MutationObserver(note).observe(document.body, { subtree: true, childList: true, attributeFilter: ['class'] });
"""


STAGES = """
const figures = [...document.querySelectorAll('#latency [data-stage]')];
const stages = figures.map((e) => [e.dataset.stage, e.querySelector('dd').textContent]);
return Object.fromEntries([...stages, ['total', document.querySelector('#latency b').textContent]]);
"""


@dataclass
class Heard:
    """State of the page after one sentence was heard to its end."""

    decoded: np.ndarray
    played: np.ndarray
    rate: int
    audio_ms: float
    num_underruns: int
    phase: str
    metrics: dict[str, str]
    lit: list[int]  # number of lit words, whenever the page changed it
    words: list[str]
    bounds: list[str]  # of the number fields
    timing: str  # of words, by this server


@pytest.fixture(scope="module", params=["scripted", "server", pytest.param("starter-voice", marks=pytest.mark.slow)])
def server_url(shared_gateway: FakeGateway, request: pytest.FixtureRequest) -> Iterator[str]:
    """The scripted gateway, a real one whose worker has no model, and one with the starter voice."""
    if request.param == "scripted":
        yield shared_gateway.url
        shared_gateway.reset()
    elif request.param == "server":
        with GatewayHarness(worker=WORKER) as gateway:
            yield f"{gateway.url}/"
    else:
        yield request.getfixturevalue("starter_voice_url")


@pytest.fixture(scope="module")
def heard(chromium: Chrome, server_url: str, shared_gateway: FakeGateway) -> Heard:
    """A sentence spoken once, for all tests that only look at how it went: speech takes the time it takes."""
    page = PlaygroundPage(chromium, server_url)
    page.open()
    page.script(NOTE_LIT_WORDS)
    number = page.speak(SENTENCE)
    page.wait(lambda: page.phase() != "speaking", "the sentence has been heard")
    found = Heard(
        decoded=page.samples("decoded", number),
        played=page.samples("played", number),
        rate=page.sample_rate(),
        audio_ms=page.heard_ms(),
        num_underruns=page.script("return __playground.session().player.underruns"),
        phase=page.text_of("phase"),
        metrics={name: page.text_of(f"m-{name}") for name in ("written", "timing")} | page.script(STAGES),
        lit=page.script("return window.litWords"),
        words=page.lit_words(),
        bounds=page.script("return [...document.querySelectorAll('[type=number]')].flatMap((e) => [e.min, e.max])"),
        timing="estimated" if server_url == shared_gateway.url else "measured",
    )
    errors = page.console_errors()
    page.leave()
    assert errors == []
    return found


def test_text_becomes_sound_of_the_right_length(heard: Heard) -> None:
    assert np.sqrt(np.mean(heard.decoded**2)) > 0.003, "not silence"
    assert np.max(np.abs(heard.decoded)) <= 1.0
    # The last packet is padded to its frame: at most 60 ms more than what was spoken.
    assert 0 <= len(heard.decoded) / heard.rate * 1000 - heard.audio_ms <= 60
    assert 30 <= heard.audio_ms / len(SENTENCE) <= 200, "as long as such a sentence takes"
    assert heard.phase.startswith("Finished")


def test_every_decoded_sample_is_played_once_and_in_order(heard: Heard) -> None:
    assert len(heard.played) == len(heard.decoded)
    fade = round(FADE_S * heard.rate)
    if heard.num_underruns == 0:
        np.testing.assert_allclose(heard.played[fade:-fade], heard.decoded[fade:-fade], atol=1e-6)


def test_the_ranges_of_the_parameters_are_known(heard: Heard) -> None:
    assert len(heard.bounds) == 12  # speed, volume, sentence pause, steps, guidance and seed
    assert "" not in heard.bounds


def test_words_light_up_in_order_as_they_are_heard(heard: Heard) -> None:
    assert heard.lit == sorted(heard.lit)
    assert len(set(heard.lit)) > 3, "one after the other, not all at once"
    assert heard.words == SENTENCE.split()


def test_times_to_first_audio_are_shown(heard: Heard) -> None:
    total, text, *stages = (
        int(heard.metrics[name].removesuffix(" ms"))
        for name in ("total", "text", "server", "network", "buffer", "device")
    )
    assert min(stages) >= 0
    assert (text, total) == (0, pytest.approx(sum(stages), abs=3)), "each is rounded"
    assert heard.metrics["written"] == "all of it"


def test_it_says_whether_word_times_are_measured(heard: Heard) -> None:
    assert heard.metrics["timing"] == heard.timing


def test_after_interrupt_no_later_sample_is_played(any_page: PlaygroundPage) -> None:
    page = any_page
    number = page.speak(LONG_STORY)
    page.wait(lambda: page.heard_ms() > 800, "in mid-speech", 60)
    page.click("speak")  # it says Stop now
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    audio_time = page.script("return __playground.audioTime()")
    page.wait(lambda: page.script("return __playground.audioTime()") > audio_time + 0.1, "the fade-out is told")
    after_interrupt = page.num_played(number)
    page.wait(lambda: page.script("return __playground.audioTime()") > audio_time + 1, "one more second of audio clock")
    assert page.num_played(number) == after_interrupt
    assert page.script("return __playground.lastPlayedAt(arguments[0])", number) < audio_time
    played = page.samples("played", number)
    assert abs(played[-1]) < 0.01, "faded out, not cut"
    rate = page.sample_rate()
    assert len(played) < len(LONG_STORY) * 30 * rate / 1000, "stopped long before its end"


def test_held_speech_is_silent_and_goes_on_to_its_end(any_page: PlaygroundPage) -> None:
    page, text = any_page, f"{STORY} {STORY}"
    number = page.speak(text)

    def is_silent() -> bool:
        num_played, since = page.num_played(number), page.script("return __playground.audioTime()")
        page.wait(lambda: page.script("return __playground.audioTime()") > since + 0.3, "0.3 s of audio clock")
        return page.num_played(number) == num_played

    page.wait(lambda: len(page.lit_words()) >= 2, "words are heard", 60)
    page.click("hold")
    page.wait(lambda: page.text_of("phase").startswith("Held"), "held")
    page.wait(is_silent, "silent")
    assert page.text_of("hold").startswith("Go on")
    assert len(page.lit_words()) < len(text.split())
    page.press_control_and(".")
    page.wait(lambda: page.phase() == "finished", "heard to the end", 120)
    assert page.lit_words() == text.split()
    assert page.script("return document.getElementById('hold').hidden")


def test_what_was_heard_and_what_not_is_told_apart(any_page: PlaygroundPage) -> None:
    page = any_page
    page.speak(LONG_STORY)
    page.wait(lambda: len(page.lit_words()) >= 4, "four words heard", 60)
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    heard, unheard = page.lit_words(), page.struck_text()
    assert LONG_STORY.split()[: len(heard)] == heard
    assert LONG_STORY.endswith(unheard)
    assert len(" ".join(heard)) + len(unheard) == pytest.approx(len(LONG_STORY), abs=2)
    assert "interrupted" in page.text_of("transcript-text")
    assert page.text_of("phase").startswith("Interrupted")


def test_a_new_speech_plays_after_an_interrupted_one(any_page: PlaygroundPage) -> None:
    page = any_page
    first = page.speak(LONG_STORY)
    page.wait(lambda: page.heard_ms() > 800, "in mid-speech", 60)
    second = page.speak("Good morning.")  # speaking again interrupts
    assert second != first
    page.wait(lambda: page.num_played(second) > 0, "the second is heard", 60)
    of_first = page.num_played(first)
    page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
    assert page.num_played(first) == of_first
    assert len(page.samples("decoded", second)) == page.num_played(second)


def test_it_speaks_while_the_model_is_still_writing(any_page: PlaygroundPage) -> None:
    page = any_page
    page.let_a_model_write(12)
    number = page.speak(LONG_STORY)
    page.wait(lambda: page.num_played(number) > page.sample_rate() // 2, "half a second was heard", 60)
    written = page.last()["text"]
    assert LONG_STORY.startswith(written)
    assert len(written) < len(LONG_STORY), "the model has not finished"
    assert 0 < len(page.lit_words()) <= len(written.split())
    then = page.text_of("m-written").split()
    assert then[1] in ("word", "words")
    assert 0 < int(then[0]) <= len(written.split())
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")


def test_speech_begins_with_the_first_words_or_with_whole_clauses(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.let_a_model_write(100)
    for mode in ("live", "clause"):
        page.begin_speech_with(mode)
        page.speak("Good morning.")
        page.wait(lambda: page.phase() == "finished", "heard to the end")
        opening = next(message for message in reversed(gateway.messages("text")) if "params" in message)
        assert opening["params"]["mode"] == mode
