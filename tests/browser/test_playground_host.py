"""The page at a host with several gateways, one of which dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from playground_page import PlaygroundPage
from selenium.webdriver import Chrome
from server_processes import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]

TEXT = "one two three four five six seven eight nine ten. eleven twelve thirteen fourteen fifteen sixteen seventeen."
SESSION_ID = "return __playground.session().session.session_id"
KEEP_CONTEXT = "window.kept = __playground.session().contexts.values().next().value"


def test_the_rest_of_the_text_is_heard_through_another_gateway(chromium: Chrome, tmp_path: Path) -> None:
    worker = {"text_lag_ms": 100, "chars_per_patch": 2}  # some eight seconds of speech: more than is sent ahead
    server = ServerProcess(tmp_path / "log.txt", worker, gateways=3, max_late_ms=0, voices_dir="none")
    page = PlaygroundPage(chromium, server.url + "/")
    try:
        page.open()
        number = page.speak(TEXT)
        page.wait(lambda: len(page.lit_words()) >= 3, "three words were heard")
        page.script(KEEP_CONTEXT)
        before = page.script(SESSION_ID)
        os.kill(server.gateways[int(before[1 : before.index("_")])], signal.SIGKILL)
        page.wait(lambda: page.phase() == "finished", "heard to the end", 60)
        assert page.script(SESSION_ID) != before
        assert page.lit_words() == TEXT.split()
        told = page.script("return kept.words.map(({ text }) => text)")
        assert [word for k, word in enumerate(told) if not k or word != told[k - 1]] == TEXT.split()
        assert len(told) <= len(TEXT.split()) + 1, "one word twice at most"
        # All that was received was heard, and nothing of it twice.
        assert page.num_played(number) == len(page.samples("decoded", number))
        assert page.notice() == ""
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        chromium.get("about:blank")
        server.close()
