"""The table that ``realtime-tts calibrate`` makes; the work is done by another process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from realtime_tts.cli.main import cli

SCORE = {"layer": 4, "head": 2, "lag_ms": 101.6, "agreement": 0.43, "mass": 0.98, "backward": 0.01, "qualifies": True}
REPORT = {"model": "m", "text_head": {"layer": 4, "head": 2, "lag_ms": 101.6}, "num_sentences": 12, "scores": [SCORE]}


def run(report: dict[str, Any], *arguments: str, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> tuple[Any, Any]:
    asked = []

    def worker(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, status, stdout=json.dumps(report))

    monkeypatch.setattr(subprocess, "run", worker)
    return CliRunner().invoke(cli, ["calibrate", *arguments]), asked[0]


def test_the_chosen_head_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**SCORE, "head": 3}
    result, asked = run({**REPORT, "scores": [SCORE, other]}, "m", "--write", monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output
    chosen, qualified = [line for line in result.stdout.splitlines() if "0.43" in line]
    assert chosen.split() == ["4", "2", "0.43", "102", "0.98", "0.01", "←", "chosen"]
    assert qualified.endswith("qualifies")
    assert "measured" in result.stdout
    assert asked == [sys.executable, "-m", "realtime_tts.engine.calibrate", "m", "--device", "auto", "--write"]


def test_it_says_when_times_will_be_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run({**REPORT, "text_head": None}, monkeypatch=monkeypatch)
    assert "estimated" in result.stdout


def test_json_is_passed_on_and_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(REPORT, "--json", monkeypatch=monkeypatch)
    assert json.loads(result.stdout) == REPORT
    result, _ = run(REPORT, monkeypatch=monkeypatch, status=1)
    assert result.exit_code == 1
