"""Voices on the page: chosen from tiles, heard, pinned; made of a recording, renamed, deleted on a real server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gateway import VOICES, FakeGateway
from gateway_harness import GatewayHarness
from playground_page import PlaygroundPage
from quick_recordings import decodings
from realtime_tts_client import synthesize
from selenium.webdriver import Chrome, Keys

__all__ = ["decodings"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

TEXT = "A short one."
HEARD = "return document.querySelector('[data-heard=now]')?.dataset.voice"
SPOKEN = "When the sunlight strikes raindrops in the air, they act as a prism and form a rainbow."


def is_open(page: PlaygroundPage, dialog: str) -> bool:
    return bool(page.script("return document.getElementById(arguments[0]).open", dialog))


def tile_button(page: PlaygroundPage, voice: str, button: str) -> None:
    page.script("document.querySelector(`.tile[data-voice='${arguments[0]}'] .${arguments[1]}`).click()", voice, button)


def opened(gateway: FakeGateway) -> list[str]:
    """The voices of the contexts so far."""
    return [message["voice"] for message in gateway.messages("text") if "voice" in message]


# ---- with the scripted gateway ---------------------------------------------------------------------------------------


def test_the_default_voice_is_chosen_and_another_one_is_an_arrow_away(
    page: PlaygroundPage, gateway: FakeGateway
) -> None:
    assert page.voices() == {voice["id"]: voice["name"].capitalize() for voice in VOICES}
    assert page.chosen_voice() == "high"
    page.script("document.querySelector('[name=voice]:checked').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert page.chosen_voice() == "low"
    page.speak(TEXT)
    assert opened(gateway) == ["low"]


SHOWN = "return [...document.querySelectorAll('.tile:not([hidden])')].map((tile) => tile.dataset.voice)"


def test_many_voices_can_be_searched(page: PlaygroundPage, gateway: FakeGateway) -> None:
    search = page.driver.find_element("css selector", "#find-voice input")
    assert not search.is_displayed()
    traits = ["warm woman", "warm man", "bright woman", "calm man", "old man", "young woman"]
    gateway.more_voices = [
        {"id": f"v{number}", "name": f"v{number}", "description": f"US English, {about}", "language": "en"}
        for number, about in enumerate(traits)
    ]
    page.open()
    search = page.driver.find_element("css selector", "#find-voice input")
    assert len(page.script(SHOWN)) == 8
    search.send_keys("WOMAN us")
    assert page.script(SHOWN) == ["v0", "v2", "v5"]
    assert page.script("return document.querySelector('#find-voice output').value") == "3 of 8"
    assert page.chosen_voice() == "high", "though it is not among them"
    search.send_keys(" nothing like it")
    assert page.script(SHOWN) == []
    search.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    assert len(page.script(SHOWN)) == 8


COUNT_FRAMES = """
const [ask, cancel] = [window.requestAnimationFrame, window.cancelAnimationFrame];
const asked = new Set();
window.__mostAsked = 0;
window.requestAnimationFrame = (show) => {
  const id = ask((time) => (asked.delete(id), show(time)));
  asked.add(id);
  window.__mostAsked = Math.max(window.__mostAsked, asked.size);
  return id;
};
window.cancelAnimationFrame = (id) => (asked.delete(id), cancel(id));
"""


PINNED = """
const words = (tile) => [...tile.querySelectorAll('span')].map((e) => e.textContent).join(' ');
return [...document.querySelectorAll('#pair:not([hidden]) button')].map(
  (tile) => words(tile) + (tile.ariaPressed === 'true' ? ', heard' : ''));
"""


KEEP_PHASES = """
window.__phases = [];
const [phase, position] = ['phase', 'position'].map((id) => document.getElementById(id));
const keep = () => __phases.push([phase.textContent, Number(position.value)]);
new MutationObserver(keep).observe(phase, { childList: true });
"""


def press_pinned(page: PlaygroundPage, slot: str) -> None:
    page.driver.find_elements("css selector", "#pair button")["AB".index(slot)].click()


def wait_for_phase(page: PlaygroundPage, words: str) -> int:
    """Wait for a phase since the last one waited for, however short; return the playback position in which it began."""
    begun: list[int] = []

    def is_there() -> bool:
        phases = page.script("return __phases")
        found = [number for number, (told, _) in enumerate(phases) if told.startswith(words)]
        if found:
            begun.append(phases[found[0]][1])
            page.script("__phases.splice(0, arguments[0] + 1)", found[0])
        return bool(found)

    page.wait(is_there, words)
    return begun[0]


def test_two_voices_are_pinned_and_a_press_or_a_key_switches_between_them(
    page: PlaygroundPage, gateway: FakeGateway
) -> None:
    text = TEXT + " Another one that is a little longer."
    page.script(COUNT_FRAMES)
    page.script(KEEP_PHASES)
    assert page.script(PINNED) == []
    page.click("compare")
    assert page.script(PINNED) == ["A High", "B Low, heard"], "another one may be chosen for B"
    page.speak(text)
    wait_for_phase(page, "Speaking: Low")
    wait_for_phase(page, "Finished")
    press_pinned(page, "A")
    wait_for_phase(page, "Speaking: High")
    assert page.script(PINNED) == ["A High, heard", "B Low"]
    wait_for_phase(page, "Finished")
    assert opened(gateway) == ["low", "high"]
    first, second = gateway.messages("text")
    assert (first["text"], second["text"], second["params"]["seed"]) == (text, text, 1), "the seed that was used"
    assert page.script("return __mostAsked") == 1, "progress is shown once a frame"

    page.choose("position", "900")
    wait_for_phase(page, "Ready to replay from here")
    page.press_control_and("b")
    assert wait_for_phase(page, "Replaying: Low") == 800, "from the same word, in steps of 100 ms"
    wait_for_phase(page, "Replayed to the end")
    page.press_control_and("b")
    assert wait_for_phase(page, "Replaying: High") == 0, "from its beginning"
    assert page.chosen_voice() == "high"
    assert len(opened(gateway)) == 2, "what was made once is replayed"

    page.write("Something else.")
    press_pinned(page, "B")
    wait_for_phase(page, "Speaking: Low")
    page.wait(lambda: len(opened(gateway)) == 3, "another text is spoken")
    assert gateway.messages("text")[-1].get("params", {}).get("seed") is None, "with a seed of its own"
    wait_for_phase(page, "Finished")

    page.click("compare")
    assert page.script(PINNED) == []
    assert page.chosen_voice() == "low"
    page.press_control_and("b")
    assert page.chosen_voice() == "low", "nothing is pinned"


def test_a_third_voice_takes_the_place_of_the_pinned_one_that_is_heard(
    page: PlaygroundPage, gateway: FakeGateway
) -> None:
    gateway.more_voices = [{"id": "third", "name": "third", "description": "", "language": "en"}]
    page.open()
    page.click("compare")
    page.choose_voice("third")
    assert page.script(PINNED) == ["A High", "B Third, heard"]
    page.choose_voice("high")
    assert page.script(PINNED) == ["A High, heard", "B Third"], "as if its tile had been pressed"
    page.choose_voice("low")
    assert page.script(PINNED) == ["A Low, heard", "B Third"]
    page.script("document.querySelector('[name=source][value=talk]').click()")
    assert not page.driver.find_element("id", "pair").is_displayed(), "a talk has one voice"
    assert opened(gateway) == [], "choosing is silent"


HOLD_BACK_PREVIEWS = """
const { fetch } = window;
const arrival = new Promise((resolve) => (window.__letThemArrive = resolve));
window.fetch = async (...asked) => {
  const answer = await fetch(...asked);
  if (`${asked[0]}`.endsWith('/preview')) await arrival;
  return answer;
};
window.__heard = [];
const keep = ({ target }) => __heard.push(`${target.dataset.voice} ${target.dataset.heard}`);
const marks = { subtree: true, attributeFilter: ['data-heard'] };
new MutationObserver((changes) => changes.forEach(keep)).observe(document.getElementById('voices'), marks);
"""
WAITING = "return [...document.querySelectorAll('[data-heard=waiting]')].map((tile) => tile.dataset.voice)"


def test_a_preview_that_is_on_its_way_is_stopped_by_what_stops_speech(page: PlaygroundPage) -> None:
    page.script(HOLD_BACK_PREVIEWS)
    for stop in (
        page.press_escape,
        lambda: tile_button(page, "high", "hear"),
        lambda: page.speak(TEXT),
        lambda: page.open_dialog("new-voice"),
    ):
        tile_button(page, "high", "hear")
        assert page.script(WAITING) == ["high"]
        stop()
        assert page.script(WAITING) == []
    page.press_escape()
    tile_button(page, "low", "hear")
    page.script("__letThemArrive()")
    page.wait(lambda: page.script(HEARD) == "low", "the one that was not stopped")
    assert "high now" not in page.script("return __heard"), "none of those that were stopped is heard"
    tile_button(page, "low", "hear")
    page.wait(lambda: page.script(HEARD) is None, "stopped")


def test_an_older_server_is_not_asked_to_make_voices(chromium: Chrome, gateway: FakeGateway) -> None:
    gateway.makes_voices = False
    page = PlaygroundPage(chromium, gateway.url)
    page.open()
    assert not page.driver.find_element("id", "new-voice").is_displayed()
    page.leave()


def test_what_is_missing_is_said_before_anything_is_sent(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.open_dialog("new-voice")
    fault = lambda: page.text_of("voice-fault")  # noqa: E731
    for wanted, element_id, entered in [
        ("Record a few seconds", "", ""),
        ("Describe the voice", "instructions", "An old man, slow and warm"),
        ("Give the voice a name", "voice-name", "Grandpa"),
    ]:
        page.click("make-voice")
        page.wait(lambda wanted=wanted: wanted in fault(), "told")  # type: ignore[misc]
        page.script("document.querySelector('[name=made-of][value=describe]').click()")
        if element_id:
            page.driver.find_element("id", element_id).send_keys(entered)
    assert not page.driver.find_element("id", "consent").is_displayed(), "no person is cloned"
    page.script("document.querySelector('[name=made-of][value=record]').click()")
    assert page.driver.find_element("id", "consent-by").is_displayed(), "this server wants to know"
    page.script("document.querySelector('[name=made-of][value=describe]').click()")
    page.driver.find_element("id", "instructions").clear()
    page.click("make-voice")
    place = "return document.getElementById('instructions').closest('.field').nextElementSibling.id"
    assert page.script(place) == "voice-fault", "told at its field"
    page.press_escape()
    page.wait(lambda: not is_open(page, "voice-dialog"), "closed")
    assert [path for path in gateway.requests if path.startswith("/v1/voices/")] == []


HOLD_BACK_THE_VOICE = """
const { fetch } = window;
const arrival = new Promise((resolve) => (window.__letItFail = resolve));
window.fetch = async (...asked) => {
  if (asked[1]?.method !== 'POST') return fetch(...asked);
  await arrival;
  return Response.json({ code: 'voice_exists', message: 'there is one' }, { status: 409 });
};
"""


def test_a_dialog_that_is_closed_while_its_voice_is_made_opens_as_it_was(page: PlaygroundPage, tmp_path: Path) -> None:
    (tmp_path / "me.wav").write_bytes(bytes(1000))
    page.script(HOLD_BACK_THE_VOICE)
    page.open_dialog("new-voice")
    page.script("document.querySelector('[name=made-of][value=file]').click()")
    for element_id, entered in (("file", str(tmp_path / "me.wav")), ("voice-name", "Me"), ("consent-by", "I")):
        page.driver.find_element("id", element_id).send_keys(entered)
    page.driver.find_element("id", "consent-scope").send_keys("tests")
    page.click("consent")
    page.click("make-voice")
    page.wait(lambda: "Making" in page.text_of("make-voice"), "sent")
    page.press_escape()
    page.wait(lambda: not is_open(page, "voice-dialog"), "closed")
    page.open_dialog("new-voice")
    name = "return document.getElementById('voice-name').value"
    assert (page.script(name), page.text_of("make-voice")) == ("Me", "Making the voice …")
    page.script("__letItFail()")
    page.wait(lambda: "has this name" in page.text_of("voice-fault"), "told")
    page.driver.find_element("id", "voice-name").send_keys("self")
    page.click("make-voice")
    page.wait(lambda: "has this name" in page.text_of("voice-fault"), "the recording was kept, and sent again")


FIND_NO_VOICE_TO_DELETE = """
const { fetch } = window;
const gone = () => Response.json({ code: 'voice_not_found', message: 'unknown voice' }, { status: 404 });
window.fetch = async (...asked) => (asked[1]?.method === 'DELETE' ? gone() : fetch(...asked));
"""


def test_a_voice_that_was_deleted_in_another_tab_goes(page: PlaygroundPage, gateway: FakeGateway) -> None:
    mine = {"id": "mine", "name": "Mine", "kind": "cloned", "description": "", "language": "en"}
    gateway.more_voices = [mine]
    page.open()
    page.choose_voice("mine")
    gateway.more_voices = []
    page.write(TEXT)
    page.click("speak")
    page.wait(lambda: "voice_not_found" in page.notice(), "told")
    page.wait(lambda: "mine" not in page.voices(), "it cannot be chosen again")
    assert page.chosen_voice() == "high"

    gateway.more_voices = [mine]
    page.open()
    page.script(FIND_NO_VOICE_TO_DELETE)
    tile_button(page, "mine", "edit")
    gateway.more_voices = []
    page.script("const b = document.querySelector('#edit-dialog .interrupt'); b.click(); b.click()")
    page.wait(lambda: page.text_of("voice-note") == "Mine was deleted.", "it is gone, as was wanted")
    assert "mine" not in page.voices()


# ---- with a gateway whose worker is a fake one ----------------------------------------------------------------------


def test_a_voice_of_the_page_outlives_a_restart_and_deleted_leaves_nothing(
    chromium: Chrome, decodings: list[int], tmp_path: Path
) -> None:
    kept, asked, sent = tmp_path / "voices", tmp_path / "asked", tmp_path / "me.wav"
    with wave.open(str(sent), "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", ""))
        file.writeframes((3000 * np.sin(np.arange(96_000) / 50)).astype("<i2").tobytes())
    options: dict[str, Any] = {"voices_dir": str(kept), "worker": {"patch_delay_s": 0.002, "asked": asked}}

    def speak(page: PlaygroundPage, voice: str) -> None:
        page.choose_voice(voice)
        page.speak(TEXT)
        page.wait(lambda: page.phase() == "finished", "heard to the end")
        requests = [json.loads(line) for line in asked.read_text(encoding="utf-8").splitlines()]
        assert [frame["voice"] for frame in requests if frame["type"] == "generate"][-1] == voice

    def told(gateway: GatewayHarness, voice: str) -> Any:
        with urllib.request.urlopen(f"{gateway.url}/v1/voices/{voice}") as answer:
            return json.load(answer)

    with GatewayHarness(**options) as gateway:
        page = PlaygroundPage(chromium, f"{gateway.url}/")
        page.open()
        default = page.chosen_voice()
        page.open_dialog("new-voice")
        page.script("document.querySelector('[name=made-of][value=file]').click()")
        page.driver.find_element("id", "file").send_keys(str(sent))
        voice = make_voice(page, "Me")
        of_voice = told(gateway, voice)
        assert (of_voice["name"], of_voice["kind"], of_voice["consent"]["given_by"]) == ("Me", "cloned", "the caller")
        speak(page, voice)
        tile_button(page, voice, "hear")
        page.wait(lambda: page.script(HEARD) == voice, "its preview is heard")
        tile_button(page, voice, "hear")
        page.wait(lambda: page.script(HEARD) is None, "stopped")
        page.leave()
    assert decodings == [sent.stat().st_size]
    assert [path for path in kept.rglob("*") if voice in path.name or path.parent.name == "latents"]

    with GatewayHarness(**options) as gateway:
        page = PlaygroundPage(chromium, f"{gateway.url}/")
        page.open()
        assert page.voices()[voice] == "Me"
        speak(page, voice)
        focused = "const e = document.activeElement; return [e.closest('.tile')?.dataset.voice, e.className]"
        tile_button(page, voice, "edit")
        page.script("document.getElementById('edit-name').value = ''")
        page.driver.find_element("id", "edit-name").send_keys("Myself", Keys.ENTER)
        page.wait(lambda: page.text_of("voice-note") == "Renamed to Myself.", "the new name is shown")
        page.wait(lambda: page.script(focused) == [voice, "edit"], "the focus is where it was")
        assert told(gateway, voice)["name"] == "Myself"
        tile_button(page, voice, "edit")
        assert "Consent by the caller" in page.script(
            "return document.querySelector('#edit-dialog .small').textContent"
        )
        place = "return JSON.stringify(document.querySelector('#edit-dialog [type=submit]').getBoundingClientRect())"
        before = page.script(place)
        page.script("document.querySelector('#edit-dialog .interrupt').click()")
        assert page.script(place) == before, "no button moves"
        assert voice in page.voices(), "asked whether it is meant"
        page.script("document.querySelector('#edit-dialog .interrupt').click()")
        page.wait(lambda: voice not in page.voices(), "deleted")
        assert page.text_of("voice-note") == "Myself was deleted."
        assert page.chosen_voice() == default
        with pytest.raises(urllib.error.HTTPError, match="404"):
            told(gateway, voice)
        page.wait(lambda: page.script(focused)[0] == page.chosen_voice(), "the focus is at the chosen voice")
        forgotten = f'"voice_id": "{voice}", "type": "remove_voice"'
        page.wait(lambda: forgotten in asked.read_text(encoding="utf-8"), "the worker has let go of it")
        errors = page.console_errors()
        page.leave()
    assert errors == []
    left = [path for path in kept.rglob("*") if path.is_file()]
    # "in-use" and "reserve" name no voice: the directory's lock, and room on a full disk
    assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in left} <= {
        "voices.sqlite3",
        "in-use",
        "reserve",
    }
    assert voice.encode() not in b"".join(path.read_bytes() for path in left)


# ---- with a real server ----------------------------------------------------------------------------------------------


@pytest.fixture
def real_page(listening_chromium: Chrome, starter_voice_url: str) -> Iterator[PlaygroundPage]:
    playground = PlaygroundPage(listening_chromium, starter_voice_url)
    playground.open()
    yield playground
    errors = playground.console_errors()
    playground.leave()
    assert errors == []


@pytest.fixture
def ask(starter_voice_url: str) -> Callable[[str], Any]:
    def get(path: str) -> Any:
        with urllib.request.urlopen(starter_voice_url + path) as answer:
            return json.load(answer)

    return get


def recording(path: Path, url: str, voice: str) -> Path:
    speech, _ = synthesize(url.replace("http", "ws", 1), SPOKEN, voice=voice, sample_rate=24_000)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes((np.asarray(speech).clip(-1, 1) * 32767).astype("<i2").tobytes())
    return path


def make_voice(page: PlaygroundPage, name: str) -> str:
    """Enter the rest and send it; the id of the new voice once the page has it."""
    before = set(page.voices())
    page.driver.find_element("id", "voice-name").send_keys(name)
    page.click("consent")
    page.click("make-voice")
    page.wait(lambda: set(page.voices()) != before or page.text_of("voice-fault"), "an answer", 60)
    assert page.text_of("voice-fault") == ""
    page.wait(lambda: page.text_of("voice-note").startswith(f"{name} is ready."), "told")
    assert not is_open(page, "voice-dialog")
    [voice] = set(page.voices()) - before
    assert page.chosen_voice() == voice
    return voice


@pytest.mark.slow
def test_a_voice_of_a_file_is_heard_renamed_and_deleted(
    real_page: PlaygroundPage, starter_voice_url: str, ask: Callable[[str], Any], tmp_path: Path
) -> None:
    page = real_page
    default, *_, speaker = page.voices()
    assert page.chosen_voice() == default
    page.open_dialog("new-voice")
    page.script("document.querySelector('[name=made-of][value=file]').click()")
    page.driver.find_element("id", "file").send_keys(str(recording(tmp_path / "me.wav", starter_voice_url, speaker)))
    voice = make_voice(page, "Me")
    told = ask(f"v1/voices/{voice}")
    assert (told["name"], told["kind"], told["consent"]["given_by"]) == ("Me", "cloned", "the caller")

    page.speak("It is me.")
    page.wait(lambda: page.phase() == "finished", "spoken with", 60)
    assert page.last()["heardMs"] > 300

    tile_button(page, voice, "hear")
    page.wait(lambda: page.script(HEARD) == voice, "its preview is heard", 60)
    tile_button(page, voice, "hear")
    page.wait(lambda: page.script(HEARD) is None, "stopped")

    tile_button(page, voice, "edit")
    page.wait(lambda: is_open(page, "edit-dialog"), "asked")
    assert "Consent by the caller" in page.script("return document.querySelector('#edit-dialog .small').textContent")
    page.script("document.getElementById('edit-name').value = ''")
    page.driver.find_element("id", "edit-name").send_keys("Myself", Keys.ENTER)
    page.wait(lambda: page.voices().get(voice) == "Myself", "renamed")
    assert ask(f"v1/voices/{voice}")["name"] == "Myself"

    tile_button(page, voice, "edit")
    delete = "document.querySelector('#edit-dialog .interrupt').click()"
    page.script(delete)
    assert voice in page.voices(), "asked whether it is meant"
    page.script(delete)
    page.wait(lambda: voice not in page.voices(), "deleted")
    assert page.chosen_voice() == default
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(f"v1/voices/{voice}")


@pytest.mark.slow
def test_a_voice_is_recorded_in_the_page(real_page: PlaygroundPage, ask: Callable[[str], Any]) -> None:
    page = real_page
    page.open_dialog("new-voice")
    page.script(
        "const media = navigator.mediaDevices; const open = media.getUserMedia.bind(media);"
        "media.getUserMedia = async (wanted) => (window.__wanted = wanted, window.__stream = await open(wanted));"
    )
    page.click("record")
    page.wait(lambda: page.text_of("recorded").startswith("8."), "the microphone has played its sentence", 40)
    assert page.script("return __wanted.audio") == dict.fromkeys(
        ("autoGainControl", "echoCancellation", "noiseSuppression"), False
    ), "as it sounds in the room"
    page.click("record")
    page.wait(lambda: page.driver.find_element("id", "listen-back").is_enabled(), "there is something to listen to")
    assert page.script("return __stream.getAudioTracks()[0].readyState") == "ended", "the microphone is free"
    read = page.script("return document.getElementById('sentence').textContent")
    assert page.script("return document.getElementById('said').value") == read, "what was read aloud"
    page.click("listen-back")
    page.wait(lambda: page.text_of("listen-back") == "Stop", "it is played")
    voice = make_voice(page, "Recorded")
    assert ask(f"v1/voices/{voice}")["kind"] == "cloned"
    tile_button(page, voice, "edit")
    page.script("const b = document.querySelector('#edit-dialog .interrupt'); b.click(); b.click()")
    page.wait(lambda: voice not in page.voices(), "deleted")
