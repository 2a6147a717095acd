"""The page after faults, and states that only a scripted gateway can produce."""

from __future__ import annotations

import numpy as np
import pytest
from fake_gateway import MS_PER_CHAR, FakeGateway, tone_hz
from playground_page import PlaygroundPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

TEXT = "Forty milliseconds per character."  # longer than a second: some stage directions wait so long
SHORT = "Once more."


def pitch_hz(samples: np.ndarray, rate: int) -> float:
    """The strongest frequency."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


def finish(page: PlaygroundPage) -> None:
    page.wait(lambda: page.phase() == "finished", "heard to the end")


def test_the_tone_arrives_whole_through_opus(page: PlaygroundPage) -> None:
    number = page.speak(TEXT)
    finish(page)
    samples, rate = page.samples("decoded", number), page.sample_rate()
    assert rate == 48_000
    assert pitch_hz(samples, rate) == pytest.approx(tone_hz(number), abs=2)
    assert len(samples) == len(TEXT) * MS_PER_CHAR * rate // 1000
    quiet = np.abs(samples[rate // 10 :]).reshape(-1, rate // 50).max(axis=1)
    assert quiet.min() > 0.2, "no hole in it"


def test_two_contexts_keep_their_own_sound(page: PlaygroundPage) -> None:
    first = page.speak(TEXT)
    page.wait(lambda: page.heard_ms() > 300, "enough of the first to find its pitch")
    second = page.speak(TEXT)
    finish(page)
    rate = page.sample_rate()
    for number in (first, second):
        assert pitch_hz(page.samples("played", number), rate) == pytest.approx(tone_hz(number), abs=8)


def test_pcm_can_be_chosen(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.script("document.querySelector('details').open = true")
    page.choose("codec", "pcm_s16le")
    page.wait(lambda: page.connection() == "open" and page.script("return __playground.sampleRate()") == 24_000, "PCM")
    number = page.speak(TEXT)
    finish(page)
    assert gateway.messages("session.start")[-1]["audio"]["codec"] == "pcm_s16le"
    assert pitch_hz(page.samples("played", number), 24_000) == pytest.approx(tone_hz(number), abs=2)


def test_pcm_is_the_fallback_where_webcodecs_is_missing(page: PlaygroundPage, gateway: FakeGateway) -> None:
    source = "delete window.AudioDecoder"
    added = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
    try:
        page.open()
        number = page.speak(TEXT)
        finish(page)
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    assert gateway.messages("session.start")[-1]["audio"] == {
        "codec": "pcm_s16le",
        "sample_rate": 24_000,
        "frame_ms": 20,
    }
    assert len(page.samples("played", number)) == len(TEXT) * MS_PER_CHAR * 24


def test_a_cut_cable_is_not_heard(page: PlaygroundPage, gateway: FakeGateway) -> None:
    number = page.speak(f"[drop] {TEXT}")
    finish(page)
    samples, rate = page.samples("played", number), page.sample_rate()
    assert len(samples) == (len(TEXT) + 7) * MS_PER_CHAR * rate // 1000, "nothing lost, nothing twice"
    levels = np.abs(samples[rate // 10 : -rate // 10]).reshape(-1, rate // 50).max(axis=1)
    assert levels.min() > 0.2, "resumed before the buffer ran dry"
    [resume] = gateway.messages("session.resume")
    assert list(resume["contexts"].values()) > [0]
    assert page.notice() == ""
    assert page.connection() == "open"


def test_text_written_while_the_line_is_down_is_spoken(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.let_a_model_write(15)
    page.write(TEXT)
    page.click("speak")
    page.wait(lambda: len(gateway.messages("text")) >= 3, "the model writes")
    gateway.cut()
    finish(page)
    [session] = gateway.sessions.values()
    [context] = session.contexts.values()
    assert context.text == TEXT
    assert len(page.samples("decoded", page.last()["number"])) == len(TEXT) * MS_PER_CHAR * 48


def test_a_dead_gateways_speech_goes_on_in_another_session(page: PlaygroundPage, gateway: FakeGateway) -> None:
    """From the word on that was being heard; the text on the stage is whole, and its words follow the sound."""
    page.choose_voice("low")
    number = page.speak(f"[forget] {TEXT}")
    finish(page)
    first, second = (next(iter(session.contexts.values())) for session in gateway.sessions.values())
    assert first.text == f"[forget] {TEXT}"
    assert second.text == "milliseconds per character.", "25 characters of audio had come"
    assert (second.settings["voice"], second.settings["params"]["seed"]) == ("low", 1)
    samples, rate = page.samples("played", number), page.sample_rate()
    assert len(samples) == (25 + len(second.text)) * MS_PER_CHAR * rate // 1000, "nothing lost, one word twice"
    assert page.text_of("transcript-text") == first.text
    assert page.script("return document.querySelectorAll('.word.heard').length") == 5
    assert page.text_of("phase") == f"Finished: {(25 + len(second.text)) * MS_PER_CHAR / 1000:.1f} s of speech."
    assert page.notice() == ""
    assert gateway.messages("playback")[-1]["played_ms"] == len(second.text) * MS_PER_CHAR


NOTE_FAILURE = """
const [stage, page] = [document.getElementById('stage'), __playground];
new MutationObserver(() => {
  if (stage.dataset.phase === 'failed') window.__playedAtFailure = page.samplesPlayed(page.last().number);
}).observe(stage, { attributeFilter: ['data-phase'] });
"""


def test_a_failed_context_is_heard_as_far_as_it_goes_and_explained(page: PlaygroundPage) -> None:
    page.script(NOTE_FAILURE)
    number = page.speak(f"[fail] {TEXT}")
    page.wait(lambda: "engine_lost" in page.notice(), "told")
    page.wait(lambda: page.struck_text(), "the rest is struck")
    assert page.script("return __playedAtFailure") == page.sample_rate(), "to be stopped for as long as it is heard"
    assert page.num_played(number) == page.sample_rate(), "one second arrived, one second was heard"
    assert page.phase() == "failed"
    assert "restarted" in page.notice()
    page.speak(SHORT)
    finish(page)


def test_a_refused_context_is_explained_and_leaves_nothing_hanging(page: PlaygroundPage) -> None:
    page.write(f"[refuse] {TEXT}")
    page.click("speak")
    page.wait(lambda: "overloaded" in page.notice(), "told")
    assert page.phase() == "failed"
    assert page.script("return __playground.session().contexts.size") == 0
    assert page.text_of("speak").split()[0] == "Speak"


def test_a_text_that_is_too_long_is_explained_and_the_next_one_spoken(page: PlaygroundPage) -> None:
    page.script("__playground.session().session.limits.max_text_chars = 60")
    page.write("Far too long a text. " * 5)
    page.click("speak")
    page.wait(lambda: "text_too_long" in page.notice(), "told")
    page.wait(lambda: page.text_of("phase") == "Not spoken", "not said to be unspeakable")
    assert page.script("return document.activeElement.id") == "text", "ready to be shortened"
    assert page.script("return __playground.session().contexts.size") == 0
    page.write(TEXT[:50])
    page.click("speak")
    finish(page)


def test_the_first_error_stays_not_the_one_that_follows(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.script("document.querySelector('[name=voice][value=low]').value = 'gone'")
    page.choose_voice("gone")
    page.write(TEXT)
    page.click("speak")
    page.wait(lambda: page.phase() == "failed", "told")
    page.wait(lambda: gateway.messages("end"), "the end of a context that was never opened: a second error")
    page.script("return __playground.session().link.send(JSON.stringify({ type: 'ping', id: 'later' }))")
    page.wait(lambda: gateway.messages("ping"), "its answer has come")
    assert "voice_not_found" in page.notice()
    assert page.text_of("phase") == "Not spoken"


@pytest.mark.parametrize("warns", [True, False], ids=["warned", "older server"])
def test_text_without_a_sound_ends_and_says_so(page: PlaygroundPage, gateway: FakeGateway, warns: bool) -> None:
    gateway.warns = warns
    page.write("🙂🎉")
    page.click("speak")
    page.wait(lambda: page.phase() == "finished", "not speaking for ever")
    assert page.text_of("phase") == "Nothing in this text can be spoken."
    assert not page.driver.find_element("id", "left-out").is_displayed(), "said once"
    assert page.notice() == ""
    page.speak(SHORT)
    finish(page)


def test_what_was_left_out_is_a_quiet_note(page: PlaygroundPage) -> None:
    page.speak("Well 🎉 done 🙂")
    finish(page)
    assert page.text_of("left-out") == "Left out, since this voice cannot speak it: 🎉  🙂"
    assert page.text_of("phase").startswith("Finished")
    assert page.notice() == ""
    page.speak(TEXT)
    assert not page.driver.find_element("id", "left-out").is_displayed()


def test_an_idle_session_that_ends_is_replaced_without_a_word(page: PlaygroundPage, gateway: FakeGateway) -> None:
    for session in gateway.sessions.values():
        session.forgotten = True
    gateway.cut()
    page.wait(lambda: len(gateway.sessions) == 2 and page.connection() == "open", "a new session")
    assert page.notice() == ""
    page.speak(SHORT)
    finish(page)


def test_malformed_frames_are_reported_and_survived(page: PlaygroundPage) -> None:
    number = page.speak(f"[malformed] {TEXT}")
    page.wait(lambda: "protocol_error" in page.notice(), "told")
    finish(page)
    assert len(page.samples("played", number)) == (len(TEXT) + 12) * MS_PER_CHAR * 48


def test_an_underrun_is_counted_and_nothing_is_lost(page: PlaygroundPage) -> None:
    number = page.speak(f"[stall] {TEXT}")
    finish(page)
    num_underruns = int(page.text_of("m-underruns"))
    assert num_underruns == page.script("return __playground.session().player.underruns")
    assert num_underruns >= 1, "a machine that is busy with other tests may run dry more often"
    assert page.script("return __playground.session().player.targetMs") >= 80, "larger from then on"
    assert page.num_played(number) == (len(TEXT) + 8) * MS_PER_CHAR * 48
    page.script("Object.defineProperty(__playground.session().player, 'targetMs', { get: () => 120, set() {} })")
    page.speak(TEXT)
    page.wait(lambda: page.text_of("phase") == "Audio arrives late: buffering more", "told after many more")


def test_playback_is_acknowledged_as_it_is_heard(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.speak(TEXT)
    finish(page)
    page.wait(lambda: gateway.messages("playback")[-1]["played_ms"] == len(TEXT) * MS_PER_CHAR, "heard to the end")
    played = [message["played_ms"] for message in gateway.messages("playback")]
    assert played == sorted(played)
    assert len(set(played)) >= len(TEXT) * MS_PER_CHAR / 1000 * 2, "a few times a second"


def test_interrupting_a_writing_model_stops_its_writing(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.let_a_model_write(5)
    page.write(TEXT * 8)  # more than it writes before the key is pressed, on any machine
    page.click("speak")
    page.wait(lambda: len(gateway.messages("text")) >= 2, "the model writes")
    page.press_escape()
    page.wait(lambda: page.phase() == "interrupted", "interrupted")
    num_texts = len(gateway.messages("text"))
    audio_time = page.script("return __playground.audioTime()")
    page.wait(lambda: page.script("return __playground.audioTime()") > audio_time + 0.6, "some tokens later")
    assert len(gateway.messages("text")) == num_texts
    assert gateway.messages("end") == []


def test_voice_and_parameters_reach_the_server(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.script("document.querySelector('details').open = true")
    page.choose_voice("low")
    for element_id, value in (("steps", "8"), ("cfg", "1.5"), ("speed", "0.9"), ("seed", "7")):
        page.choose(element_id, value)
    page.speak(TEXT)
    [opening] = gateway.messages("text")
    assert (opening["voice"], opening["params"]) == ("low", {"steps": 8, "cfg": 1.5, "speed": 0.9, "seed": 7})


def test_a_server_that_comes_back_is_found_again(page: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.down = True
    gateway.cut()
    page.wait(lambda: page.connection() == "reconnecting", "noticed")
    gateway.down = False
    page.wait(lambda: page.connection() == "open", "found again")
    page.speak(SHORT)
    finish(page)
