"""Trains the TTS model on the latents of a frozen encoder.

    python -m training.tts_training --latents build/latents.pt --run build/tts --seconds 1500

Resumes from its last minute; trains on several GPUs when started by torchrun. The averaged weights of every save lie in
tts.pt beside the state.

`--fold-guidance 2` is the last stage: the flow of `--init` learns to be without guidance what it was with it, so that a
voice is served with guidance 1 for half the work. Everything else stays as it is.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from realtime_tts.model.attention import Attend
from realtime_tts.model.minicpm import DecoderLayer, Rope
from realtime_tts.model.voxcpm import VoxCPM
from training.captured import CapturedStep
from training.latents import LatentCorpus
from training.replicas import Replicas
from training.run_state import Ema, Run, adam_w, clip, cosine_rate, restore_optimizer, set_rate
from training.starter_config import starter_config
from training.tts_batches import MAX_POSITIONS, Batch, Batches, BatchShape, Conditioning, RowMaker, pack
from training.tts_losses import Guided, LossSettings, losses

NUM_VALIDATION = 512
VALIDATION_POOL = 20_000  # utterances, the first, that validation's references are cut from


@dataclasses.dataclass(frozen=True, slots=True)
class TtsSettings:
    positions_per_step: int = 20_480
    peak_rate: float = 1.2e-3
    weight_decay: float = 0.02
    average_decay: float = 0.9993


def initialise(model: VoxCPM) -> None:
    """Normal weights of deviation 0.02 and residual branches scaled down by depth."""
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or name.startswith("vae."):
            continue
        deep = name.endswith(("o_proj.weight", "down_proj.weight"))
        nn.init.normal_(parameter, std=0.02 / (8**0.5 if deep else 1))
    nn.init.normal_(model.feat_encoder.special_token, std=0.02)


def parameter_groups(model: VoxCPM, decay: float) -> list[dict[str, object]]:
    """Weight decay for matrices only. What takes no gradient is in no group."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() >= 2]
    vectors = [p for p in trained if p.dim() < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


class TrainingData:
    """A corpus split into training batches and fixed validation batches: its first utterances, conditioned on early
    ones, all of which stay when the corpus grows. No row of training has any of the former, be it as a prompt. Make it
    before CUDA is initialised."""

    def __init__(self, corpus: LatentCorpus, positions_per_step: int, seed: int, workers: int = 4) -> None:
        self.corpus = corpus
        utterances = np.arange(len(corpus))
        held, trained = np.split(utterances, [min(NUM_VALIDATION, len(corpus) // 10)])
        maker = RowMaker(corpus, Conditioning(), np.random.default_rng(1), trained)
        sample = [maker.row(int(u)) for u in np.random.default_rng(0).choice(trained, min(2000, len(trained)))]
        shape = BatchShape.fit([row for row in sample if len(row.tokens) <= MAX_POSITIONS], positions_per_step)
        # prompts are predicted as well, and those of the pool were trained on
        unprompted = Conditioning(prompt=0, open_text=0)
        validator = RowMaker(corpus, unprompted, np.random.default_rng(1), utterances[:VALIDATION_POOL])
        self.validation = list(pack((validator.row(int(u)) for u in held), shape))
        self.batches = Batches(maker, trained, shape, workers=workers, seed=seed)


def compile_layers(model: nn.Module) -> None:
    """Fuses the layers of all four stacks; shapes are fixed, so that each kind of layer is compiled once."""
    # the layers of a kind share their code, and each counts as a recompilation of it
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 128

    def forward(layer: DecoderLayer, x: Tensor, rope: Rope | None, attend: Attend) -> Tensor:
        return DecoderLayer.forward(layer, x, rope, attend, 0)

    # the index of a layer is left out: the compiler would make each its own
    compiled = torch.compile(forward, dynamic=False)
    tail = torch.compile(DecoderLayer.forward_tail, dynamic=False)
    for layer in model.modules():
        if isinstance(layer, DecoderLayer):
            layer.forward = lambda x, rope, attend, index, layer=layer: compiled(layer, x, rope, attend)
            layer.forward_tail = functools.partial(tail, layer)


class TtsTrainer:
    """Updates one model (its VAE taken away: training sees latents only)."""

    def __init__(
        self,
        model: VoxCPM,
        data: TrainingData,
        settings: TtsSettings,
        *,
        compiled: bool,
        device: torch.device | str,
        fold_guidance: float | None = None,
        replicas: Replicas = Replicas(),  # noqa: B008, frozen
    ) -> None:
        self.model, self.data, self.settings, self.replicas = model.to(device), data, settings, replicas
        self.device = torch.device(device)
        self.patches = data.corpus.patches.to(self.device)
        self.batches = iter(data.batches)
        self._next = next(self.batches).pinned()
        self._batch = self._next.to(self.device)
        self._guided = None
        if fold_guidance is not None:
            model.requires_grad_(False)
            self._guided = Guided(copy.deepcopy(model.feat_decoder.estimator), fold_guidance)
            model.feat_decoder.requires_grad_(True)
        groups = parameter_groups(model, settings.weight_decay)
        self.optimizer = adam_w(groups, self.device, (0.9, 0.98))
        self.ema = Ema(model, settings.average_decay)
        self.losses = LossSettings()
        self._update = CapturedStep(self._eager_update, self.device)
        if compiled:
            for module in (model, *([self._guided.estimator] if self._guided else [])):
                compile_layers(module)

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return losses(self.model, batch, self.patches, self.losses, self._guided)

    def _eager_update(self) -> dict[str, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        result = self._losses(self._batch)
        result["total"].backward()
        self.replicas.average_gradients(self.model.parameters())
        result["norm"] = clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        return {name: value.detach() for name, value in result.items()}

    def prepare(self) -> None:
        """Steps at rate zero, which compile and capture everything and change no weight."""
        for _ in range(5):
            self.step(0.0)

    def step(self, rate: float) -> dict[str, Tensor]:
        """Run one update. Return its losses on the device, valid until the next update."""
        set_rate(self.optimizer, rate)
        self._batch.copy_(self._next)
        result = self._update()
        self._next = next(self.batches).pinned()  # made ready while the GPU works
        return result

    def validate(self) -> dict[str, float]:
        """Mean losses of the averaged model on utterances it was never trained on, with fixed noise.

        Gradients stay on: without them every layer would be compiled once more.
        """
        self.ema.swap()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(0)
            results = [self._losses(batch.to(self.device)) for batch in self.data.validation]
        self.ema.swap()
        names = ("flow", "stop", "stop_error", "text", "text_error")
        return {f"val_{name}": float(np.mean([r[name].item() for r in results])) for name in names}

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "ema": self.ema.shadow}

    def restore(self, state: dict[str, object]) -> None:
        self.model.load_state_dict(state["model"])
        restore_optimizer(self.optimizer, state["optimizer"], self.device)
        self.ema.shadow = [tensor.to(self.device) for tensor in state["ema"]]


def export(trainer: TtsTrainer, path: Path) -> None:
    """Return the averaged weights, in half precision."""
    trainer.ema.swap()
    partial = path.with_suffix(".partial")
    torch.save({name: tensor.half().cpu() for name, tensor in trainer.model.state_dict().items()}, partial)
    partial.rename(path)
    trainer.ema.swap()


def train(trainer: TtsTrainer, run: Run, *, log_every: int = 50, validate_every: int = 2000) -> None:
    """Train until the run is over or this process's time is used up; save at intervals and at the end."""
    replicas = trainer.replicas
    trainer.prepare()
    run.start_clock()
    peak = trainer.settings.peak_rate * replicas.rate_scale
    with tqdm(initial=run.step, unit="step", mininterval=10, disable=not replicas.is_first) as progress:
        while True:
            goes_on, rate = replicas.agreed(run.goes_on, cosine_rate(run.step, run.progress, peak))
            if not goes_on:
                break
            results = trainer.step(rate)
            trainer.ema.update(run.step)
            run.step += 1
            progress.update()
            if not replicas.is_first:
                continue
            if run.step % log_every == 0:
                run.log(**{name: value.item() for name, value in results.items()})
                progress.set_postfix(flow=f"{results['flow'].item():.3f}")
            if run.step % validate_every == 0:
                run.log(**trainer.validate())
            if run.save_due():
                run.save(**trainer.state())
                export(trainer, run.folder / "tts.pt")
    if replicas.is_first:
        run.log(**trainer.validate())
        run.save(**trainer.state())
        export(trainer, run.folder / "tts.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latents", type=Path, default=Path("build/latents.pt"))
    parser.add_argument("--run", type=Path, default=Path("build/tts"))
    parser.add_argument("--init", type=Path, help="begin from these averaged weights (another run's tts.pt)")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--more-seconds", type=float, help="instead of --seconds: from now on, if resumed")
    parser.add_argument("--session-seconds", type=float, help="stop here, to be resumed")
    parser.add_argument("--peak-rate", type=float, default=TtsSettings().peak_rate)
    parser.add_argument(
        "--fold-guidance", type=float, metavar="CFG", help="train the flow only, to be guided by itself"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    run = Run(
        args.run,
        num_steps=args.steps,
        seconds=args.seconds,
        more_seconds=args.more_seconds,
        session_seconds=args.session_seconds,
    )
    state = run.load("cpu")
    settings = dataclasses.replace(TtsSettings(), peak_rate=args.peak_rate)
    replicas = Replicas.from_environment()
    seed = args.seed + 1000 * run.step + 100 * replicas.rank
    data = TrainingData(LatentCorpus.load(args.latents), settings.positions_per_step, seed=seed)
    replicas.join(args.device)
    model = VoxCPM(starter_config())
    del model.vae
    initialise(model)
    if args.init:
        weights = torch.load(args.init, weights_only=True)
        model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    model.to(args.device)
    replicas.share(model)
    torch.manual_seed(args.seed + replicas.rank)
    options = {"compiled": not args.no_compile, "device": args.device, "fold_guidance": args.fold_guidance}
    trainer = TtsTrainer(model, data, settings, **options, replicas=replicas)
    if state is not None:
        trainer.restore(state)
    train(trainer, run)
    data.batches.close()
    replicas.end()


if __name__ == "__main__":
    main()
