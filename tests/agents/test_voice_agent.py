"""The voice agent's options and messages, without a room."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

import voice_agent


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--stt", "no_such_plugin"], "pip install livekit-plugins-no-such-plugin"),
        (["--llm", "no_such_plugin:model"], "pip install livekit-plugins-no-such-plugin"),
        (["--vad", "no_such_plugin"], "pip install livekit-plugins-no-such-plugin"),
        (["--llm", "realtime_tts"], "has no LLM"),
        (["--tts-url", "ftp://host"], "address"),
        (["--journal", "/no/such/directory/journal"], "/no/such/directory"),
    ],
)
def test_what_would_end_each_conversation_is_told_at_the_start(arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as caught:
        voice_agent.check(voice_agent.parser().parse_args(arguments))
    assert told in str(caught.value)


def test_options_that_can_be_used_are_taken(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    voice_agent.check(voice_agent.parser().parse_args(["--vad", "loudness", "--journal", str(journal)]))
    assert '"checked"' in journal.read_text()


@pytest.mark.parametrize("pace", ["0", "-1", "nan", "inf", "fast"])
def test_tokens_come_at_some_pace(pace: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        voice_agent.parser().parse_args(["--tokens-per-second", pace])
    assert "--tokens-per-second" in capsys.readouterr().err


@pytest.mark.parametrize("threshold", [1.0, 2.0, math.inf])
def test_a_worker_that_takes_rooms_at_any_load_reports_none(threshold: float) -> None:
    """Tests of rooms use one: on a busy machine the load is 1, at which LiveKit gives a room to no worker."""
    measure = voice_agent.load_function(threshold)
    assert measure is not None
    assert measure() == 0.0


def test_a_worker_with_a_threshold_reports_the_load_that_livekit_measures() -> None:
    assert voice_agent.load_function(0.7) is None


@pytest.mark.parametrize(("text", "is_answered"), [("Hello", True), ("/stop", False), ("x" * 4001, False)])
async def test_a_typed_message_interrupts_and_is_answered_if_it_is_short(text: str, is_answered: bool) -> None:
    session: Any = SimpleNamespace(userdata=Mock(), interrupt=AsyncMock(), generate_reply=Mock())
    event: Any = SimpleNamespace(text=text)
    await voice_agent.take_text(session, event)
    assert session.interrupt.await_count == 1
    assert session.generate_reply.call_count == is_answered
