"""The table that ``realtime-tts calibrate`` makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from realtime_tts.cli.main import cli

SCORE = {"layer": 4, "head": 2, "lag_ms": 101.6, "agreement": 0.43, "mass": 0.98, "backward": 0.01, "qualifies": True}
REPORT = {"model": "m", "text_head": {"layer": 4, "head": 2, "lag_ms": 101.6}, "num_sentences": 12, "scores": [SCORE]}


def run(report: dict[str, Any], *arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    asked = []

    def calibrate(*given: object) -> dict[str, Any]:
        asked.append(given)
        return report

    monkeypatch.setattr("realtime_tts.engine.calibrate.calibrate_and_keep", calibrate)
    return CliRunner().invoke(cli, ["calibrate", *arguments]), asked[0]


def test_the_chosen_head_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**SCORE, "head": 3}
    result, asked = run({**REPORT, "scores": [SCORE, other]}, "m", "--write", monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output
    chosen, qualified = [line for line in result.stdout.splitlines() if "0.43" in line]
    assert chosen.split() == ["4", "2", "0.43", "102", "0.98", "0.01", "←", "chosen"]
    assert qualified.endswith("qualifies")
    assert "measured" in result.stdout
    assert asked == ("m", "auto", True)


def test_it_says_when_times_will_be_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run({**REPORT, "text_head": None}, monkeypatch=monkeypatch)
    assert "estimated" in result.stdout


def test_json_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = run(REPORT, "--json", "--device", "cpu", monkeypatch=monkeypatch)
    assert json.loads(result.stdout) == REPORT
    assert asked == ("starter-voice", "cpu", False)
