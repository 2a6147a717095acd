"""A step as programs over static tensors: padding changes no stream, and what crosses to the device."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness, speaking

from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.core.request import FinishReason
from realtime_tts.engine.runtime.columns import StepColumns
from realtime_tts.engine.runtime.inputs import StepInputs
from realtime_tts.engine.runtime.program import Parts, Program, sizes_up_to
from realtime_tts.model.checkpoint import LoadedModel

TEXTS = ["hello", "theweatherisnicetoday", "yes", "abcdefghij" * 5, "quick", "brownfox"]
HEAD = {"text_head": TextHead(1, 2, 40.0)}


def speak(loaded: LoadedModel, padding: int, *, looks_ahead: bool = False, **limits: int) -> EngineHarness:
    """Streams that join and leave, prefills in parts, two numbers of flow steps, a cached prefix, readings."""
    harness = EngineHarness(loaded, HEAD, max_prefill_positions=16, max_streams=5, **limits)
    programs = harness.engine.runner.programs
    harness.engine.runner.is_asynchronous = looks_ahead
    for program in (value for value in vars(programs).values() if isinstance(value, Program)):
        program.padded = lambda size: size + padding if size else 0  # type: ignore[method-assign]
    for number, text in enumerate([*TEXTS, TEXTS[3]]):
        steps = 3 if number % 3 == 1 else loaded.policy.default_steps
        harness.say(f"r{number}", text, seed=number, max_patches=4 + number, steps=steps)
        harness.engine.step()
    harness.run()
    harness.assert_nothing_leaked()
    return harness


@pytest.fixture(scope="module")
def plain(tiny: LoadedModel) -> EngineHarness:
    """All has been said, without padding or looking ahead."""
    return speak(tiny, 0)


def test_padded_rows_change_nothing(tiny: LoadedModel, plain: EngineHarness) -> None:
    padded = speak(tiny, padding=3)
    for number in range(len(TEXTS) + 1):
        expected = plain.pcm(f"r{number}")
        assert expected.size
        np.testing.assert_allclose(padded.pcm(f"r{number}"), expected, atol=1e-4 * np.abs(expected).max())
    positions = [[m.text_position for m in h.sent if isinstance(m, frames.Audio)] for h in (plain, padded)]
    assert positions[0] == pytest.approx(positions[1], abs=1e-3)
    assert any(positions[0])


@pytest.mark.parametrize("limits", [{}, {"full_streams": 1}, {"full_streams": 2}])
def test_looking_ahead_changes_nothing(tiny: LoadedModel, plain: EngineHarness, limits: dict[str, int]) -> None:
    """Nor does it matter which streams share a step."""
    ahead = speak(tiny, 0, looks_ahead=True, **limits)
    for number in range(len(TEXTS) + 1):
        expected = plain.pcm(f"r{number}")
        np.testing.assert_allclose(ahead.pcm(f"r{number}"), expected, atol=1e-4 * np.abs(expected).max())
        # A request that is admitted before the step with the same prefix is over cannot use it.
        ends = [{**dataclasses.asdict(h.end(f"r{number}")), "cached_positions": 0} for h in (plain, ahead)]
        assert ends[0] == ends[1]


@pytest.mark.parametrize("end", ["stop", "cancel", "close", "nan"])
def test_a_stream_that_ends_while_the_next_step_is_computed_sends_no_more_audio(tiny: LoadedModel, end: str) -> None:
    """A step ahead was launched with the stream in it: its result is dropped, and what it held goes to others."""
    harness = EngineHarness(tiny, num_blocks=24)
    engine, runner = harness.engine, harness.engine.runner
    runner.is_asynchronous = True
    for name in ("x", "y"):
        harness.say(name, "hello", seed=1, max_patches=20)
    while len([m for m in harness.sent if isinstance(m, frames.Audio)]) < 8:
        engine.step()
    assert engine._flight is not None
    assert speaking(engine._flight.layout) == ("x", "y")
    num_before = len(harness.sent)
    if end == "stop":
        finished = engine.scheduler.end("x", FinishReason.STOP)
        engine._end(finished)
    elif end == "nan":
        runner.state.last_patch[engine._segments["x"].request.slot] = float("nan")
        runner.state.lm_hidden[engine._segments["x"].request.slot] = float("nan")
    else:
        engine.post(frames.Cancel("x") if end == "cancel" else frames.CloseContext("x"))
    harness.say("z", "hello", seed=1, max_patches=20)
    harness.run()
    assert isinstance(harness.end("x"), frames.Failed if end == "nan" else frames.Done)
    audio = [m for m in harness.sent[num_before:] if isinstance(m, frames.Audio) and m.request_id == "x"]
    assert len(audio) == (1 if end == "nan" else 0)  # a step that was on its way when the values broke is sound
    np.testing.assert_allclose(harness.pcm("z"), harness.pcm("y"), atol=1e-4)
    harness.assert_nothing_leaked()
    assert torch.isfinite(runner.state.kv.pool).all()


def test_the_programs_wait_for_nothing_and_grow_nothing(tiny: LoadedModel) -> None:
    """After the first steps a step keeps every tensor where it is: what was captured stays valid."""
    harness = EngineHarness(tiny)
    runner = harness.engine.runner

    def places() -> list[int]:
        state, inputs, outputs = runner.state, runner.inputs, runner.outputs
        tensors = [state.kv.pool, state.block_tables, state.last_patch, *state.vae.tensors]
        tensors += [value for owner in (inputs, outputs) for value in vars(owner).values() if torch.is_tensor(value)]
        return [tensor.data_ptr() for tensor in tensors]

    before = places()
    for number, text in enumerate(TEXTS):
        harness.say(f"r{number}", text)
        harness.engine.step()
    harness.run()
    assert places() == before


def columns(**values: list[float]) -> StepColumns[list[float]]:
    return StepColumns(**{field.name: values.get(field.name, []) for field in dataclasses.fields(StepColumns)})


def test_a_field_is_padded_behind_its_values() -> None:
    inputs = StepInputs(6, 4, 3, (2, 8), scratch_slot=9, device=torch.device("cpu"))
    keys = [-(2**63), 2**63 - 1]
    inputs.put(columns(slots=[1, 2, 3, 4], audio_index=[0, -1], cfg=[2.0, 1.5, 3.0], noise_keys=keys))
    assert inputs.slots.tolist() == [1, 2, 3, 4, 9, 9]
    inputs.put(columns(slots=[7], audio_index=[0], cfg=[2.0, 1.5, 3.0], noise_keys=keys))
    assert inputs.slots.tolist() == [7, 9, 9, 9, 9, 9]
    assert inputs.audio_index.tolist() == [0, -1, -1, -1, -1, -1]
    assert inputs.cfg.tolist() == [2.0, 1.5, 3.0, 0.0]
    assert inputs.noise_keys.tolist() == [-(2**63), 2**63 - 1, 0, 0]
    patches = np.arange(48, dtype=np.float32).reshape(3, 2, 8)
    inputs.send([patches[:0], patches[:1], patches[1:]])
    assert np.array_equal(inputs.patches.numpy(), patches)
    assert inputs.slots.tolist() == [7, 9, 9, 9, 9, 9]


def test_a_program_without_graphs_runs_the_size_it_is_asked_for() -> None:
    sizes: list[int] = []
    program = Program(sizes.append)
    for size in (3, 0, 7):
        program(program.padded(size))
    assert sizes == [3, 7]  # nothing to do is not done


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize("largest", [1, 3, 16, 100, 256, 768])
def test_captured_sizes_are_few_and_close(largest: int, fine: bool) -> None:
    sizes = sizes_up_to(largest, fine=fine)
    assert (sizes[0], sizes[-1], sizes) == (1, largest, sorted(set(sizes)))
    assert all(later <= (max(before + 2, 1.5 * before) if fine else 2 * before) for before, later in pairwise(sizes))
    assert len(sizes) < (70 if fine else 30)


def test_rows_are_sliced_once_and_no_more_are_kept_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_tts.engine.runtime.program._MAX_PARTS", 3)
    parts, first, second = Parts(), torch.arange(8), torch.arange(8, 16)
    assert parts(first, 2, 5) is parts(first, 2, 5)
    assert parts(second, 2, 5).tolist() == [10, 11, 12]
    for end in range(8):
        parts(first, 0, end)[:] = -1  # views, not copies
    assert first.tolist() == [-1] * 7 + [7]
    assert len(parts._made) <= 3
