"""Duration of a step with one optimisation off at a time, on an NVIDIA GPU.

    realtime-tts bench checkpoint random-voxcpm2
    python -m benchmarks.ablations --model random-voxcpm2 --batches 1 8 64 128

Each row is an engine of its own on the same weights: median milliseconds of a step, and how far the samples of one
seeded text alone are from those with everything on (0: the same bits).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

from realtime_tts.bench.engine_steps import SteadyStreams, StepMeasurement
from realtime_tts.bench.report import figure, table
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import TURN
from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.runtime import runner
from realtime_tts.model import fused

ALL = "everything on"
NUM_PATCHES = 24
Samples = np.ndarray[Any, np.dtype[np.float32]]


def _stacks(subject: Subject) -> list[fused.FusedStack]:
    model = subject.loaded.model
    flow = model.feat_decoder.fused
    found = [model.base_lm.fused, model.residual_lm.fused, model.feat_encoder.encoder.fused]
    found += [flow.stack] if isinstance(flow, fused.FusedFlow) else []
    return [stack for stack in found if isinstance(stack, fused.FusedStack)]


def _no_whole_stacks(subject: Subject) -> None:
    for stack in _stacks(subject):
        stack.few_rows_kernel = None
    flow = subject.loaded.model.feat_decoder.fused
    if isinstance(flow, fused.FusedFlow):
        flow.few_streams_kernel = None


def _no_patch_attention(subject: Subject) -> None:
    for stack in _stacks(subject):
        stack.patch_attention = None


def _no_gated_product(subject: Subject) -> None:
    for stack in _stacks(subject):
        stack.gated = []


# What is taken out of a fused model, before graphs are captured.
MODEL_PARTS: dict[str, Callable[[Subject], None]] = {
    "few streams: a stack in one kernel": _no_whole_stacks,
    "attention over a patch in CUDA, first layer once": _no_patch_attention,
    "SwiGLU in its product": _no_gated_product,
}
# What is replaced while an engine is made: object, name, value.
REPLACED: dict[str, tuple[object, str, object]] = {
    "first layer once": (fused.FusedStack, "first_layer", lambda *args, **kwargs: None),
    "products: the fastest kernel": (runner, "choosing", contextlib.nullcontext),
    "decoder in Triton, float16": (fused, "can_fuse", lambda vae: False),
}
# What the engine's options switch off.
OPTIONS: dict[str, str] = {"CUDA graphs": "eager", "all kernels and graphs": "sdpa"}
PARTS = (ALL, *MODEL_PARTS, *REPLACED, *OPTIONS)


@contextlib.contextmanager
def without(part: str, subject: Subject) -> Iterator[Subject]:
    """Yield the subject with a part of the optimisations off, for an engine that is made and used meanwhile."""
    model = subject.loaded.model
    model.unfuse()
    with contextlib.ExitStack() as stack:
        if part in REPLACED:
            stack.enter_context(mock.patch.object(*REPLACED[part]))
        if part in OPTIONS:
            subject = dataclasses.replace(
                subject, options=dataclasses.replace(subject.options, attention=OPTIONS[part])
            )
        else:
            fused.fuse(model, fp8_flow=subject.options.fp8 == "flow")  # an engine leaves fused stacks as they are
        if part in MODEL_PARTS:
            MODEL_PARTS[part](subject)
        yield subject


class Spoken(SteadyStreams):
    """Streams whose samples of a text alone can be taken."""

    samples: list[Samples]

    def speak(self) -> Samples:
        """Return the first patches of a seeded text, float32."""
        self.samples = []
        fields = {"seed": 1, "encoding": "f32le", "paced": False, "max_patches": NUM_PATCHES}
        self.engine.post(frames.Generate("spoken", "spoken", TURN, **fields))
        while self.engine.step() or not self.engine.is_idle:
            pass
        self.engine.post(frames.CloseContext("spoken"))
        self.engine.step()
        return np.concatenate(self.samples)

    def _receive(self, message: frames.Message) -> None:
        super()._receive(message)
        if isinstance(message, frames.Audio) and message.request_id == "spoken":
            self.samples.append(np.frombuffer(message.payload, "<f4"))


def measure(part: str, subject: Subject, plan: StepMeasurement) -> tuple[list[float], Samples]:
    """Return the median duration of a step, ms, for each number of streams, and the samples of one text alone."""
    with without(part, subject) as reduced:
        streams = Spoken(reduced, plan)
        spoken, medians = streams.speak(), []
        for batch in plan.batches:
            streams.start(batch, plan.num_warm + plan.num_steps)
            steps_s = [streams.step() for _ in range(plan.num_warm + plan.num_steps)]
            streams.stop()
            medians.append(1000 * float(np.median(steps_s[plan.num_warm :])))
    del streams
    gc.collect()
    torch.cuda.empty_cache()
    return medians, spoken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 128])
    parser.add_argument("--num-steps", type=int, default=24)
    parser.add_argument(
        "--without", nargs="+", choices=PARTS[1:], default=PARTS[1:], metavar="PART", help="; ".join(PARTS[1:])
    )
    given = parser.parse_args()
    plan = StepMeasurement(tuple(given.batches), given.num_steps, num_warm=8, runs=1)
    subject = Subject.load(EngineOptions(given.model, given.device, max_streams=max(given.batches)))
    columns, rows, whole = ["without", *map(str, given.batches), "samples differ by"], [], None
    for part in (ALL, *given.without):
        medians, spoken = measure(part, subject, plan)
        whole = spoken if whole is None else whole
        size = min(len(whole), len(spoken))
        error = float(np.linalg.norm(spoken[:size] - whole[:size]) / np.linalg.norm(whole[:size]))
        rows.append([part, *map(figure, medians), f"{100 * error:.2g} %"])
        print(f"{part}: {rows[-1][1:]}", flush=True)
    print(table(columns, rows))


if __name__ == "__main__":
    main()
