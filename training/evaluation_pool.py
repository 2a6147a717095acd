"""The evaluation's processes: each has the checkpoint, the teacher and a recogniser of its own, and one thread."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.recognition import Recogniser
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.sequence import Patches
from training.flite import Flite, Speaker, utterance
from training.generation import Line, decode, generate
from training.speech_metrics import Samples

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """Paths and settings of a process, which loads each part on first use."""

    checkpoint: Path
    device: str
    library_dir: Path | None = None


class Worker:
    """Loaded objects for the jobs of a process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @functools.cached_property
    def loaded(self) -> LoadedModel:
        return load_model(self._setup.checkpoint, self._setup.device, "float32")

    @functools.cached_property
    def flite(self) -> Flite:
        return Flite(self._setup.library_dir)

    @functools.cached_property
    def recogniser(self) -> Recogniser:
        return Recogniser()


_worker: Worker | None = None  # in a process of the pool


def _start(setup: Setup) -> None:
    global _worker
    torch.set_num_threads(1)
    _worker = Worker(setup)


def _call(job: tuple[Callable[[Worker, Any], Any], Any]) -> Any:
    assert _worker is not None
    function, item = job
    return function(_worker, item)


class Workers:
    """Does jobs in `count` processes; a context manager."""

    def __init__(self, setup: Setup, count: int) -> None:
        self._pool = multiprocessing.get_context("spawn").Pool(count, _start, (setup,))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def map(self, function: Callable[[Worker, Item], Result], items: Sequence[Item], label: str) -> list[Result]:
        """`function` (of a module) of each item, in order, with a progress bar."""
        results = self._pool.imap(_call, [(function, item) for item in items])
        return list(tqdm(results, total=len(items), desc=label, leave=False, mininterval=1))


@dataclasses.dataclass(frozen=True, slots=True)
class SpeakJob:
    """Lines of one batch, with the seed of each."""

    lines: list[Line]
    seeds: list[int]
    steps: int
    cfg: float
    patch_by_patch: bool = False


def speak(worker: Worker, job: SpeakJob) -> list[Samples]:
    made = generate(worker.loaded, job.lines, job.seeds, steps=job.steps, cfg=job.cfg)
    return [decode(worker.loaded, patches, patch_by_patch=job.patch_by_patch) for patches in made]


def teach(worker: Worker, job: tuple[str, Speaker]) -> Samples:
    return utterance(worker.flite, *job)


def hear(worker: Worker, samples: Samples) -> str:
    return worker.recogniser.transcribe(samples)


def encode(worker: Worker, samples: Samples) -> Patches:
    """A recording → patches [n, patch_size, latent_dim]."""
    pcm = torch.from_numpy(samples.astype(np.float32) / 32768)
    return np.asarray(worker.loaded.model.encode_recording(pcm))


def through_vae(worker: Worker, samples: Samples) -> Samples:
    """Encoded and decoded, cut to its length."""
    return decode(worker.loaded, encode(worker, samples))[: len(samples)]


def speak_jobs(
    lines: Sequence[Line],
    *,
    steps: int,
    cfg: float,
    seeds: Sequence[int] | None = None,
    batch: int = 24,
    patch_by_patch: bool = False,
) -> tuple[list[SpeakJob], list[int]]:
    """Jobs of similar lengths, the longest first so that the processes end together; and which line each of the
    jobs' results belongs to. A line sounds alike at any batch size; its
    seed is its index, unless `seeds` says otherwise."""
    order = sorted(range(len(lines)), key=lambda index: -len(lines[index].text))
    groups = [order[start : start + batch] for start in range(0, len(order), batch)]
    seeds = range(len(lines)) if seeds is None else seeds
    jobs = [
        SpeakJob([lines[i] for i in group], [seeds[i] for i in group], steps, cfg, patch_by_patch) for group in groups
    ]
    return jobs, order
