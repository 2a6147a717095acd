"""The whole engine on a GPU with the bundled voice: graphs, padding, batches and the CPU agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from random_adapters import write_adapter
from voices import STARTER_DIRECTORY

from realtime_tts.bench.checkpoint import adapter_tensors
from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.program import Program
from realtime_tts.engine.setup import make_engine
from realtime_tts.model.adapted import AdapterLimits
from realtime_tts.model.adapter_file import read_adapter
from realtime_tts.model.checkpoint import LoadedModel, load_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
    pytest.mark.usefixtures("cuda_context"),
]

TEXTS = [
    "Good morning, how can I help you today?",
    "Yes.",
    "Your table is booked for seven in the evening.",
    "I found three hotels near the station.",
    "The next train to the city leaves in ten minutes.",
    "Hold on.",
    "The package should arrive before the end of the week.",
    "Sorry, I did not catch the last part.",
]
NUM_PATCHES = 8


@pytest.fixture(scope="module")
def starter() -> LoadedModel:
    pytest.importorskip("triton", reason="needs triton")
    return load_model(STARTER_DIRECTORY, "cuda", torch.float32)


class Voices:
    """An engine that collects what its streams say."""

    def __init__(
        self, loaded: LoadedModel, device: str = "cuda", limits: dict[str, int] | None = None, **options: object
    ) -> None:
        self.sent: list[frames.Message] = []
        options = {"max_streams": 12, "num_blocks": 400, **options}
        self.engine: Engine = make_engine(
            loaded, torch.device(device), EngineOptions(**options), max_prefill_positions=64, **(limits or {})
        )
        self.engine.output.emit = self.sent.append

    def say(self, number: int, **fields: object) -> None:
        name = f"s{number}"
        fields = {"seed": number, "max_patches": NUM_PATCHES, "paced": False, "encoding": "f32le", **fields}
        self.engine.post(frames.Generate(name, name, TEXTS[number], **fields))

    def run(self) -> None:
        while self.engine.step() or not self.engine.is_idle:
            pass

    def pcm(self, number: int) -> np.ndarray:
        failed = [m for m in self.sent if isinstance(m, frames.Failed)]
        assert not failed
        parts = [m.payload for m in self.sent if isinstance(m, frames.Audio) and m.request_id == f"s{number}"]
        return np.frombuffer(b"".join(parts), "<f4")

    def positions(self) -> list[float]:
        """Stream by stream: which streams share a step depends on how far ahead steps are planned."""
        told = [m for m in self.sent if isinstance(m, frames.Audio) and m.text_position is not None]
        return [m.text_position for number in range(len(TEXTS)) for m in told if m.request_id == f"s{number}"]

    def ragged(self) -> None:
        """Each stream joins when the one before has begun; two have another number of flow steps."""
        for number in range(len(TEXTS)):
            self.say(number, **({"steps": 4} if number in (2, 5) else {}))
            self.engine.step()
        self.run()


def close(ours: np.ndarray, expected: np.ndarray, bound: float) -> None:
    assert ours.shape == expected.shape
    assert np.abs(expected).max() > 0.01
    assert np.linalg.norm(ours - expected) < bound * np.linalg.norm(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replays_are_what_the_programs_compute_bit_for_bit(dtype: torch.dtype) -> None:
    loaded = load_model(STARTER_DIRECTORY, "cuda", dtype)
    captured, eager = Voices(loaded), Voices(loaded)
    programs = eager.engine.runner.programs
    for program in (value for value in vars(programs).values() if isinstance(value, Program)):
        assert program.sizes
        program._graphs.clear()  # the padding stays: products of other sizes are rounded in another way
    for voices in (captured, eager):
        voices.ragged()
    for number in range(len(TEXTS)):
        assert np.array_equal(captured.pcm(number), eager.pcm(number))
        assert captured.pcm(number).size
    assert captured.positions() == eager.positions()
    assert captured.positions()


def test_eight_ragged_streams_equal_eight_alone(starter: LoadedModel) -> None:
    voices = Voices(starter)
    voices.ragged()
    for number in range(len(TEXTS)):
        alone = Voices(starter, attention="eager")
        alone.say(number, **({"steps": 4} if number in (2, 5) else {}))
        alone.run()
        close(voices.pcm(number), alone.pcm(number), 2e-2)  # of which a half-precision decoder's rounding is the most


def test_a_step_that_waits_for_the_device_says_what_it_says_alone(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two in a step, the next one given to the device while it computes this one: inputs, tables and the decoder's
    rows of one must not reach the other."""
    voices = Voices(starter, limits={"full_streams": 2})
    runner, num_given, most = voices.engine.runner, 0, 0
    launch, result = runner.launch, runner.result

    def counted_launch(layout: object) -> object:
        nonlocal num_given, most
        num_given += 1
        most = max(most, num_given)
        return launch(layout)

    def counted_result(*step: object) -> object:
        nonlocal num_given
        num_given -= 1
        return result(*step)

    monkeypatch.setattr(runner, "launch", counted_launch)
    monkeypatch.setattr(runner, "result", counted_result)
    voices.ragged()
    assert (most, num_given) == (2, 0)
    assert voices.engine.gap_s >= 0.0
    for number in range(len(TEXTS)):
        alone = Voices(starter, attention="eager")
        alone.say(number, **({"steps": 4} if number in (2, 5) else {}))
        alone.run()
        close(voices.pcm(number), alone.pcm(number), 2e-2)


def test_the_gpu_says_what_the_cpu_says(starter: LoadedModel) -> None:
    gpu, cpu = Voices(starter), Voices(load_model(STARTER_DIRECTORY, "cpu"), device="cpu")
    for voices in (gpu, cpu):
        voices.ragged()
    for number in range(len(TEXTS)):
        close(gpu.pcm(number), cpu.pcm(number), 3e-2)
    assert gpu.positions() == pytest.approx(cpu.positions(), abs=0.05)


def test_two_adapters_and_none_in_one_batch_say_what_they_say_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs triton")
    limits = AdapterLimits(max_adapters=3, max_rank=8)
    whose = [(None, "first", "second")[number % 3] for number in range(len(TEXTS))]
    said: list[Voices] = []
    for device in ("cuda", "cpu"):
        loaded = load_model(STARTER_DIRECTORY, device, torch.float32)
        room = {"max_adapters": limits.max_adapters, "max_adapter_rank": limits.max_rank}
        voices = Voices(loaded, device=device, **room)
        for seed, name in enumerate(("first", "second")):
            tensors = adapter_tensors(loaded.model, seed)
            quiet = {key: 0.2 * tensor if key.endswith("B") else tensor for key, tensor in tensors.items()}
            directory = write_adapter(tmp_path / device / name, quiet)
            voices.engine.post(read_adapter(name, directory, loaded.model, limits))
        for number, name in enumerate(whose):
            voices.say(number, adapter=name, **({"steps": 4} if number in (2, 5) else {}))
            voices.engine.step()
        voices.run()
        said.append(voices)
    gpu, cpu = said
    assert gpu.engine.runner._adapted_programs.flow.sizes == gpu.engine.runner.programs.flow.sizes != ()
    for number in range(len(TEXTS)):
        close(gpu.pcm(number), cpu.pcm(number), 3e-2)
    alone = Voices(load_model(STARTER_DIRECTORY, "cuda", torch.float32))  # without room for any
    gpu.engine.post(frames.CloseContext("s0"))  # else it goes on from what was said
    gpu.sent.clear()
    for voices in (alone, gpu):
        voices.say(0)
        voices.run()
    close(
        gpu.pcm(0), alone.pcm(0), 1e-3
    )  # by the graphs of streams without an adapter; which products they hold is timed


def test_plain_torch_serves_as_well(starter: LoadedModel) -> None:
    plain, fused = Voices(starter, attention="sdpa"), Voices(starter, attention="triton")
    names = [voices.engine.runner.backend.name for voices in (plain, fused)]
    assert names == ["sdpa", "triton"]
    fused.ragged()
    expected = [fused.pcm(number) for number in range(len(TEXTS))]
    plain = Voices(starter, attention="sdpa")
    plain.ragged()
    for number in range(len(TEXTS)):
        close(plain.pcm(number), expected[number], 3e-2)


def test_an_opening_from_memory_has_the_samples_that_were_made_and_goes_on_as_they_did(starter: LoadedModel) -> None:
    voices = {kept: Voices(starter) for kept in (True, False)}
    ends = ["for seven.", "for seven.", "for seven.", "for eight, and your name is on the list."]
    num_steps: list[dict[bool, int]] = []
    for turn, end in enumerate(ends):
        num_steps.append({})
        name, text = f"s{turn}", "Your table is booked "
        for kept, own in voices.items():
            before = own.engine.num_steps
            common = {"voice": "heart", "seed": 3, "paced": False, "encoding": "f32le"}
            own.engine.post(frames.Generate(name, name, text, final=False, openings=kept, **common))
            while own.engine.step():
                pass
            own.engine.post(frames.Extend(name, text + end, final=True))
            own.run()
            own.engine.post(frames.CloseContext(name))
            own.engine.step()
            num_steps[turn][kept] = own.engine.num_steps - before
        close(voices[True].pcm(turn), voices[False].pcm(turn), 2e-2)  # a prefill is rounded otherwise than a step
    assert np.array_equal(voices[True].pcm(2), voices[False].pcm(2))
    assert num_steps[2][True] == 0
    assert 0 < num_steps[3][True] < num_steps[3][False]


def test_nothing_grows_after_warm_up(starter: LoadedModel) -> None:
    """Requests of random shapes: nothing is captured or compiled, and the device's memory stays as it was."""
    voices = Voices(starter)
    voices.ragged()
    generator = np.random.RandomState(0)
    sizes = [program.sizes for program in vars(voices.engine.runner.programs).values() if hasattr(program, "sizes")]
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    for turn in range(60):
        text = " ".join(TEXTS[generator.randint(len(TEXTS))].split()[: generator.randint(1, 12)])
        name = f"t{turn}"
        voices.engine.post(
            frames.Generate(name, name, text, seed=turn, max_patches=int(generator.randint(1, 12)), paced=False)
        )
        for _ in range(generator.randint(3)):
            voices.engine.step()
    voices.run()
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() == before
    after = [program.sizes for program in vars(voices.engine.runner.programs).values() if hasattr(program, "sizes")]
    assert after == sizes
