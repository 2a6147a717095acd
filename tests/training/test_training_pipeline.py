"""The pipeline's handling of its stages, with Python's own small modules standing in for them."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable
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
        pipeline.wait_for("broken", lambda: True)
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
        if module == "training.unpack":
            (self.build / "vae").mkdir()
            (self.build / "vae" / "init.pt").write_text("a checkpoint's")

    def start(self, name: str, module: str, *args: object, gpu: int | None = None) -> None:
        self._note(module, args, f" on {gpu} behind")

    def finish(self, name: str) -> None:
        self.stages.append(f"{name} finished")

    def wait_for(self, name: str, enough: Callable[[], bool]) -> None:
        self.stages.append(f"{name} {'has done' if enough() else 'is not at'} enough")

    def stop(self, name: str) -> None:
        self.stages.append(f"{name} stopped")

    def _note(self, module: str, args: tuple[object, ...], how: str) -> None:
        words = [str(arg) for arg in args]
        name = module.removeprefix("training.")
        if "--stage" in words:
            name = words[words.index("--stage") + 1]
        self.stages.append(name + how)
        self.args[name] = words


def options(build: Path, **changes: object) -> argparse.Namespace:
    defaults = {"minutes": 10.0, "hours": 1.0, "joint_share": 0.4, "decoder_share": 0.8, "critics_after": 0.6}
    defaults |= {"continued_rate": 6e-4, "rounds": 1}
    return argparse.Namespace(**{"build": build, "from_checkpoint": None, "kokoro": None, **defaults, **changes})


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
        "export x1",
    ]
    assert "--init" not in pipeline.args["joint"] + pipeline.args["tts_training"]
    assert pipeline.args["joint"][pipeline.args["joint"].index("--seconds") + 1] == "240.0"


def test_one_gpu_does_everything(tmp_path: Path) -> None:
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path), gpus=1)
    assert [stage for stage in pipeline.stages if " x" in stage] == [
        "joint x1",
        "latents x1",
        "tts_training x1",
        "export x1",
    ]
    assert "decoder on None behind" in pipeline.stages


def test_a_finished_voice_is_trained_on_with_or_without_its_encoder(tmp_path: Path) -> None:
    for share, stages in ((0.4, ["unpack", "joint"]), (0.0, ["unpack"])):
        build = tmp_path / str(share)
        build.mkdir()
        pipeline = Recorded(build)
        recipe(pipeline, options(build, from_checkpoint=Path("voice"), joint_share=share), gpus=1)
        assert [name for name in pipeline.args if name in ("unpack", "joint")] == stages
        assert "--init" in pipeline.args["tts_training"]
        assert (build / "vae" / "normalised.pt").exists() == (share == 0)


def test_without_a_decoder_stage_all_gpus_train_the_tts_model_and_the_checkpoints_vae_is_exported(
    tmp_path: Path,
) -> None:
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path, from_checkpoint=Path("voice"), joint_share=0.0, decoder_share=0.0), gpus=2)
    assert "tts_training x2" in pipeline.stages
    assert "decoder" not in pipeline.args
    assert pipeline.args["export"][:2] == ["--vae", str(tmp_path / "vae" / "normalised.pt")]


def test_rounds_begin_before_the_teacher_has_finished_and_share_the_time(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    for chunk in range(4):  # of half an hour each: more than a third of what is wanted
        (tmp_path / "audio" / f"{chunk:04d}.npz").touch()
    pipeline = Recorded(tmp_path)
    sessions: list[float] = []
    run = pipeline.run

    def timed(module: str, *args: object, processes: int = 1) -> None:
        if "--session-seconds" in args:
            session, left = (float(str(args[args.index(name) + 1])) for name in ("--session-seconds", "--more-seconds"))
            sessions.append(session / left)
        run(module, *args, processes=processes)

    pipeline.run = timed  # type: ignore[method-assign]
    recipe(pipeline, options(tmp_path, rounds=3, hours=3.6), gpus=1)
    start = pipeline.stages.index("teacher has done enough")
    assert pipeline.stages[start:-2] == [
        *["teacher has done enough", "latents x1", "tts_training x1"] * 2,
        *["teacher has done enough", "teacher stopped", "latents x1", "tts_training x1"],
    ]
    assert "teacher finished" not in pipeline.stages
    assert sessions == pytest.approx([1 / 3, 1 / 2, 1])


def test_waiting_for_a_stage_ends_with_what_it_makes_or_with_itself(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seconds=60)
    pipeline.start("server", "http.server", 0, "--bind", "127.0.0.1")
    answers = iter([False, True])
    pipeline.wait_for("server", lambda: next(answers))
    assert next(answers, None) is None
    pipeline.stop("server")
    pipeline.stop("server")  # it is not there any more
    pipeline.start("short", "calendar", 2026)
    pipeline.wait_for("short", lambda: False)
    pipeline.finish("short")


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    for done in ("audio/complete", "vae/normalised.pt", "latents.pt"):
        (tmp_path / done).parent.mkdir(exist_ok=True)
        (tmp_path / done).touch()
    pipeline = Recorded(tmp_path)
    recipe(pipeline, options(tmp_path), gpus=2)
    assert list(pipeline.args) == ["decoder", "latents", "tts_training", "export"]  # latents only adds new chunks
