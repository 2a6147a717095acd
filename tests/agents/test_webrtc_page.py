"""The page of the WebRTC bot in headless Chromium, with a microphone that plays a recording."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import wave
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from chromium import running_chromium
from realtime_tts_client import synthesize
from selenium import webdriver
from selenium.common.exceptions import JavascriptException
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from conversation import History
from ports import free_port
from webrtc_bot import Bot

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MICROPHONE_HZ = 48_000
QUIET_S = 5.0  # before the caller speaks
LONG = (
    "I could go on about this for a very long time, and so I shall, as nobody has asked me to stop yet. There is the "
    "matter of the lamp, and then there is the matter of the door, and after that a third one, which is the longest."
)
FLAGS = (
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--allow-loopback-in-peer-connection",
)


@pytest.fixture(scope="module")
def recording(speech_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Silence, then a sentence, then silence for longer than a test takes."""
    speech, _ = synthesize(speech_url, "Please stop now.", sample_rate=MICROPHONE_HZ)
    quiet = np.zeros(int(QUIET_S * MICROPHONE_HZ), np.float32)
    samples = np.concatenate([quiet, 0.7 * speech / np.max(np.abs(speech)), *[quiet] * 6])
    path = tmp_path_factory.mktemp("microphone") / "caller.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(MICROPHONE_HZ)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def chromium(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    microphone = f"--use-file-for-fake-audio-capture={recording}"
    profile = tmp_path_factory.mktemp("profile")
    with running_chromium(profile, *FLAGS, microphone, without=("WebRtcHideLocalIpsWithMdns",)) as driver:
        yield driver


class RunningBot:
    """The bot in a thread of its own, on loopback alone."""

    def __init__(self, tts_url: str, **options: Any) -> None:
        self.port = free_port()
        origins = [f"http://lan.test:{self.port}"]
        self._bot = Bot(tts_url, answer=self._answer, allowed_origins=origins, **options)
        self._ready = threading.Event()

    async def _answer(self, history: History) -> AsyncIterator[str]:
        text = "As you say." if any(line["role"] == "user" for line in history) else LONG
        for word in text.split(" "):
            yield word + " "

    def __enter__(self) -> RunningBot:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(20)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(self._bot.application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self._ready.set()
        await self._stopping.wait()
        await runner.cleanup()

    @property
    def history(self) -> History:
        calls = list(self._bot.calls)
        return list(calls[0].history) if calls else []


class BotPage:
    def __init__(self, driver: webdriver.Chrome, bot: RunningBot) -> None:
        self.driver, self.bot = driver, bot

    def open(self, host: str = "127.0.0.1") -> None:
        self.driver.get_log("browser")  # of the page before
        self.driver.get(f"http://{host}:{self.bot.port}/?test=1")

    def call(self) -> None:
        self.open()
        self.script(
            "window.states = []; const state = document.getElementById('state');"
            "new MutationObserver(() => states.push(state.dataset.state)).observe(state, { attributes: true })"
        )
        self.click("call")
        self.wait(lambda: self.script("return document.getElementById('call').dataset.calling === ''"), "in a call")

    def click(self, element_id: str) -> None:
        self.driver.find_element("id", element_id).click()

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)  # type: ignore[no-untyped-call]

    def texts(self, selector: str) -> list[str]:
        return list(self.script(f"return [...document.querySelectorAll('{selector}')].map((e) => e.textContent)"))

    def state(self) -> str:
        return str(self.script("return document.getElementById('state').dataset.state"))

    def notice(self) -> str:
        return str(self.script("const n = document.getElementById('notice'); return n.hidden ? '' : n.textContent"))

    def bot_level(self) -> float:
        """Level of the audio that arrives, whether or not it is played."""
        return float(self.script("return __call.arrivingLevel"))

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except JavascriptException:
                pass
            time.sleep(0.02)
        raise AssertionError(f"not in time: {what}; the page is {self.state()!r} and says {self.notice()!r}")


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """aioice leaves this address out, and takes all others."""
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest.fixture
def page(chromium: webdriver.Chrome, fake_gateway: str) -> Iterator[BotPage]:
    with RunningBot(fake_gateway) as bot:
        shown = BotPage(chromium, bot)
        yield shown
        logged = [e["message"] for e in chromium.get_log("browser") if e["level"] == "SEVERE"]
        chromium.get("about:blank")
    assert [message for message in logged if "status of 503" not in message] == []


def test_speaking_interrupts_and_what_was_not_heard_is_crossed_out(page: BotPage) -> None:
    page.call()
    page.wait(lambda: page.state() == "speaking" and page.bot_level() > 0.01, "the bot is heard")
    page.wait(lambda: page.state() == "hearing", "the caller speaks")
    page.wait(lambda: page.texts(".bot s"), "interrupted")
    heard, unheard = " ".join(page.texts(".bot > .heard")), page.texts(".bot s")[0]
    assert len(heard.split()) > 3
    assert LONG.startswith(f"{heard} {unheard}")
    page.wait(lambda: "As you say." in page.texts(".bot"), "and it is answered")
    page.wait(lambda: page.bot.history[-1]["content"] == "As you say. ", "which is heard to its end")
    assert [line["role"] for line in page.bot.history[:2]] == ["assistant", "user"]
    assert page.bot.history[0]["content"].strip() == heard
    assert page.texts(".you")[0] == "(speech)"


def test_the_button_interrupts_and_the_microphone_can_be_muted(page: BotPage) -> None:
    page.call()
    assert page.script("return window.states") == ["microphone", "connecting", "listening"]
    page.click("mute")
    page.wait(lambda: len(page.texts(".bot .heard")) >= 3, "three words are heard")
    page.click("interrupt")
    assert page.script("return __call.speaker.muted || __call.silentUntil === null"), "at once, before the bot knows"
    page.wait(lambda: page.texts(".bot s"), "interrupted")
    heard = " ".join(page.texts(".bot > .heard"))
    assert [line["content"].strip() for line in page.bot.history] == [heard]
    page.wait(lambda: not page.script("return __call.speaker.muted"), "the rest of the stream is silence")
    rtp = page.script("return __call.playedRtp")
    page.wait(lambda: page.script(f"return __call.playedRtp - {rtp} > 48000 || __call.playedRtp < {rtp}"), "a second")
    assert page.bot_level() < 0.001
    assert page.state() == "listening", "a muted microphone records no speech"
    assert page.script("return document.getElementById('interrupt').disabled")
    page.click("call")
    page.wait(lambda: page.state() == "idle" and not page.bot.history, "hung up")


@pytest.mark.parametrize(
    ("error", "words"),
    [("NotAllowedError", "refused"), ("NotFoundError", "no microphone"), ("NotReadableError", "open")],
)
def test_without_a_microphone_the_caller_is_told_why(page: BotPage, error: str, words: str) -> None:
    page.open()
    page.script(
        "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', " + repr(error) + "));"
    )
    page.click("call")
    page.wait(lambda: words in page.notice(), "told")
    assert page.state() == "failed"
    page.click("dismiss")
    assert page.notice() == ""


def test_a_page_that_gets_no_microphone_by_its_address_says_so(page: BotPage) -> None:
    page.open("lan.test")
    page.click("call")
    page.wait(lambda: "https" in page.notice(), "told")


def test_a_bot_that_cannot_speak_or_is_gone_is_told(chromium: webdriver.Chrome, fake_gateway: str) -> None:
    with RunningBot("ws://127.0.0.1:9") as bot:
        page = BotPage(chromium, bot)
        page.open()
        page.click("call")
        page.wait(lambda: "speech server" in page.notice(), "told")
    with RunningBot(fake_gateway) as bot:
        page = BotPage(chromium, bot)
        page.call()
        bot.stop()
        page.wait(lambda: "lost" in page.notice(), "told")
        assert page.state() == "failed"
    chromium.get("about:blank")
