"""The playground as a test sees it: what a visitor can do, and what the page's test hook tells (`?test=1`)."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from selenium.common.exceptions import JavascriptException
from selenium.webdriver import ActionChains, Chrome, Keys


class PlaygroundPage:
    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    # ---- what a visitor does

    def open(self) -> None:
        self.visit()
        self.wait(lambda: self.connection() == "open", "the page is connected")

    def visit(self) -> None:
        """Open the page, whether or not it will connect."""
        self.driver.get_log("browser")  # of the page before
        self._clear("localStorage")
        self.driver.get(f"{self.url}?test=1")
        self.wait(lambda: self.script("return window.__playground !== undefined"), "the page is ready")

    def leave(self) -> None:
        self._clear("localStorage", "sessionStorage")

    def _clear(self, *storages: str) -> None:
        """Be at a picture of the same origin: the page before has ended, and what it stored as it ended goes."""
        if self.driver.current_url != f"{self.url}icon.svg":
            self.driver.get(f"{self.url}icon.svg")
        for storage in storages:
            self.script(f"{storage}.clear()")

    def write(self, text: str) -> None:
        self.script("document.getElementById('text').value = arguments[0]", text)

    def choose(self, element_id: str, value: str) -> None:
        """A select's or slider's value, as a visitor's change (with its events)."""
        self.script(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'));",
            element_id,
            value,
        )

    def choose_voice(self, voice: str) -> None:
        self.script("document.querySelector(`[name=voice][value='${arguments[0]}']`).click()", voice)

    def let_a_model_write(self, tokens_per_s: int) -> None:
        self.script("document.querySelector('[name=source][value=llm]').click()")
        self.choose("rate", str(tokens_per_s))

    def begin_speech_with(self, mode: str) -> None:
        """The first words (``live``) or whole clauses (``clause``) of a text that a model writes."""
        self.script("document.querySelector(`[name=mode][value=${arguments[0]}]`).click()", mode)

    def speak(self, text: str) -> int:
        """Write and press Speak, or its keys where the button stops; returns the context's number once it has one."""
        before = self.last()
        self.write(text)
        if self.phase() in ("speaking", "replaying"):
            self.press_control_and(Keys.ENTER)
        else:
            self.click("speak")
        self.wait(lambda: self._is_new(before), "the context was started")
        return int(self.last()["number"])

    def click(self, element_id: str) -> None:
        # On a small screen the buttons at the bottom lie over what is not scrolled to.
        self.script("document.getElementById(arguments[0]).scrollIntoView({ block: 'center' })", element_id)
        self.driver.find_element("id", element_id).click()

    def open_dialog(self, element_id: str) -> None:
        """Press a button and wait for its dialog, whose module is loaded first."""
        self.click(element_id)
        self.wait(lambda: self.script("return document.querySelector('dialog[open]') !== null"), "the dialog is open")

    # As from a keyboard: Selenium sends keys to an element only if it takes them, and a button that was just disabled,
    # or the page behind a dialog, may still be the active one.

    def press_escape(self) -> None:
        ActionChains(self.driver).send_keys(Keys.ESCAPE).perform()

    def press_control_and(self, key: str) -> None:
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    # ---- what a visitor sees

    def text_of(self, element_id: str) -> str:
        return str(self.script("return document.getElementById(arguments[0])?.textContent ?? ''", element_id))

    def phase(self) -> str:
        return str(self.script("return document.getElementById('stage').dataset.phase"))

    def connection(self) -> str:
        return str(self.script("return document.getElementById('connection').dataset.state"))

    def notice(self) -> str:
        """The error on show, or an empty string."""
        return str(
            self.script("const n = document.getElementById('notice'); return !n || n.hidden ? '' : n.textContent")
        )

    def lit_words(self) -> list[str]:
        return list(self.script("return [...document.querySelectorAll('.word.heard')].map((e) => e.textContent)"))

    def voices(self) -> dict[str, str]:
        """Names of the tiles, by the id of the voice."""
        return dict(
            self.script(
                "return [...document.querySelectorAll('.tile')].map("
                "(e) => [e.dataset.voice, e.querySelector('.name').textContent])"
            )
        )

    def chosen_voice(self) -> str | None:
        found = self.script("return document.querySelector('[name=voice]:checked')?.value")
        return None if found is None else str(found)

    def struck_text(self) -> str:
        return str(self.script("return document.querySelector('#transcript-text s')?.textContent ?? ''"))

    # ---- what the test hook tells

    def last(self) -> dict[str, Any]:
        return self.script("return __playground.last()") or {"number": None, "id": None}

    def num_played(self, number: int) -> int:
        return int(self.script("return __playground.samplesPlayed(arguments[0])", number))

    def samples(self, kind: str, number: int) -> np.ndarray:
        """Every sample of a context that was `decoded` or `played`, in order."""
        encoded = self.script("return __playground[arguments[0]](arguments[1])", kind, number)
        return np.frombuffer(base64.b64decode(encoded), np.float32)

    def sample_rate(self) -> int:
        return int(self.script("return __playground.sampleRate()"))

    def heard_ms(self) -> float:
        return float(self.last()["heardMs"])

    def console_errors(self) -> list[str]:
        """Script errors; failed requests are the network's business and shown by the page itself."""
        entries = self.driver.get_log("browser")
        return [e["message"] for e in entries if e["level"] == "SEVERE" and e["source"] != "network"]

    # ---- waiting

    def script(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)  # type: ignore[no-untyped-call]

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 20) -> None:
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < timeout_s:
            try:
                if condition():
                    return
            except JavascriptException:
                pass
            # Each look costs three processes some milliseconds: what takes long may be seen a little later.
            time.sleep(min(0.1, 0.02 + waited / 10))
        raise AssertionError(
            f"not within {timeout_s} s: {what}; the page says {self.text_of('phase')!r}, {self.notice()!r}"
        )

    def _is_new(self, before: dict[str, Any]) -> bool:
        now = self.last()
        return now["number"] is not None and now["id"] != before["id"]
