"""Programs of the drawer "Use this in code": filled from the page, and run as they are pasted."""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_harness import GatewayHarness
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
TEXT = 'It\'s "half past nine", and the sun is out.\nGood morning.'
PLAYED = "window.ended = context.heardMs"


@pytest.fixture
def page(chromium: Chrome) -> Iterator[PlaygroundPage]:
    with GatewayHarness(worker={"patch_delay_s": 0.002}) as gateway:
        playground = PlaygroundPage(chromium, f"{gateway.url}/")
        chromium.execute_cdp_cmd(
            "Page.setBypassCSP", {"enabled": True}
        )  # the page's own policy allows no inline script
        playground.open()
        playground.write(TEXT)
        playground.choose("speed", "1.2")
        playground.choose("seed", "7")
        yield playground
        errors = playground.console_errors()
        playground.leave()
        chromium.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    assert errors == []


def program(page: PlaygroundPage, kind: str) -> str:
    page.script("document.querySelector(`[name=kind][value=${arguments[0]}]`).click()", kind)
    return str(page.script("return document.querySelector('#code-dialog pre').textContent"))


def seconds(path: Path) -> float:
    with wave.open(str(path)) as file:
        return len(file.readframes(1 << 30)) / 2 / file.getframerate()


@pytest.mark.slow
def test_programs_run_as_they_are_pasted(page: PlaygroundPage, tmp_path: Path) -> None:
    page.open_dialog("use-code")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
    lengths = []
    for kind, command in [("curl", ["bash"]), ("python", [sys.executable]), ("openai", [sys.executable])]:
        run = subprocess.run(
            [*command, "-c", program(page, kind)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, f"{kind}: {run.stderr}"
        lengths.append(seconds(tmp_path / "speech.wav"))
        (tmp_path / "speech.wav").unlink()
    assert lengths == pytest.approx([lengths[0]] * 3, abs=0.2)

    source = program(page, "javascript") + PLAYED
    page.script(
        "document.body.append(Object.assign(document.createElement('script'), arguments[0]))",
        {"type": "module", "textContent": source},
    )
    page.wait(lambda: page.script("return window.ended") is not None, "heard")
    assert page.script("return window.ended") / 1000 == pytest.approx(lengths[0], abs=0.2)


def test_a_program_is_copied_and_shows_no_key(page: PlaygroundPage) -> None:
    page.script("sessionStorage.setItem('realtime-tts.key', 'secret')")
    page.open()
    page.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    page.open_dialog("use-code")
    fits = "const pre = document.querySelector('#code-dialog pre'); return pre.scrollWidth <= pre.clientWidth"
    assert page.script(fits), "long lines are wrapped"
    kinds = page.script("return [...document.querySelectorAll('[name=kind]')].map((e) => e.value)")
    assert kinds == ["curl", "python", "javascript", "openai", "livekit", "pipecat"]
    programs = [program(page, kind) for kind in kinds]
    assert not [text for text in programs if "secret" in text]
    assert all("REALTIME_TTS_API_KEY" in text for text in programs if "RealtimeTTS.connect" not in text)
    page.script("document.querySelector('#code-dialog .copy').click()")
    page.wait(
        lambda: page.script("return document.querySelector('#code-dialog [role=status]').textContent") == "Copied",
        "told",
    )
    copied = "const done = arguments[0]; navigator.clipboard.readText().then(done)"
    assert page.driver.execute_async_script(copied) == programs[-1]  # type: ignore[no-untyped-call]
