"""Text in, sound out, stopped when the visitor interrupts: with the scripted gateway and with the real one."""

from __future__ import annotations

import numpy as np
import pytest
from playground_page import PlaygroundPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

SENTENCE = "Good morning, I can hear you well."
STORY = (
    "The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. "
    "You told the sea about your day, about the bread and the broken gate and the letter from your sister."
)
FADE_S = 0.008
BLOCK_SAMPLES = 128


def test_text_becomes_sound_of_the_right_length(any_page: PlaygroundPage) -> None:
    page = any_page
    number = page.speak(SENTENCE)
    page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
    decoded, rate = page.samples("decoded", number), page.sample_rate()
    audio_ms = page.heard_ms()
    assert np.sqrt(np.mean(decoded**2)) > 0.003, "not silence"
    assert np.max(np.abs(decoded)) <= 1.0
    # The last packet is padded to its frame: at most 60 ms more than what was spoken.
    assert 0 <= len(decoded) / rate * 1000 - audio_ms <= 60
    assert 30 <= audio_ms / len(SENTENCE) <= 200, "as long as such a sentence takes"
    assert page.text_of("phase").startswith("Finished")


def test_every_decoded_sample_is_played_once_and_in_order(any_page: PlaygroundPage) -> None:
    page = any_page
    number = page.speak(SENTENCE)
    page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
    decoded, played = page.samples("decoded", number), page.samples("played", number)
    assert len(played) == len(decoded)
    fade = round(FADE_S * page.sample_rate())
    if page.script("return __playground.session().player.underruns") == 0:
        np.testing.assert_allclose(played[fade:-fade], decoded[fade:-fade], atol=1e-6)


def test_after_interrupt_no_later_sample_is_played(any_page: PlaygroundPage) -> None:
    page = any_page
    number = page.speak(STORY)
    page.wait(lambda: page.heard_ms() > 1500, "in mid-speech", 60)
    page.click("interrupt")
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    after_interrupt = page.num_played(number)
    audio_time = page.script("return __playground.audioTime()")
    page.wait(
        lambda: page.script("return __playground.audioTime()") > audio_time + 2, "two more seconds of audio clock"
    )
    assert page.num_played(number) == after_interrupt
    assert page.script("return __playground.lastPlayedAt(arguments[0])", number) < audio_time
    played = page.samples("played", number)
    assert abs(played[-1]) < 0.01, "faded out, not cut"
    rate = page.sample_rate()
    assert len(played) < len(STORY) * 30 * rate / 1000, "stopped long before its end"


def test_what_was_heard_and_what_not_is_told_apart(any_page: PlaygroundPage) -> None:
    page = any_page
    page.speak(STORY)
    page.wait(lambda: len(page.lit_words()) >= 4, "four words heard", 60)
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    heard, unheard = page.lit_words(), page.struck_text()
    assert STORY.split()[: len(heard)] == heard
    assert STORY.endswith(unheard)
    assert len(" ".join(heard)) + len(unheard) == pytest.approx(len(STORY), abs=2)
    assert "interrupted" in page.text_of("transcript-text")
    assert page.text_of("phase").startswith("Interrupted")


def test_a_new_speech_plays_after_an_interrupted_one(any_page: PlaygroundPage) -> None:
    page = any_page
    first = page.speak(STORY)
    page.wait(lambda: page.heard_ms() > 800, "in mid-speech", 60)
    second = page.speak(SENTENCE)  # speaking again interrupts
    assert second != first
    page.wait(lambda: page.num_played(second) > 0, "the second is heard", 60)
    of_first = page.num_played(first)
    page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
    assert page.num_played(first) == of_first
    assert len(page.samples("decoded", second)) == page.num_played(second)


def test_words_light_up_in_order_as_they_are_heard(any_page: PlaygroundPage) -> None:
    page = any_page
    page.speak(SENTENCE)
    seen: list[int] = []
    while page.phase() == "speaking":
        seen.append(len(page.lit_words()))
    assert seen == sorted(seen)
    assert len(set(seen)) > 3, "one after the other, not all at once"
    assert page.lit_words() == SENTENCE.split()


def test_times_to_first_audio_are_shown(any_page: PlaygroundPage) -> None:
    page = any_page
    page.speak(SENTENCE)
    page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
    decoded, audible, server = (
        page.text_of(f"m-{name}").removesuffix(" ms") for name in ("decoded", "audible", "server")
    )
    assert 0 <= int(decoded) < int(audible)
    assert int(server) >= 0


def test_it_speaks_while_the_model_is_still_writing(any_page: PlaygroundPage) -> None:
    page = any_page
    page.let_a_model_write(12)
    number = page.speak(STORY)
    page.wait(lambda: page.num_played(number) > page.sample_rate() // 2, "half a second was heard", 60)
    written = page.last()["text"]
    assert STORY.startswith(written)
    assert len(written) < len(STORY), "the model has not finished"
    assert 0 < len(page.lit_words()) <= len(written.split())
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
