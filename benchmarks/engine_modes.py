"""Effect of the engine's optional modes on speech: fp8 products, guidance on part of the flow, fewer flow steps.

    python -m benchmarks.engine_modes --sentences 120 --json engine_modes.json

Two comparisons with the model as it is. Patch by patch, each mode makes the same patch from the same state: how far it
is from the float32 one, and how its spectrum differs. And each mode speaks for itself, from the first patch to the end:
is it understood as well? Eight bits are emulated: values are rounded as Hopper's units take them, sums are float32's.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.intelligibility import held_out
from realtime_tts.contract.location import local_directory
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.flow_matching import ALWAYS_GUIDED, FlowMatching, FlowSchedule, GuidedTimes
from realtime_tts.model.fp8 import in_eight_bits
from realtime_tts.model.generate import Noise, decode, generate
from realtime_tts.model.minicpm import MiniCPM
from realtime_tts.model.sequence import Patches, build_sequence, length_guard
from training.speech_metrics import distances, speech_seconds

NUM_SPECTRA = 40  # sentences whose spectra are compared
EIGHT_BIT_LAYERS = ("self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj")
Samples = np.ndarray[Any, np.dtype[np.int16]]


class RoundedLinear(nn.Module):
    """A linear layer without bias whose weight and input are rounded: `rounded` takes [M, K]."""

    def __init__(self, linear: nn.Linear, rounded: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight, self._rounded = rounded(linear.weight), rounded

    def forward(self, x: Tensor) -> Tensor:
        rows = self._rounded(x.reshape(-1, x.shape[-1]))
        return F.linear(rows, self.weight).unflatten(0, x.shape[:-1])


def to_fp8(x: Tensor) -> Tensor:
    return in_eight_bits(x).exact


def to_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().float()


@dataclasses.dataclass(frozen=True, slots=True)
class Mode:
    """rounded: what of the model is: `flow` to eight bits, `all`: the language models' products too; `bfloat16`: the
    flow's, for comparison."""

    name: str
    steps: int
    guided_times: GuidedTimes = ALWAYS_GUIDED
    rounded: str = "nothing"


def modes(steps: int) -> list[Mode]:
    """Return the modes of a model with its number of flow steps; the first is the reference of the others."""
    fewer = [count for count in (8, 6, 5, 4, 3) if count < steps]
    guided = [GuidedTimes(1.0, last) for last in (0.3, 0.5, 0.65, 0.75)]
    guided += [GuidedTimes(first, 0.0) for first in (0.9, 0.75, 0.5)] + [GuidedTimes(0.9, 0.4)]
    return [
        Mode("as it is", steps),
        Mode("bfloat16 flow", steps, rounded="bfloat16"),
        Mode("fp8 flow", steps, rounded="flow"),
        Mode("fp8 flow and LMs", steps, rounded="all"),
        *(Mode(f"guided {times.first:g} to {times.last:g}", steps, times) for times in guided),
        Mode("unguided", steps, GuidedTimes(0.0, 0.0)),
        *(Mode(f"{count} steps", count) for count in fewer),
        Mode("fp8 flow, guided 1 to 0.5", steps, GuidedTimes(1.0, 0.5), rounded="flow"),
    ]


def round_products(stack: MiniCPM, rounded: Callable[[Tensor], Tensor]) -> None:
    for layer in stack.layers:
        for name in EIGHT_BIT_LAYERS:
            owner, _, child = name.partition(".")
            linear: nn.Linear = layer.get_submodule(name)  # type: ignore[assignment]
            setattr(layer.get_submodule(owner), child, RoundedLinear(linear, rounded))


def loaded_for(loaded: LoadedModel, mode: Mode) -> LoadedModel:
    """The model with the products of a mode."""
    if mode.rounded == "nothing":
        return loaded
    model = copy.deepcopy(loaded.model)
    round_products(model.feat_decoder.estimator.decoder, to_bfloat16 if mode.rounded == "bfloat16" else to_fp8)
    if mode.rounded == "all":
        round_products(model.base_lm, to_fp8)
        round_products(model.residual_lm, to_fp8)
    return dataclasses.replace(loaded, model=model)


class Speaker:
    """Sentences in one batch, with noise by sentence."""

    def __init__(self, loaded: LoadedModel, texts: Sequence[str], cfg: float) -> None:
        config, policy = loaded.config, loaded.policy
        self._loaded, self._texts, self._cfg = loaded, texts, cfg
        names = list(policy.voices)
        voices = [policy.voices[names[number % len(names)]] for number in range(len(texts))]
        ids = [loaded.tokenizer.encode(text) for text in texts]
        self._inputs = [
            build_sequence(config, own, prefix_ids=loaded.tokenizer.encode_trusted(voice.text_prefix))
            for own, voice in zip(ids, voices, strict=True)
        ]
        self._limits = [
            length_guard(len(own), len(text), policy.max_patches_per_char, config.max_length)
            for own, text in zip(ids, texts, strict=True)
        ]

    def speak(self, mode: Mode, loaded: LoadedModel | None = None) -> list[Patches]:
        loaded = loaded or loaded_for(self._loaded, mode)
        noises = [self._noise(number) for number in range(len(self._texts))]
        return generate(
            loaded.model,
            self._inputs,
            noises,
            self._limits,
            steps=mode.steps,
            cfg=self._cfg,
            guided_times=mode.guided_times,
        )

    def _noise(self, number: int) -> Noise:
        config, key = self._loaded.config, torch.tensor([noise_key(number)])
        return lambda index: patch_noise(key, torch.tensor([index]), config.patch_size, config.latent_dim)[0]


class Onlooker(nn.Module):
    """Replacement of a model's flow that lets all modes make the same patch from the same state."""

    def __init__(self, flow: FlowMatching, others: Sequence[tuple[Mode, FlowMatching]]) -> None:
        super().__init__()
        self.estimator, self._flow, self._others = flow.estimator, flow, others
        self._schedules = [own.schedule(mode.steps).parts(mode.guided_times) for mode, own in others]
        self.squares = np.zeros((len(others), 2))  # sums of squares, by mode: of its differences, of the reference
        self.made: list[list[Tensor]] = [[] for _ in others]

    def schedule(self, num_steps: int) -> FlowSchedule:
        return self._flow.schedule(num_steps)

    def forward(self, mu: Tensor, prefix: Tensor, noise: Tensor, schedule: FlowSchedule, cfg: Tensor) -> Tensor:
        patches = self._flow(mu, prefix, noise, schedule, cfg)
        for index, (_, flow) in enumerate(self._others):
            own = noise
            for part in self._schedules[index]:
                own = flow(mu, prefix, own, part, cfg)
            self.squares[index] += (own - patches).square().sum().item(), patches.square().sum().item()
            self.made[index].append(own)
        return patches


def compare_patches(loaded: LoadedModel, speaker: Speaker, chosen: Sequence[Mode]) -> list[dict[str, float]]:
    """Return each mode's distance of its patches from the first mode's, made from the same states."""
    base, *others = chosen
    flows = [(mode, loaded_for(loaded, mode).model.feat_decoder) for mode in others]
    model = copy.copy(loaded.model)
    model._modules = dict(model._modules)
    onlooker = Onlooker(loaded.model.feat_decoder, flows)
    model.feat_decoder = onlooker  # type: ignore[assignment]
    exact = speaker.speak(base, dataclasses.replace(loaded, model=model))
    rows = []
    for index in range(len(others)):
        made = _by_stream(onlooker.made[index], [len(patches) for patches in exact])
        spectra = [
            distances(_samples(loaded, own), _samples(loaded, reference), aligned=True)[1]
            for own, reference in list(zip(made, exact, strict=True))[:NUM_SPECTRA]
        ]
        differences, values = onlooker.squares[index]
        rows.append({"patch_error": float((differences / values) ** 0.5), "spectrum_db": float(np.mean(spectra))})
    return rows


def _by_stream(steps: Sequence[Tensor], lengths: Sequence[int]) -> list[Patches]:
    """Convert patches by step, in the order of the streams then active, to patches by stream."""
    streams: list[list[Tensor]] = [[] for _ in lengths]
    for step, patches in enumerate(steps):
        speaking = [number for number, length in enumerate(lengths) if length > step]
        for number, patch in zip(speaking, patches, strict=True):
            streams[number].append(patch)
    return [torch.stack(stream).cpu().numpy() for stream in streams]


def _samples(loaded: LoadedModel, patches: Patches) -> Samples:
    pcm = decode(loaded.model, patches)
    return (pcm.clamp(-1, 1) * 32767).short().numpy()


def measure(
    loaded: LoadedModel, texts: Sequence[str], chosen: Sequence[Mode], cfg: float, *, listens: bool = True
) -> list[dict[str, Any]]:
    """A row of each mode. Texts as the model speaks them: lower case, no digits. listens: else patch by patch alone."""
    from benchmarks.recognition import count_errors, transcribe_all

    speaker = Speaker(loaded, texts, cfg)
    apart = [{"patch_error": 0.0, "spectrum_db": 0.0}]
    with _told("patch by patch"):
        apart += compare_patches(loaded, speaker, chosen)
    rows: list[dict[str, Any]] = [{"mode": mode.name, **distance} for mode, distance in zip(chosen, apart, strict=True)]
    speaking = [row for row, mode in zip(rows, chosen, strict=True) if listens and mode.rounded != "bfloat16"]
    speech: list[Samples] = []
    for row in speaking:
        with _told(row["mode"]):
            (mode,) = (mode for mode in chosen if mode.name == row["mode"])
            own = [_samples(loaded, patches) for patches in speaker.speak(mode)]
            row["seconds"] = sum(speech_seconds(samples) for samples in own)
            speech += own
    with _told("listening"):
        heard = transcribe_all(speech)
    errors = np.array([count_errors(*pair) for pair in zip([*texts] * len(speaking), heard, strict=True)])
    by_mode = errors.reshape(len(speaking), len(texts), 2)
    for row, own_errors in zip(speaking, by_mode, strict=True):
        row |= {"wer": _rate(own_errors), **_difference(own_errors, by_mode[0])}
    return rows


def _rate(errors: np.ndarray[Any, Any]) -> float:
    return float(100 * errors[:, 0].sum() / errors[:, 1].sum())


def _difference(errors: np.ndarray[Any, Any], base: np.ndarray[Any, Any], draws: int = 2000) -> dict[str, float]:
    """Word error rate of a mode less that of the first, percentage points: where 95 % of resampled sentences lie."""
    counts = np.stack((errors[:, 0] - base[:, 0], base[:, 1]), axis=1)
    chosen = np.random.default_rng(0).integers(0, len(counts), (draws, len(counts)))
    sums = counts[chosen].sum(axis=1)
    low, high = np.percentile(100 * sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return {"wer_more": _rate(errors) - _rate(base), "wer_more_low": float(low), "wer_more_high": float(high)}


@contextmanager
def _told(what: str) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started_s:.0f} s", file=sys.stderr, flush=True)


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'mode':26}{'patch error':>12}{'spectrum':>10}{'WER':>8}{'more (95 %)':>24}{'speech':>9}"]
    for row in rows:
        line = f"{row['mode']:26}{100 * row['patch_error']:10.2f} %{row['spectrum_db']:7.2f} dB"
        if "wer" in row:
            more = f"{row['wer_more']:+.2f} ({row['wer_more_low']:+.2f} … {row['wer_more_high']:+.2f})"
            line += f"{row['wer']:6.1f} %{more:>24}{row['seconds']:7.0f} s"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="starter-voice", help="one that speaks English, lower case")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sentences", type=int, default=120)
    parser.add_argument("--steps", type=int, help="that the model is taken to be served with")
    parser.add_argument("--cfg", type=float)
    parser.add_argument("--no-listening", action="store_true", help="compare patch by patch alone")
    parser.add_argument("--only", help="these modes beside the first, by name, separated by semicolons")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    loaded = load_model(str(local_directory(options.model) or options.model), options.device, torch.float32)
    texts = held_out(options.sentences)
    steps = options.steps or loaded.policy.default_steps
    base, *others = modes(steps)
    if options.only:
        others = [mode for mode in others if mode.name in options.only.split(";")]
    cfg = loaded.policy.default_cfg if options.cfg is None else options.cfg
    rows = measure(loaded, texts, [base, *others], cfg, listens=not options.no_listening)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({"model": options.model, "steps": steps, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
