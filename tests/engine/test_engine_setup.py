"""What a worker chooses when it is told nothing."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from block_pools import check_pool

from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.core.block_pool import BLOCK_SIZE
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.backends import describe_kernels, what_is_missing
from realtime_tts.engine.runtime.program import Program
from realtime_tts.engine.runtime.runner import ModelRunner
from realtime_tts.engine.setup import (
    choose_config,
    choose_device,
    choose_threads,
    make_engine,
    ready_message,
    warm_up,
)
from realtime_tts.errors import ConfigError, EngineStartError
from realtime_tts.model.checkpoint import LoadedModel

CPU = torch.device("cpu")
COSTS = ("fixed", "stream", "position")


def test_every_stream_has_blocks_for_the_longest_request(tiny: LoadedModel) -> None:
    config = choose_config(tiny, CPU, EngineOptions())
    assert config.num_blocks * BLOCK_SIZE >= config.max_streams * config.max_positions
    assert config.patch_s == tiny.config.patch_samples / tiny.config.sample_rate


@pytest.mark.parametrize(("max_streams", "num_blocks"), [(3, 7), (0, 0), (None, None)])
def test_options_are_kept_and_zero_means_choose(
    tiny: LoadedModel, max_streams: int | None, num_blocks: int | None
) -> None:
    config = choose_config(tiny, CPU, EngineOptions(max_streams=max_streams, num_blocks=num_blocks))
    assert config.max_streams == (max_streams or 16)
    assert config.num_blocks == (num_blocks or 16 * 8)


def test_devices_and_threads_by_name() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("nonsense", "cuda:99"):
        with pytest.raises(ConfigError):
            choose_device(name)
    assert choose_threads(3) == 3
    assert 1 <= choose_threads(0) <= 8


def test_warming_up_leaves_no_trace_but_knowledge_of_the_cost(tiny: LoadedModel) -> None:
    said: list[frames.Message] = []
    engine = Engine(tiny, choose_config(tiny, CPU, EngineOptions(max_streams=2)), emit=said.append)
    before_s, fresh = engine.scheduler.cost.step_s(1, 0), engine.stats()
    warm_up(engine)
    pool = engine.scheduler.pool
    check_pool(pool)
    assert (pool.num_available, pool.num_cached) == (pool.num_blocks, 0)
    assert (engine.scheduler.num_contexts, engine.num_steps, len(engine.continuity._memories)) == (0, 0, 0)
    cost = engine.scheduler.cost
    assert cost.step_s(1, 0) != before_s
    assert cost.upper_factor == 1.0
    costs = {f"{name}_ms": 1000 * weight for name, weight in zip(COSTS, cost.weights[:3], strict=True)}
    assert engine.stats() == dataclasses.replace(fresh, real_time_streams=engine.stats().real_time_streams, **costs)
    # As callers do: a text that is extended, a context that goes on, and steps over all that fit.
    done = {message.request_id: message for message in said if isinstance(message, frames.Done)}
    assert not [message for message in said if isinstance(message, frames.Failed)]
    assert done["extended"].extensions == 1
    assert all(one.num_patches > 1 for one in done.values())
    said.clear()
    engine.step()
    assert said == []
    ready = ready_message(engine, CPU, EngineOptions(), 1.0)
    assert dataclasses.asdict(ready)["policy"] == tiny.policy.to_map()
    assert frames.Decoder().feed(frames.encode(ready)) == [ready]


def test_the_streams_of_a_cpu_are_estimated_from_the_steps_of_its_warm_up(tiny: LoadedModel) -> None:
    """The first streams of a CPU cost about as much as further ones; a server that expects a GPU lets in too many."""
    engine = warmed_up(tiny, 0.3)
    assert engine.scheduler.cost.step_s(1, 0) == pytest.approx(0.3 * engine.config.patch_s, rel=0.2)
    assert 4 <= engine.stats().real_time_streams <= 6, "half of a step is for its stream"


@pytest.mark.parametrize(("step_patches", "number"), [(0.7, 0), (1.5, 1)])
def test_a_device_that_is_too_slow_for_live_speech_is_in_the_log(
    tiny: LoadedModel, step_patches: float, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    warmed_up(tiny, step_patches)
    assert sum("too slow for live speech" in record.getMessage() for record in caplog.records) == number


def warmed_up(tiny: LoadedModel, step_patches: float) -> Engine:
    """An engine whose steps all take as long, in durations of a patch, by a clock that is read once in each."""
    config, reads = choose_config(tiny, CPU, EngineOptions()), itertools.count()
    engine = Engine(tiny, config, lambda message: None, lambda: step_patches * config.patch_s * next(reads))
    warm_up(engine)
    return engine


def test_modes_are_reported_and_invalid_ones_refused(tiny: LoadedModel) -> None:
    options = EngineOptions(max_streams=2)
    engine = make_engine(tiny, CPU, options)
    ready = ready_message(engine, CPU, options, 1.0)
    assert ready.fp8 == "off"
    assert engine.runner.programs.flow.sizes == ()
    for wrong, problem, field in (
        ({"fp8": "flow"}, "fused kernels: the device is cpu", "fp8"),
        ({"fp8": "flow", "attention": "sdpa"}, "fused kernels", "fp8"),
        ({"fp8": "all"}, "off, flow", "fp8"),
    ):
        with pytest.raises(ConfigError, match=problem) as caught:
            make_engine(tiny, CPU, EngineOptions(**wrong))
        assert caught.value.field == field


def test_the_attention_is_chosen_by_what_there_is(tiny: LoadedModel) -> None:
    engine = make_engine(tiny, CPU, EngineOptions(max_streams=2))
    assert engine.runner.backend.name == "sdpa"
    assert not any(program.sizes for program in vars(engine.runner.programs).values() if isinstance(program, Program))
    for name, problem in (("triton", "the device is cpu"), ("flash", "auto, sdpa, triton")):
        with pytest.raises(ConfigError, match=problem) as caught:
            make_engine(tiny, CPU, EngineOptions(attention=name))
        assert caught.value.field == "attention"


def test_what_the_kernels_need_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/gcc" if name == "gcc" else None)
    monkeypatch.delenv("CC", raising=False)
    cuda = torch.device("cuda")
    assert what_is_missing(cuda, 128) is None
    for head_dim in (8, 96):
        assert str(head_dim) in str(what_is_missing(cuda, head_dim))
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "compiler" in str(what_is_missing(cuda, 128))
    monkeypatch.setenv("CC", "/opt/bin/cc")
    assert what_is_missing(cuda, 128) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "triton" in str(what_is_missing(cuda, 128))


def test_what_stacks_run_through_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `doctor` shows it: on a CPU, without Triton, on Hopper with and without NVRTC's bindings, on others."""
    assert describe_kernels(CPU) == {"kernels": "plain torch"}
    cuda, packages = torch.device("cuda"), {"triton": 1, "cuda": 1, "cuda.bindings": 1}
    monkeypatch.setattr("importlib.util.find_spec", packages.get)
    monkeypatch.setenv("CC", "/opt/bin/cc")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "a GPU")
    monkeypatch.setattr("realtime_tts.model.kernels.fp8_products._missing_in_the_library", lambda device: None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    assert "--fp8 flow" in describe_kernels(cuda)["fp8"]
    assert "whole stacks" in describe_kernels(cuda)["one or few streams"]
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    few = describe_kernels(cuda)["one or few streams"]
    assert "Hopper" in few
    assert "40 % longer" in few
    assert "Hopper GPUs, not for a GPU" in describe_kernels(cuda)["fp8"]
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    packages.pop("cuda.bindings")
    assert "cuda-bindings" in describe_kernels(cuda)["one or few streams"]
    packages.clear()
    kernels = describe_kernels(cuda)["kernels"]
    assert "triton" in kernels
    assert "5 to 13 times as long" in kernels


def test_what_cannot_be_captured_ends_the_start_with_a_way_out(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: ModelRunner) -> int:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(ModelRunner, "capture", broken)
    with pytest.raises(EngineStartError, match=r"--attention eager.*no kernel image"):
        make_engine(tiny, CPU, EngineOptions(max_streams=2))
    assert make_engine(tiny, CPU, EngineOptions(max_streams=2, attention="eager")).num_steps == 0
