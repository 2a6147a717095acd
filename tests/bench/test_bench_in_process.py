"""Loads through the engine in this process: every stream that was due is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from realtime_tts.bench.arrivals import Arrival, OpenLoad
from realtime_tts.bench.capacity import CapacityPlan, measure_capacity
from realtime_tts.bench.in_process import InProcess
from realtime_tts.bench.load_result import Cost
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard
from realtime_tts.bench.subject import Subject
from realtime_tts.cli.main import cli
from realtime_tts.contract.engine_options import EngineOptions

NUM_PATCHES = 4


@pytest.fixture(scope="module")
def driver(tiny_directory: Path) -> InProcess:
    subject = Subject.load(EngineOptions(str(tiny_directory), "cpu", threads=1, max_streams=4))
    return InProcess(subject, NUM_PATCHES, steps=2, cfg=None)


def test_a_load_of_whole_turns_is_heard_whole(driver: InProcess) -> None:
    heard = driver.open_loop([Arrival(number, 0.0, 1.0, judged=True) for number in range(6)])  # four have a slot
    assert len(heard) == 6
    for stream in heard:
        assert stream.audio_s == pytest.approx(driver.turn_s)
        assert stream.num_chunks == NUM_PATCHES
        assert 0 < stream.first_s <= stream.last_s <= stream.ended_s
        assert stream.position_s == pytest.approx(0.16 * (NUM_PATCHES - 1))
    assert driver.engine.is_idle
    assert driver.engine.scheduler.num_contexts == 0


def test_time_counts_from_when_a_text_was_due(driver: InProcess) -> None:
    """All of these were due half a second before the load began, and no stream can be earlier."""
    arrivals = [Arrival(number, -0.5, 1.0, judged=number > 0) for number in range(3)]
    heard = driver.open_loop(arrivals)
    assert len([stream for stream in heard if stream.judged]) == 2
    assert all(stream.first_s > 0.5 for stream in heard)


def test_a_load_is_given_up_at_its_deadline(driver: InProcess) -> None:
    load = OpenLoad(rate_per_s=20, turn_s=driver.turn_s, window_s=600)
    arrivals = load.arrivals(0)
    heard = driver.open_loop(arrivals, deadline_s=0.5)
    assert len(heard) == len(arrivals)
    assert sum(stream.error == GAVE_UP for stream in heard) > 10_000
    assert not Bar().holds([stream for stream in heard if stream.judged])
    assert driver.engine.is_idle


class Simulated:
    """Holds so many arrivals in a load, no more."""

    def __init__(self, limit: float) -> None:
        self.turn_s = 2.0
        self.limit = limit
        self.num_loads = 0
        self.cost = Cost()

    def open_loop(self, arrivals: Sequence[Arrival], deadline_s: float) -> list[Heard]:
        self.num_loads += 1
        num_judged = sum(arrival.judged for arrival in arrivals)
        first_s = 0.05 if num_judged <= self.limit else 0.5
        return [Heard(arrival.at_s, [(first_s, 0.0)], self.turn_s, judged=arrival.judged) for arrival in arrivals]


def test_capacity_is_what_all_runs_hold() -> None:
    driver = Simulated(limit=600)
    plan = CapacityPlan(Bar(), start=10, window_s=20, precision=0.1, runs=3, max_trials=12)
    result = measure_capacity(driver, plan)
    held = [trial for trial in result.trials if trial.offered == result.streams]
    assert [trial.seed for trial in held] == [0, 1, 2]
    assert all(trial.held for trial in held)
    assert result.best is held[-1]
    assert result.streams < result.failed
    # 600 arrivals in 20 s, of 2 s each: 60 at once, within what chance and the search leave open.
    assert 48 < result.streams < 66
    assert result.best.rate_per_s == pytest.approx(result.streams / 2)
    assert len(result.trials) == driver.num_loads


def test_nothing_holds() -> None:
    plan = CapacityPlan(Bar(), start=4, window_s=20, precision=0.1, runs=3, max_trials=12)
    result = measure_capacity(Simulated(limit=-1), plan)
    assert result.streams == 0.0
    assert not any(trial.held for trial in result.trials)


def run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, object]]:
    path = tmp_path / "out.json"
    result = CliRunner().invoke(cli, ["bench", *arguments, "--device", "cpu", "--steps", "2", "--json", str(path)])
    assert result.exit_code == 0, result.output
    return result.stdout, json.loads(path.read_text())


def test_the_capacity_command(tiny_directory: Path, tmp_path: Path) -> None:
    arguments = ["capacity", "--model", str(tiny_directory), "--patches", "2", "--window-s", "0.5", "--start", "4"]
    arguments += ["--max-trials", "1", "--runs", "1", "--first-audio-ms", "60000", "--pre-buffer-ms", "60000"]
    output, document = run(tmp_path, *arguments, "--plot", str(tmp_path / "capacity.png"))
    results = document["results"]
    assert results["failed"] is None or results["streams"] == 0  # type: ignore[index]
    (trial,) = results["trials"]  # type: ignore[index]
    # A busy machine may make the streams too late for the end of the load, as it says then.
    outcome = "hold" if trial["held"] else "are too many"
    assert f"4.00 streams at once {outcome}" in output
    assert trial["held"] == (trial["errors"] == {})
    assert trial["asked"] == len(trial["raw"]) > 0
