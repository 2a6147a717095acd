"""The page and a server that goes away and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_gateway import FakeGateway
from playground_page import PlaygroundPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    """A gateway that may be stopped; sockets of a restarted shared one would count as left open."""
    with FakeGateway() as fake:
        yield fake


def test_a_restarted_server_is_found_and_the_notice_goes(page: PlaygroundPage, gateway: FakeGateway) -> None:
    text = "This is cut off in mid-sentence by a restart of the server, and it goes on when that is over, " * 2
    page.speak(text)
    page.wait(lambda: page.heard_ms() > 100, "speaking")
    gateway.stop()
    page.wait(lambda: page.text_of("phase") == "Waiting for the server", "what had arrived is heard, then this is said")
    assert page.connection() == "reconnecting"
    gateway.start()
    page.wait(lambda: page.connection() == "open", "found again")
    page.wait(lambda: page.phase() == "finished", "what was being said goes on")
    assert page.notice() == ""
    [rest] = gateway.messages("text")[1:]
    assert text.endswith(rest["text"])
    assert len(rest["text"]) < len(text)
    page.speak("Hello again.")
    page.wait(lambda: page.phase() == "finished", "heard to the end")


def test_a_server_that_is_away_when_asked_is_waited_for(page: PlaygroundPage, gateway: FakeGateway) -> None:
    page.script("document.querySelector('details').open = true")
    gateway.stop()
    page.choose("codec", "pcm_s16le")  # a new session, and no server
    page.wait(lambda: "connection_lost" in page.notice(), "told")
    assert page.connection() == "reconnecting"
    gateway.start()
    page.wait(lambda: page.connection() == "open", "found")
    assert page.notice() == ""


def test_what_is_asked_for_while_the_server_is_away_is_spoken_later(page: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.down = True
    gateway.stop()
    gateway.start()
    page.wait(lambda: page.connection() == "reconnecting", "noticed")
    page.write("Better late than never.")
    page.click("speak")
    page.wait(lambda: page.text_of("phase") == "Waiting for the server", "told")
    page.press_escape()
    page.wait(lambda: page.text_of("phase") == "Stopped before it began", "stopped at once")
    page.click("speak")
    gateway.down = False
    page.wait(lambda: page.phase() == "finished", "heard to the end")
    assert page.notice() == ""
