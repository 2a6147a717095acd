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


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with running_chromium(tmp_path_factory.mktemp("profile"), AUTOPLAY) as driver:
        yield driver


@pytest.fixture(scope="session")
def listening_chromium(starter_voice_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Its microphone plays `microphone_recording` from when it is opened."""
    directory = tmp_path_factory.mktemp("microphone")
    recording = microphone_recording(directory / "recording.wav", starter_voice_url)
    microphone = (
        AUTOPLAY,
        "--window-size=1280,960",  # on a small one the buttons at the bottom cover what must be scrolled to
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}",
    )
    with running_chromium(directory / "profile", *microphone) as driver:
        yield driver


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


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
    chromium: webdriver.Chrome, starter_voice_url: str, gateway: FakeGateway, request: pytest.FixtureRequest
) -> Iterator[PlaygroundPage]:
    """The playground of the scripted gateway, then of the real one with its real voice."""
    playground = PlaygroundPage(chromium, gateway.url if request.param == "scripted" else starter_voice_url)
    playground.open()
    yield playground
    errors = playground.console_errors()
    playground.leave()
    assert errors == []
