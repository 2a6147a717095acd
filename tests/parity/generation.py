"""Streams with given noise, stepped together or apart, with all that their steps computed."""

from __future__ import annotations

import dataclasses
from unittest.mock import patch

from torch import Tensor

from realtime_tts.model import generate
from realtime_tts.model.generate import OfflineRunner, Stream
from realtime_tts.model.voxcpm import VoxCPM

BLOCK_SIZE = 4  # small, so that short inputs fill some


@dataclasses.dataclass
class Recorded(Stream):
    """Runs until its noise is used up; joins the batch `start_step` steps after the first stream."""

    start_step: int = 0
    num_patches: int = 0
    lm_hidden: list[Tensor] = dataclasses.field(default_factory=list)
    residual_hidden: list[Tensor] = dataclasses.field(default_factory=list)
    stop_flags: list[bool] = dataclasses.field(default_factory=list)


def new_runner(model: VoxCPM, num_flow_steps: int = 10) -> OfflineRunner:
    with patch.object(generate, "BLOCK_SIZE", BLOCK_SIZE):
        return OfflineRunner(model, 256, flow_steps=num_flow_steps)


def step(runner: OfflineRunner, streams: list[Recorded]) -> None:
    streams = sorted(streams, key=lambda stream: stream.num_new == 1)
    made = runner.step(streams)
    for stream, hidden, residual, stop in zip(
        streams, made.lm_hidden, made.residual_hidden, made.stops.tolist(), strict=True
    ):
        stream.lm_hidden.append(hidden)
        stream.residual_hidden.append(residual)
        stream.stop_flags.append(stop)


def run(runner: OfflineRunner, streams: list[Recorded]) -> None:
    """Until every stream has used its noise."""
    number = 0
    while active := [stream for stream in streams if len(stream.patches) < stream.num_patches]:
        if ready := [stream for stream in active if stream.start_step <= number]:
            step(runner, ready)
        number += 1
