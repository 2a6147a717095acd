"""The pipeline's handling of its stages, with Python's own small modules standing in for them."""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path

import pytest

from training.pipeline import EXPORT_S, Pipeline, recipe


def test_a_background_stage_logs_and_is_waited_for(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("shown", "calendar", 2026, 11)
    pipeline.finish("shown")
    assert "November 2026" in (tmp_path / "shown.log").read_text()
    pipeline.finish("shown")  # nothing is left to wait for
    pipeline.finish("never started")


def test_a_failed_stage_is_reported_with_its_log(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("broken", "no_such_module")
    pipeline._background["broken"].wait()
    with pytest.raises(RuntimeError, match=r"broken failed.*broken\.log"):
        pipeline.finish("broken")
    assert "no_such_module" in (tmp_path / "broken.log").read_text()
    with pytest.raises(subprocess.CalledProcessError):
        pipeline.run("no_such_module")


def test_closing_ends_what_still_runs(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("server", "http.server", 0, "--bind", "127.0.0.1")
    process = pipeline._background["server"]
    pipeline.close()
    assert process.poll() is not None


def test_the_export_has_its_time_set_aside(tmp_path: Path) -> None:
    before = time.monotonic()
    left = Pipeline(tmp_path, seconds=100).seconds_left()
    assert 100 - EXPORT_S - (time.monotonic() - before) <= left <= 100 - EXPORT_S


class Recorded(Pipeline):
    """Writes down what would run, and makes the files that later stages look for."""

    def __init__(self, build: Path) -> None:
        super().__init__(build, seconds=600)
        self.stages: list[str] = []
        self.args: dict[str, list[str]] = {}

    def run(self, module: str, *args: object, processes: int = 1) -> None:
        self._note(module, args, f" x{processes}")
        if args[0] == "unpack":
            (self.build / "vae").mkdir()
            (self.build / "vae" / "init.pt").write_text("kept")

    def start(self, name: str, module: str, *args: object, gpu: int | None = None) -> None:
        self._note(module, args, f" on {gpu} behind")

    def finish(self, name: str) -> None:
        self.stages.append(f"{name} finished")

    def _note(self, module: str, args: tuple[object, ...], how: str) -> None:
        words = [str(arg) for arg in args]
        name = module.removeprefix("training.")
        if "--stage" in words:
            name = words[words.index("--stage") + 1]
        elif name == "carry":
            name = words[0]
        self.stages.append(name + how)
        self.args[name] = words


def options(build: Path, **changes: object) -> argparse.Namespace:
    defaults = {"minutes": 10.0, "hours": 1.0, "tts_rate": 1e-3}
    return argparse.Namespace(**{"build": build, "kept": None, "kokoro": None, **defaults, **changes})


def test_all_gpus_train_the_encoder_then_the_last_one_the_decoder(tmp_path: Path) -> None:
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path), gpus=4)
    assert pipeline.stages == [
        "teacher on None behind",
        "joint x4",
        "decoder on 3 behind",
        "teacher finished",
        "latents x4",
        "tts_training x3",
        "decoder finished",
        "pack x1",
        "export x1",
    ]
    assert "--init" not in pipeline.args["joint"] + pipeline.args["tts_training"]
    assert pipeline.args["joint"][pipeline.args["joint"].index("--seconds") + 1] == "210.0"


def test_one_gpu_does_everything(tmp_path: Path) -> None:
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path), gpus=1)
    assert [stage for stage in pipeline.stages if " x" in stage] == [
        "joint x1",
        "latents x1",
        "tts_training x1",
        "pack x1",
        "export x1",
    ]
    assert "decoder on None behind" in pipeline.stages


def test_one_gpu_encodes_beside_the_teacher_when_the_encoder_is_kept(tmp_path: Path) -> None:
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path, kept=Path("weights")), gpus=1)
    stages = pipeline.stages
    assert stages.index("latents on None behind") < stages.index("teacher finished") < stages.index("latents finished")
    assert "--follow" in pipeline.args["latents"]


def test_kept_weights_are_trained_on_with_their_encoder(tmp_path: Path) -> None:
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path, kept=Path("weights")), gpus=2)
    assert pipeline.stages[:2] == ["unpack x1", "teacher on None behind"]
    assert "joint" not in pipeline.args
    assert (tmp_path / "vae" / "normalised.pt").read_text() == "kept"
    for stage, option in (("tts_training", "--init"), ("decoder", "--init-critics")):
        assert option in pipeline.args[stage]
