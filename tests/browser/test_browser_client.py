"""The client module in a page that is not the playground."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fake_gateway import MS_PER_CHAR, PAGE, FakeGateway
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]

BLANK = b"<!doctype html><title>blank</title>"
CONNECT = (
    "const { RealtimeTTS } = await import('/realtime-tts.js'); const tts = await RealtimeTTS.connect('/v1/stream', %s);"
)


@pytest.fixture
def blank(chromium: Chrome, gateway: FakeGateway) -> Iterator[PlaygroundPage]:
    gateway.pages["/blank"] = BLANK
    page = PlaygroundPage(chromium, gateway.url)
    chromium.get(f"{gateway.url}blank")
    yield page
    page.leave()


def run(page: PlaygroundPage, code: str, options: str = "{}") -> object:
    """Evaluate an async body with `tts` connected; its return value, or its error's code."""
    body = f"(async () => {{ {CONNECT % options} {code} }})()"
    return page.driver.execute_async_script(
        f"const done = arguments[0]; {body}.then(done, (error) => done(error.code ?? String(error)));"
    )


def test_the_snippet_of_the_readme_works_as_pasted(blank: PlaygroundPage, gateway: FakeGateway) -> None:
    readme = (PAGE / "README.md").read_text(encoding="utf-8")
    for kind in ("html", "js"):
        snippet = re.findall(rf"```{kind}\n(.*?)```", readme, re.DOTALL)[0]
        gateway.pages[f"/hello.{kind}"] = snippet.encode()
    blank.driver.get(f"{gateway.url}hello.html")
    blank.wait(lambda: blank.script("return document.getElementById('speak').onclick !== null"), "connected")
    blank.click("speak")
    blank.wait(lambda: [m for m in gateway.messages("playback") if m["played_ms"] > 1000], "a second was heard")
    blank.click("stop")
    blank.wait(lambda: blank.text_of("heard"), "what was heard is shown")
    assert re.fullmatch(r"You heard: Hello there\..{5,60}", blank.text_of("heard"))
    assert len(gateway.messages("text")) == 12


def test_without_playback_the_samples_are_the_callers(blank: PlaygroundPage, gateway: FakeGateway) -> None:
    code = """
        let count = 0;
        const context = tts.speak('Take my samples.');
        context.addEventListener('audio', ({ detail }) => (count += detail.samples.length));
        await context.finished;
        return [count, (await context.done).audioMs, tts.player, tts.contexts.size];
    """
    assert run(blank, code, "{ playback: false }") == [16 * MS_PER_CHAR * 48, 16 * MS_PER_CHAR, None, 0]


def test_done_rejects_with_the_servers_error(blank: PlaygroundPage) -> None:
    code = "const context = tts.speak('[fail] This cannot end well, I fear.'); await context.done;"
    assert run(blank, code) == "engine_lost"


def test_cancel_tells_what_was_heard_by_the_acknowledged_time(blank: PlaygroundPage, gateway: FakeGateway) -> None:
    text = "One two three four five six seven eight nine ten, and no end of it in sight, none at all."
    code = """
        const context = tts.speak(words);
        while (context.heardMs < 900) await new Promise(requestAnimationFrame);
        const spoken = await context.cancel();
        await context.finished;
        return [spoken.playedMs, spoken.spokenText, context.state, tts.contexts.size];
    """
    played_ms, spoken_text, state, num_left = run(blank, f"const words = '{text}'; {code}")  # type: ignore[misc]
    assert 900 <= played_ms < len(text) * MS_PER_CHAR
    assert spoken_text == text[: round(played_ms / MS_PER_CHAR)]
    assert (state, num_left) == ("cancelled", 0)
    assert gateway.messages("playback")[-1]["played_ms"] == pytest.approx(played_ms)


def test_a_cancel_before_anything_came_back_plays_nothing(blank: PlaygroundPage) -> None:
    code = """
        const context = tts.speak('This is never heard.');
        const spoken = await context.cancel();
        await new Promise((resolve) => setTimeout(resolve, 300));
        return [spoken.playedMs, taps, tts.contexts.size];
    """
    options = "{ player: { tap: () => (globalThis.taps += 1) } }"
    blank.script("globalThis.taps = 0")
    assert run(blank, code, options) == [0, 0, 0]


def test_a_context_that_waits_its_turn_can_be_cancelled_alone(blank: PlaygroundPage) -> None:
    code = """
        const texts = ['First of all, and for a good long while.', 'Not this one.', 'Third.'];
        const [first, second, third] = texts.map((text) => tts.speak(text));
        await new Promise((resolve) => first.addEventListener('audio', resolve, { once: true }));
        const { spokenText } = await second.cancel();
        await Promise.all([first.finished, third.finished]);
        return [spokenText, played[first.track], played[second.track] ?? 0, played[third.track]];
    """
    blank.script("globalThis.played = {}")
    options = "{ player: { tap: ({ number, samples }) => (played[number] = (played[number] ?? 0) + samples.length) } }"
    assert run(blank, code, options) == ["", 40 * MS_PER_CHAR * 48, 0, 6 * MS_PER_CHAR * 48]


def test_no_server_is_a_typed_error(blank: PlaygroundPage, gateway: FakeGateway) -> None:
    gateway.down = True
    assert run(blank, "") == "connection_lost"


def test_closing_fails_what_is_open_and_lets_go_of_the_socket(blank: PlaygroundPage, gateway: FakeGateway) -> None:
    code = """
        const context = tts.speak('This is cut by closing the session, in the middle.');
        await new Promise((resolve) => setTimeout(resolve, 200));
        await tts.close();
        return [tts.state, await context.done.catch((error) => error.code), tts.player.context.state];
    """
    assert run(blank, code) == ["closed", "connection_lost", "closed"]
