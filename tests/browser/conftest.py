"""Headless Chromium, and the two things it can talk to: the scripted gateway, and a real one with the starter voice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import running_chromium
from fake_gateway import FakeGateway
from fake_microphone import microphone_recording
from playground_page import PlaygroundPage
from selenium import webdriver

from realtime_tts.bench.server_process import running_server

AUTOPLAY = "--autoplay-policy=no-user-gesture-required"
# A microphone that beeps once a second, and a browser that gives it to each page.
MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
# Sixty frames a second take more processor time than all else in these tests, which look at the page less often.
CALM = "--force-prefers-reduced-motion"
SPARSE_FRAMES = """
window.requestAnimationFrame = (show) => setTimeout(() => show(performance.now()), 100);
window.cancelAnimationFrame = clearTimeout;
"""


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with running_chromium(tmp_path_factory.mktemp("profile"), AUTOPLAY, CALM, *MICROPHONE) as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SPARSE_FRAMES})
        yield driver


@pytest.fixture(scope="session")
def listening_chromium(starter_voice_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Its microphone plays `microphone_recording` from when it is opened."""
    directory = tmp_path_factory.mktemp("microphone")
    recording = microphone_recording(directory / "recording.wav", starter_voice_url)
    # In a small window the buttons at the bottom cover what must be scrolled to.
    flags = (AUTOPLAY, *MICROPHONE, f"--use-file-for-fake-audio-capture={recording}", "--window-size=1280,960")
    with running_chromium(directory / "profile", *flags) as driver:
        yield driver


@pytest.fixture(scope="session")
def shared_gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def gateway(shared_gateway: FakeGateway) -> Iterator[FakeGateway]:
    """The scripted gateway, as new."""
    yield shared_gateway
    shared_gateway.reset()


@pytest.fixture
def page(chromium: webdriver.Chrome, gateway: FakeGateway) -> Iterator[PlaygroundPage]:
    """The playground, open and connected to the scripted gateway. Whatever it logs as an error fails the test."""
    playground = PlaygroundPage(chromium, gateway.url)
    playground.open()
    yield playground
    errors = playground.console_errors()
    playground.leave()
    assert errors == []


@pytest.fixture(scope="session")
def starter_voice_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`realtime-tts serve` with the starter voice, and no voices of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        with running_server() as server:
            yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture(params=["scripted", pytest.param("starter-voice", marks=pytest.mark.slow)])
def any_page(
    chromium: webdriver.Chrome, gateway: FakeGateway, request: pytest.FixtureRequest
) -> Iterator[PlaygroundPage]:
    """The playground of the scripted gateway, then of the real one with its real voice."""
    scripted = request.param == "scripted"
    playground = PlaygroundPage(chromium, gateway.url if scripted else request.getfixturevalue("starter_voice_url"))
    playground.open()
    yield playground
    errors = playground.console_errors()
    playground.leave()
    assert errors == []
