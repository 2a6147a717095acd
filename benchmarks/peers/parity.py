"""Distance of this engine in bfloat16, with its graphs and kernels, from the reference in float32, compared with the
distance of the reference in bfloat16: patch by patch, with the same noise and the same patches before each.

    realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
    python -m benchmarks.peers.parity --model random-voxcpm2

The reference (`voxcpm`) in float32 speaks some texts; what it makes is the truth. The others make each patch from the
true ones before it, so that no step is judged by the error of another one. The exit status is 1 if a batch of ours is
further from the truth than the reference in bfloat16.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.peers.__main__ import environment, lay_out
from benchmarks.peers.engines import CFG, STEPS
from realtime_tts.bench.report import document, table, write_json
from realtime_tts.bench.texts import turn
from realtime_tts.contract import frames
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.layout import StepLayout
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.engine.setup import EngineOptions, make_engine
from realtime_tts.engine.worker import load_checkpoint

Truth = list[Tensor]  # of each text its patches [num_patches, patch_size, latent_dim], float32


class Reference:
    """The reference package's model, and what its steps are made from."""

    def __init__(self, model: Path, dtype: str, directory: Path, device: str) -> None:
        config = {**json.loads((model / "config.json").read_text(encoding="utf-8")), "dtype": dtype}
        own = lay_out(model, directory)
        (own / "config.json").unlink()
        (own / "config.json").write_text(json.dumps(config), encoding="utf-8")
        from voxcpm.model.voxcpm2 import VoxCPM2Model

        with _uninitialised():
            self._model: Any = VoxCPM2Model.from_local(str(own), optimize=False, device=device)
        self._solve, self._decode = self._model.feat_decoder.solve_euler, self._model.feat_decoder.forward

    @torch.inference_mode()
    def speak(self, text: str, seed: int, num_patches: int, truth: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """→ patches as each was made, [num_patches, patch_size, latent_dim] float32, and the audio of what stood in
        their place: `truth`, or themselves."""
        model, made = self._model, []
        key = torch.tensor([noise_key(seed)], device=model.device)

        def solve(x: Tensor, **inputs: Any) -> Tensor:
            index = torch.tensor([len(made)], device=x.device)
            noise = patch_noise(key, index, model.patch_size, model.feat_dim)
            return self._solve(x=noise.transpose(1, 2).to(x.dtype).contiguous(), **inputs)

        def decode(**inputs: Any) -> Tensor:
            patch = self._decode(**inputs)
            made.append(patch[0].T.float().clone())
            return patch if truth is None else truth[len(made) - 1].T[None].to(patch)

        model.feat_decoder.solve_euler, model.feat_decoder.forward = solve, decode
        audio, _, _ = model.generate_with_prompt_cache(
            target_text=text,
            prompt_cache=None,
            min_len=num_patches,
            max_len=num_patches,
            inference_timesteps=STEPS,
            cfg_value=CFG,
        )
        return torch.stack(made), audio.flatten().float().cpu()


@contextmanager
def _uninitialised() -> Iterator[None]:
    """Layers of two thousand million weights are not drawn, only to be loaded."""
    kinds = (torch.nn.Linear, torch.nn.Embedding)
    before = [kind.reset_parameters for kind in kinds]
    for kind in kinds:
        kind.reset_parameters = lambda self: None  # type: ignore[method-assign, assignment]
    yield
    for kind, method in zip(kinds, before, strict=True):
        kind.reset_parameters = method  # type: ignore[method-assign, assignment]


class Forced:
    """Stands before the flow's program: what it makes is noted, and the truth takes its place before the decoder and
    the next step read it."""

    def __init__(self, engine: Engine, truth: Mapping[str, Tensor]) -> None:
        self.made: dict[str, list[Tensor]] = defaultdict(list)
        self.truth = truth
        runner = engine.runner
        self._outputs, self._state, self._program = runner.outputs, runner.state, runner.programs.flow
        self._layout: StepLayout | None = None
        launch = runner.launch

        def launch_noted(layout: StepLayout) -> Any:
            self._layout = layout
            return launch(layout)

        runner.launch, runner.programs.flow = launch_noted, self  # type: ignore[method-assign, assignment]

    def padded(self, count: int) -> int:
        return self._program.padded(count)

    def __call__(self, size: int) -> None:
        self._program(size)
        layout = self._layout
        assert layout is not None
        for name, row, (slot, _) in zip(layout.speaking, layout.speech, layout.following, strict=True):
            patch = self.truth[name][int(layout.values["patch_index"][row])]
            self.made[name].append(self._outputs.patches[row].clone())
            self._outputs.patches[row].copy_(patch)
            self._state.last_patch[slot].copy_(patch)


class Ours:
    """This engine as it serves."""

    def __init__(self, model: Path, device: str, max_streams: int) -> None:
        options = EngineOptions(model=str(model), device=device, dtype="bfloat16", max_streams=max_streams)
        loaded, found = load_checkpoint(options)
        with torch.inference_mode():
            loaded.model.stop_head.weight.zero_()
        self._sent: list[frames.Message] = []
        self.engine = make_engine(loaded, found, options, lambda message: self._sent.append(message))
        self.num_graphs = len(self.engine.runner.programs.flow.sizes)
        self._forced = Forced(self.engine, {})

    def speak(self, texts: list[str], truth: Truth, num_streams: int) -> tuple[list[Tensor], list[Tensor]]:
        """Everything that is said, `num_streams` at once, a text several times over if there are fewer. → of each text
        its patches as they were made, and its audio.
        """
        asked = partial(frames.Generate, cfg=CFG, steps=STEPS, paced=False, encoding="f32le")
        copies = max(1, num_streams // len(texts))
        made: list[Tensor] = []
        audio: list[Tensor] = []
        for first in range(0, len(texts), num_streams):
            group = range(first, min(len(texts), first + num_streams))
            names = {f"{copy}-{number}": number for copy in range(copies) for number in group}
            self._sent.clear()
            self._forced.made.clear()
            self._forced.truth = {name: truth[number] for name, number in names.items()}
            for name, number in names.items():
                message = asked(name, name, texts[number], seed=number, max_patches=len(truth[number]))
                self.engine.post(message)
            while self.engine.step() or not self.engine.is_idle:
                pass
            for name in names:
                self.engine.post(frames.CloseContext(name))
            self.engine.step()
            failed = [message for message in self._sent if isinstance(message, frames.Failed)]
            assert not failed, failed
            for number in group:
                made.append(torch.stack(self._forced.made[f"{copies - 1}-{number}"]))
                audio.append(self._audio(f"{copies - 1}-{number}"))
        return made, audio

    def _audio(self, name: str) -> Tensor:
        payloads = [m.payload for m in self._sent if isinstance(m, frames.Audio) and m.request_id == name]
        return torch.frombuffer(bytearray(b"".join(payloads)), dtype=torch.float32)


def distances(made: list[Tensor], truth: Truth) -> Tensor:
    """[texts, patches]: of each patch ‖made − true‖ / ‖true‖."""
    pairs = [(ours.cpu(), true.cpu()) for ours, true in zip(made, truth, strict=True)]
    return torch.stack([(ours - true).flatten(1).norm(dim=1) / true.flatten(1).norm(dim=1) for ours, true in pairs])


def audio_distance(made: list[Tensor], truth: list[Tensor]) -> float:
    """Mean over texts; what an engine leaves out in front is left out."""
    pairs = [(ours, true[len(true) - len(ours) :]) for ours, true in zip(made, truth, strict=True)]
    return sum(float((ours - true).norm() / true.norm()) for ours, true in pairs) / len(pairs)


def measure(arguments: argparse.Namespace, root: Path) -> dict[str, dict[str, Any]]:
    """Return, for each engine, `patches` [texts, patches], the distance of each patch; and `audio`, None if the decoder
    is the reference's."""
    device = arguments.device
    texts = [turn(5 + 3 * number, number) for number in range(arguments.texts)]
    bar = tqdm(total=2 + len(arguments.streams), disable=not sys.stderr.isatty())
    bar.set_description("reference, float32")
    reference = Reference(arguments.model, "float32", root / "float32", device)
    said = [reference.speak(text, number, arguments.patches) for number, text in enumerate(texts)]
    truth, audio = [patches for patches, _ in said], [samples for _, samples in said]
    del reference, said
    gc.collect()
    bar.update()
    bar.set_description("reference, bfloat16")
    reference = Reference(arguments.model, "bfloat16", root / "bfloat16", device)
    made = [reference.speak(text, number, arguments.patches, truth[number])[0] for number, text in enumerate(texts)]
    results: dict[str, dict[str, Any]] = {"reference, bfloat16": {"patches": distances(made, truth), "audio": None}}
    del reference
    gc.collect()
    torch.cuda.empty_cache()
    bar.update()
    ours = Ours(arguments.model, device, max(arguments.streams))
    for num_streams in arguments.streams:
        bar.set_description(f"ours, {num_streams} at once")
        made, said_by_us = ours.speak(texts, truth, num_streams)
        name = f"ours, {num_streams} at once" + ("" if ours.num_graphs else ", without graphs")
        results[name] = {"patches": distances(made, truth), "audio": audio_distance(said_by_us, audio)}
        bar.update()
    bar.close()
    return results


def further(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which of ours are further from the truth than the reference is, in the mean over all texts: with the first patch,
    or with all of them."""
    bar = results["reference, bfloat16"]["patches"].mean(dim=0)
    means = {name: result["patches"].mean(dim=0) for name, result in results.items()}
    return [name for name, mean in means.items() if mean[0] > bar[0] or mean.mean() > bar.mean()]


def report(results: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, result in results.items():
        patches = result["patches"]
        line = [name, *(f"{value:.2%}" for value in patches.mean(dim=0).tolist())]
        line += [f"{patches.mean():.2%}", f"{patches.max():.2%}"]
        lines.append([*line, "–" if result["audio"] is None else f"{result['audio']:.3%}"])
    num_patches = next(iter(results.values()))["patches"].shape[1]
    numbers = [f"patch {number + 1}" for number in range(num_patches)]
    return table(["from the reference in float32, mean", *numbers, "all", "largest", "decoder"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, required=True, help="a VoxCPM2 checkpoint directory, such as a random one"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--texts", type=int, default=8, help="of different lengths (default 8)")
    parser.add_argument("--patches", type=int, default=6, help="of each (default 6)")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 64], help="of ours at once")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory(prefix="parity-") as temporary:
        root = Path(temporary)
        sys.path += environment(root)["PYTHONPATH"].split(":")  # where empty modules stand in for what is not needed
        results = measure(arguments, root)
    print(report(results))
    if arguments.json:
        raw = {name: {**result, "patches": result["patches"].tolist()} for name, result in results.items()}
        settings = {name: value for name, value in vars(arguments).items() if name not in ("model", "json")}
        write_json(arguments.json, document("parity", settings, {"model": str(arguments.model)}, raw))
    if worse := further(results):
        sys.exit(f"further from float32 than the reference is: {', '.join(worse)}")


if __name__ == "__main__":
    main()
