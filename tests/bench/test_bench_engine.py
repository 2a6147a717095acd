"""Steps of the engine: every stream is in every step that is measured, and its parts make up the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from realtime_tts.bench.engine_steps import StageStamps, SteadyStreams, StepMeasurement
from realtime_tts.bench.subject import Subject
from realtime_tts.cli.main import cli
from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.runtime.stages import STAGES
from realtime_tts.errors import ConfigError, EngineError, RealtimeTTSError


@pytest.fixture(scope="module")
def subject(tiny_directory: Path) -> Subject:
    return Subject.load(EngineOptions(str(tiny_directory), "cpu", threads=1, max_streams=4))


def test_the_command_measures_and_keeps_every_figure(tiny_directory: Path, tmp_path: Path) -> None:
    json_path, plot = tmp_path / "out/engine.json", tmp_path / "engine.png"
    arguments = ["bench", "engine", "--model", str(tiny_directory), "--device", "cpu", "--batches", "1,3"]
    arguments += ["--num-steps", "4", "--runs", "2", "--steps", "2", "--json", str(json_path), "--plot", str(plot)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4
    document = json.loads(json_path.read_text())
    assert [row["streams"] for row in document["results"]] == [1, 3]
    for row in document["results"]:
        assert [len(run) for run in row["runs"]] == [4, 4]
        assert row["step_ms"]["count"] == 8
        assert set(row["stages_ms"]) == {*STAGES, "host"}
        assert 0 < max(row["stages_ms"].values()) <= row["observed_ms"] * 1.5
    assert document["subject"]["model"] == "random-tiny"
    assert {"version", "commit", "machine", "packages", "settings"} <= set(document)
    assert plot.stat().st_size > 1000


def test_the_progress_may_be_switched_off(tiny_directory: Path) -> None:
    arguments = [sys.executable, "-m", "realtime_tts", "bench", "engine", "--model", str(tiny_directory)]
    arguments += ["--device", "cpu", "--batches", "1", "--num-steps", "1", "--runs", "1", "--steps", "2"]
    environment = {**os.environ, "TQDM_DISABLE": "1"}
    result = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3


def test_streams_stay_together_for_as_long_as_was_asked(subject: Subject) -> None:
    plan = StepMeasurement((4,), num_steps=1, num_warm=0, runs=1, steps=2)
    streams = SteadyStreams(subject, plan)
    streams.start(4, 40)
    assert all(streams.step() > 0 for _ in range(40))
    streams.stop()
    assert streams.engine.is_idle
    streams.start(2, 3)
    for _ in range(3):
        streams.step()


def test_more_streams_than_half_a_full_step_stay_together(tiny_directory: Path) -> None:
    """A worker would put those with ample lead into steps of half that size."""
    options = EngineOptions(str(tiny_directory), "cpu", threads=1, max_streams=72)
    streams = SteadyStreams(Subject.load(options), StepMeasurement((72,), num_steps=1, num_warm=0, runs=1, steps=2))
    streams.start(72, 2)
    assert streams.step() > 0


def test_speech_behind_the_end_of_the_text_is_not_mended() -> None:
    """The starter voice's text head follows the first stream's text, so faults of the next one could be mended."""
    starter = Subject.load(EngineOptions("starter-voice", "cpu", threads=1, max_streams=1))
    streams = SteadyStreams(starter, StepMeasurement((1,), num_steps=1, num_warm=0, runs=2, steps=2))
    for _ in range(2):
        streams.start(1, 40)
        assert all(streams.step() > 0 for _ in range(40))
        streams.stop()


def test_more_may_wait_than_the_largest_batch_has(subject: Subject) -> None:
    """A warm-up on a GPU goes to 256 streams, whatever is measured after it."""
    streams = SteadyStreams(subject, StepMeasurement((1,), num_steps=1, num_warm=0, runs=1, steps=2))
    with pytest.raises(EngineError, match="never came into one step"):  # there are four slots, and no refusal
        streams.start(20, 200)
    assert streams.engine.scheduler.num_waiting == 16


def test_a_step_without_all_of_them_is_an_error(subject: Subject) -> None:
    plan = StepMeasurement((5,), num_steps=1, num_warm=0, runs=1, steps=2)
    streams = SteadyStreams(subject, plan)
    streams.start(2, 5)
    streams.engine.post(frames.CloseContext("2-0"))
    with pytest.raises(EngineError, match="a step over 2 streams made 1"):
        streams.step()
    with pytest.raises(EngineError, match="never came into one step"):
        SteadyStreams(subject, plan).start(5, 5)


def test_stages_that_come_back_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([1.0, 3.0, 4.0, 9.0, 11.0, 13.0, 14.0, 19.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times_s))
    clock = StageStamps(torch.device("cpu"))
    assert clock.take() == {}
    for _ in range(2):  # the second step's marks replace the first one's
        for stage in ("vae", "flow", "vae"):
            clock.mark(stage)
        clock.end()
        assert clock.take() == {"vae": 7.0, "flow": 1.0}


def test_the_commands_are_listed_without_torch() -> None:
    code = (
        "import sys; from realtime_tts.cli.main import cli; cli.main(['bench', '--help'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "checkpoint" in result.stdout


@pytest.mark.parametrize("batches", ["0", "x", "", "1,,2"])
def test_batches_that_are_none(batches: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "engine", "--batches", batches])
    assert result.exit_code == 2
    assert "1,2,4" in result.output


@pytest.mark.parametrize(
    ("flag", "name", "problem"),
    [
        ("--plot", "engine.doc", "a .png or .svg file"),
        ("--plot", "file/engine.png", "cannot be written"),
        ("--json", "file/engine.json", "cannot be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, flag: str, name: str, problem: str
) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, ["bench", "engine", "--model", "none/such", flag, str(tmp_path / name)])
    assert isinstance(result.exception, ConfigError)
    assert problem in result.exception.message


def test_a_measurement_that_fails_leaves_its_output_as_it_was(tmp_path: Path) -> None:
    (old := tmp_path / "old.json").write_text("{}")
    for path in (old, tmp_path / "new.json"):
        result = CliRunner().invoke(cli, ["bench", "engine", "--model", "none/such", "--json", str(path)])
        assert isinstance(result.exception, RealtimeTTSError)
        assert "written" not in result.exception.message
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "{}"
