"""Two processes that train together: what they share, what they agree on, and what one process alone writes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ports import free_port
from torch import nn

from realtime_tts.model.audio_vae import AudioVAE
from training.audio_pool import AudioPool
from training.latents import LatentCorpus
from training.pipeline import Pipeline
from training.replicas import Replicas
from training.run_state import Run
from training.starter_config import starter_config
from training.teacher import AudioChunk
from training.vae_training import VaeSettings, VaeTrainer, train

resource_tracker.ensure_running()  # multiprocessing's own, which stays until the end: not a leak of these tests

Result = dict[str, object]


def together(job: Callable[[Replicas, Path], Result], folder: Path) -> list[Result]:
    """`job` in two processes that have met; the result of each."""
    port = free_port()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_member, args=(job, folder, rank, port)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return [torch.load(folder / f"result.{rank}", weights_only=True) for rank in range(2)]


def _member(job: Callable[[Replicas, Path], Result], folder: Path, rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    replicas = Replicas.from_environment()
    replicas.join("cpu")
    torch.save(job(replicas, folder), folder / f"result.{rank}")
    replicas.end()
    raise AssertionError("the process goes on after its end")


def _one_step(replicas: Replicas, folder: Path) -> Result:
    torch.manual_seed(replicas.rank)  # the first process's weights must win
    layer = nn.Linear(3, 2)
    replicas.share(layer)
    start = layer.weight.detach().clone()
    unused = nn.Parameter(torch.zeros(1))
    x = torch.full((4, 3), 1.0 + replicas.rank)
    F.mse_loss(layer(x), torch.zeros(4, 2)).backward()
    replicas.average_gradients([*layer.parameters(), unused])
    return {
        "start": start,
        "weight": layer.weight.grad,
        "bias": layer.bias.grad,
        "agreed": replicas.agreed(replicas.rank + 0.25, True),
    }


@pytest.mark.slow
def test_gradients_are_those_of_one_large_batch(tmp_path: Path) -> None:
    first, second = together(_one_step, tmp_path)
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    F.mse_loss(layer(torch.tensor([[1.0], [2.0]]).expand(2, 3)), torch.zeros(2, 2)).backward()
    for result in (first, second):
        assert torch.equal(result["start"], layer.weight)
        torch.testing.assert_close(result["weight"], layer.weight.grad)
        torch.testing.assert_close(result["bias"], layer.bias.grad)
        assert result["agreed"] == (0.25, 1.0)


def _wait_for_the_slower(replicas: Replicas, folder: Path) -> Result:
    if replicas.rank == 1:
        time.sleep(0.5)
        (folder / "late").touch()
    replicas.wait()
    return {"seen": (folder / "late").exists()}


@pytest.mark.slow
def test_every_process_waits_for_the_slowest(tmp_path: Path) -> None:
    """To agree is not enough: the first process only sends, and does not wait for those that receive."""
    assert all(result["seen"] for result in together(_wait_for_the_slower, tmp_path))


def _train_vae(replicas: Replicas, folder: Path, *, adversarial: bool = False) -> Result:
    pool = AudioPool(folder / "audio", "cpu")
    pool.wait(1, timeout_s=1)
    torch.manual_seed(0)
    vae = AudioVAE(starter_config(toy=True).vae)
    torch.manual_seed(replicas.rank)
    settings = VaeSettings(batch=1, crop_frames=6, critics_after=0.5)
    trainer = VaeTrainer(vae, pool, settings, adversarial=adversarial, replicas=replicas)
    run_folder = folder / f"run.{replicas.rank}"
    # the second process would go on for longer, and begin later with the discriminators: it must not
    run = Run(run_folder, num_steps=3 + 5 * replicas.rank, seconds=None)
    train(trainer, run, adversarial=adversarial, log_every=1)
    return {
        "step": run.step,
        "weight": vae.decoder.model[1].weight.detach(),
        "drawn": trainer._pcm,
        "files": sorted(path.name for path in run_folder.iterdir()),
    }


def _train_decoder(replicas: Replicas, folder: Path) -> Result:
    return _train_vae(replicas, folder, adversarial=True)


@pytest.mark.slow
@pytest.mark.parametrize("train_stage", [_train_vae, _train_decoder])
def test_replicas_train_one_model_on_audio_of_their_own(
    tmp_path: Path, train_stage: Callable[[Replicas, Path], Result]
) -> None:
    noise = np.random.default_rng(0).normal(0, 3000, 64000).astype(np.int16)
    (tmp_path / "audio").mkdir()
    words = np.zeros((1, 2), np.int32)
    AudioChunk(noise, np.array([64000]), np.zeros(1, np.int32), ["a"], words).save(tmp_path / "audio" / "0000.npz")
    first, second = together(train_stage, tmp_path)
    assert first["step"] == second["step"] == 3
    assert torch.equal(first["weight"], second["weight"])
    assert not torch.equal(first["drawn"], second["drawn"])
    assert [name for name in first["files"] if name != "critics.pt"] == ["log.jsonl", "state.pt", "vae.pt"]
    assert second["files"] == []


def test_a_single_process_needs_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    replicas = Replicas.from_environment()
    assert replicas == Replicas(0, 1)
    replicas.join("cpu")
    assert replicas.agreed(1.5, False) == (1.5, False)
    assert replicas.rate_scale == 1
    replicas.end()


@pytest.mark.slow
def test_the_pipeline_launches_a_stage_in_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "import os, pathlib, sys\npathlib.Path(os.environ['RANK']).write_text(' '.join(sys.argv[1:]))\n"
    (tmp_path / "stage_that_writes.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Pipeline(tmp_path, 60).run("stage_that_writes", "--run", 7, processes=2)
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["--run 7", "--run 7"]


def test_corpora_end_to_end_keep_their_patches_and_texts() -> None:
    def corpus(counts: list[int], texts: list[str], words: list[list[float]]) -> LatentCorpus:
        patches = [torch.full((n, 4, 8), float(n)) for n in counts]
        return LatentCorpus.build(patches, list(range(len(counts))), texts, np.array(words, np.float32))

    words = [[0, 1], [1.5, 2.5], [0, 1], [0.5, 2]]
    both = LatentCorpus.together([corpus([3, 1], ["a b", "c"], words[:3]), corpus([2], ["def"], words[3:])])
    whole = corpus([3, 1, 2], ["a b", "c", "def"], words)
    assert both.speakers.tolist() == [0, 1, 0]
    for name in ("starts", "counts", "text_ids", "text_starts", "words"):
        assert np.array_equal(getattr(both, name), getattr(whole, name)), name
    assert torch.equal(both.patches, whole.patches)
