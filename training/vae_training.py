"""Trains the AudioVAE on the teacher's speech.

    python -m training.vae_training --audio build/audio --run build/vae --stage joint   --seconds 900
    python -m training.vae_training --audio build/audio --run build/vae --stage decoder --seconds 600

joint: encoder and decoder with spectral losses and a light KL term; its end normalises the latents (zero mean, unit
variance each) by folding both into the VAE's own weights. decoder: the encoder stays as it is, so that a TTS model may
be trained on it meanwhile; the decoder learns to take slightly wrong latents, and meets discriminators too.
Each stage resumes from its last minute, and trains on several GPUs when started by torchrun.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from realtime_tts.model.audio_vae import AudioVAE
from training.audio_pool import AudioPool
from training.captured import CapturedStep
from training.discriminators import Discriminators, discriminator_loss, generator_loss
from training.fast_layers import use_fast_layers
from training.latent_space import kl_divergence, normalise_latents, posterior, revive_latents
from training.replicas import Replicas
from training.run_state import Ema, Run, adam_w, clip, cosine_rate, restore_optimizer, set_rate
from training.spectral import SpectralLoss
from training.starter_config import starter_config

DECODER_BATCH = 4
DECODER_RATE = 4e-4


@dataclasses.dataclass(frozen=True, slots=True)
class VaeSettings:
    batch: int = 16  # crops of a step of each process
    # 1.28 s: a tap further back than a crop is long keeps its random start, and is heard in every longer utterance
    crop_frames: int = 32
    peak_rate: float = 1.2e-3
    kl_weight: float = 0.0005
    free_nats: float = (
        1.0  # per latent, that the KL term does not count: at a weight of 0.002 without, 22 of 48 collapsed
    )
    latent_noise: float = 0.15  # decoder stage: what the TTS model's own error may be
    critics_weight: float = 0.1
    # Beside 1 of the adversarial loss. At 4, feature matching is most of the gradient, and the decoder averages what it
    # cannot know instead of choosing: training/README.md, "Progress".
    matching_weight: float = 0.3
    critics_after: float = 0.6  # of the decoder stage: discriminators join then; 1 is never
    discriminator_rate: float = 2e-4


class VaeTrainer:
    """One stage over one VAE. Its random numbers are torch's own, of the device."""

    def __init__(
        self,
        vae: AudioVAE,
        pool: AudioPool,
        settings: VaeSettings,
        *,
        adversarial: bool,
        replicas: Replicas = Replicas(),  # noqa: B008, frozen
    ) -> None:
        self.vae, self.pool, self.settings, self.replicas = vae, pool, settings, replicas
        self.device = next(vae.parameters()).device
        use_fast_layers(vae)
        self.spectral = SpectralLoss().to(self.device)
        self.trained = vae.decoder if adversarial else vae
        vae.encoder.requires_grad_(not adversarial)
        self.optimizer = adam_w(self.trained.parameters(), self.device, (0.8, 0.99))
        self.ema = Ema(self.trained, 0.999)
        self.critics: Discriminators | None = None
        if adversarial:
            self.critics = Discriminators().to(self.device)
            self.critic_optimizer = adam_w(self.critics.parameters(), self.device, (0.8, 0.99))
        self._pcm = torch.zeros(settings.batch, settings.crop_frames * vae.config.encode_hop, device=self.device)
        self._plain_update = CapturedStep(lambda: self._eager_update(use_critics=False), self.device)
        self._critical_update = CapturedStep(lambda: self._eager_update(use_critics=True), self.device)

    def state(self) -> dict[str, object]:
        state = {"vae": self.vae.state_dict(), "optimizer": self.optimizer.state_dict(), "ema": self.ema.shadow}
        if self.critics is not None:
            state |= {"critics": self.critics.state_dict(), "critic_optimizer": self.critic_optimizer.state_dict()}
        return state

    def restore(self, state: dict[str, object]) -> None:
        self.vae.load_state_dict(state["vae"])
        restore_optimizer(self.optimizer, state["optimizer"], self.device)
        self.ema.shadow = [tensor.to(self.device) for tensor in state["ema"]]
        if self.critics is not None:
            self.critics.load_state_dict(state["critics"])
            restore_optimizer(self.critic_optimizer, state["critic_optimizer"], self.device)

    def prepare(self) -> None:
        """Steps at rate zero, which compile and capture everything and change no weight."""
        for use_critics in (False, True) if self.critics is not None else (False,):
            for _ in range(5):
                self.step(0.0, use_critics)

    def step(self, share: float, use_critics: bool) -> dict[str, Tensor]:
        """Run one update at this share of the peak rates. Return its losses on the device, valid until the next one."""
        set_rate(self.optimizer, share * self.settings.peak_rate * self.replicas.rate_scale)
        if use_critics:
            set_rate(self.critic_optimizer, share * self.settings.discriminator_rate)
        self._pcm.copy_(self.pool.crops(*self._pcm.shape))
        return self._critical_update() if use_critics else self._plain_update()

    def _eager_update(self, use_critics: bool) -> dict[str, Tensor]:
        losses = self._joint_losses() if self.critics is None else self._decoder_losses(use_critics)
        self.optimizer.zero_grad(set_to_none=True)
        losses["total"].backward()
        self.replicas.average_gradients(self.trained.parameters())
        losses["norm"] = clip(self.trained.parameters(), 1.0)
        self.optimizer.step()
        return {name: loss.detach() for name, loss in losses.items()}

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _joint_losses(self) -> dict[str, Tensor]:
        mean, log_variance = posterior(self.vae, self._pcm)
        deviation = (0.5 * log_variance).exp()
        decoded = self.vae.decoder(mean + torch.randn_like(mean) * deviation)[:, 0]
        spectral, mel = self.spectral(decoded, self._pcm)
        kl = kl_divergence(mean, log_variance)
        penalty = self.settings.kl_weight * kl.clamp(min=self.settings.free_nats).mean()
        return {
            "total": spectral + penalty,
            "mel": mel,
            "kl": kl.mean(),
            "sigma": deviation.mean(),
            "unused": (kl < 0.1).sum().float(),
        }

    def _decoder_losses(self, use_critics: bool) -> dict[str, Tensor]:
        pcm = self._pcm
        with torch.no_grad():
            mean, _ = posterior(self.vae, pcm)
            scale = self.settings.latent_noise * torch.rand(len(pcm), 1, 1, device=self.device)
            latents = mean + scale * torch.randn_like(mean)
        decoded = self.vae.decoder(latents)[:, 0]
        spectral, mel = self.spectral(decoded, pcm)
        losses = {"total": spectral, "mel": mel}
        if not use_critics:
            return losses
        losses |= self._update_critics(decoded)
        wanted = losses["adversarial"] + self.settings.matching_weight * losses["matching"]
        wanted = self.settings.critics_weight * wanted
        (gradient,) = torch.autograd.grad(wanted, decoded, retain_graph=True)
        self.critic_optimizer.step()  # after the last use of their graph
        through = (decoded * gradient.detach()).sum()  # has `wanted`'s gradient, with the graph of the decoder alone
        losses["total"] = spectral + wanted.detach() + through - through.detach()
        return losses

    def _update_critics(self, decoded: Tensor) -> dict[str, Tensor]:
        """Give the discriminators their gradients. Return their losses, and the decoder's with its graph.

        One pass over each signal serves both.
        """
        with self._autocast():
            real, made = self.critics(self._pcm), self.critics(decoded)
            loss = discriminator_loss(real, made)
            adversarial, matching = generator_loss(real, made)
        parameters = list(self.critics.parameters())
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters, retain_graph=True), strict=True
        ):
            parameter.grad = gradient
        self.replicas.average_gradients(parameters)
        return {"critics": loss, "adversarial": adversarial, "matching": matching}


def train(trainer: VaeTrainer, run: Run, *, adversarial: bool, log_every: int = 50) -> None:
    """Train until the run is over or this process's time is used up; save at intervals and at the end."""
    replicas = trainer.replicas
    state = run.load(trainer.device)
    if state is not None:
        trainer.restore(state)
    trainer.prepare()
    run.start_clock()
    warm = 100 if adversarial else 300
    with tqdm(initial=run.step, unit="step", mininterval=10, disable=not replicas.is_first) as bar:
        while True:
            # Each process has its own clock, and a step with discriminators waits for more of the others' gradients.
            goes_on, progress = replicas.agreed(run.goes_on, run.progress)
            if not goes_on:
                break
            use_critics = adversarial and progress >= trainer.settings.critics_after
            losses = trainer.step(cosine_rate(run.step, progress, 1.0, warm), use_critics=use_critics)
            trainer.ema.update(run.step)
            run.step += 1
            bar.update()
            if run.step % log_every == 0 and replicas.is_first:
                run.log(**{name: loss.item() for name, loss in losses.items()})
                bar.set_postfix(mel=f"{losses['mel'].item():.3f}")
            if run.step % 200 == 0 and not trainer.pool.is_complete:
                trainer.pool.refresh()
            if replicas.is_first and run.save_due():
                run.save(**trainer.state())
                export(trainer, run.folder)
    if replicas.is_first:
        run.save(**trainer.state())
        export(trainer, run.folder)


def export(trainer: VaeTrainer, folder: Path) -> None:
    """Write the averaged VAE as vae.pt, and the discriminators, if there are any, as critics.pt."""
    trainer.ema.swap()
    _write(trainer.vae, folder / "vae.pt")
    trainer.ema.swap()
    if trainer.critics is not None:
        _write(trainer.critics, folder / "critics.pt")


def _write(module: nn.Module, path: Path) -> None:
    partial = path.with_suffix(".partial")
    torch.save({name: tensor.cpu() for name, tensor in module.state_dict().items()}, partial)
    partial.rename(path)


def load_vae(path: Path, device: torch.device | str, *, toy: bool = False, new_decoder: bool = False) -> AudioVAE:
    """Load a VAE. new_decoder: take only its encoder, and begin with a random decoder, which may have another size."""
    vae = AudioVAE(starter_config(toy=toy).vae)
    state = torch.load(path, weights_only=True)
    if new_decoder:
        initialise(vae)
        kept = {name: tensor for name, tensor in state.items() if name.startswith("encoder.")}
        state = vae.state_dict() | kept
    vae.load_state_dict(state)
    return vae.to(device)


def initialise(vae: AudioVAE) -> None:
    """Residual units near identity, and precise latents: begun at the prior's variance, many never came to use."""
    nn.init.constant_(vae.encoder.fc_logvar.bias, -4.0)
    for name, parameter in vae.named_parameters():
        if name.endswith("weight") and parameter.dim() == 3 and ".block.3." in name:
            with torch.no_grad():
                parameter.mul_(0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=Path, default=Path("build/audio"))
    parser.add_argument("--run", type=Path, default=Path("build/vae"))
    parser.add_argument("--stage", choices=("joint", "decoder"), required=True)
    parser.add_argument("--init", type=Path, help="joint stage: begin from this VAE (another run's joint/vae.pt)")
    parser.add_argument("--init-critics", type=Path, help="decoder stage: begin with these discriminators")
    parser.add_argument("--new-decoder", action="store_true", help="decoder stage: train a random decoder")
    parser.add_argument(
        "--critics-weight", type=float, default=VaeSettings().critics_weight, help="factor of the discriminators' loss"
    )
    parser.add_argument(
        "--matching-weight", type=float, default=VaeSettings().matching_weight, help="factor of feature matching in it"
    )
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--session-seconds", type=float, help="stop here, to be resumed")
    parser.add_argument("--min-chunks", type=int, default=16, help="begin when the teacher has made so many")
    parser.add_argument("--max-chunks", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, help="crops a step of each process: by default 16, decoder stage 4")
    parser.add_argument("--peak-rate", type=float, help="by default 1.2e-3, decoder stage 4e-4")
    parser.add_argument("--critics-after", type=float, default=VaeSettings().critics_after, help="1: no discriminators")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    adversarial = args.stage == "decoder"
    replicas = Replicas.from_environment()
    replicas.join(args.device)
    pool = AudioPool(args.audio, args.device, args.max_chunks)
    pool.wait(args.min_chunks)
    normalised = args.run / "normalised.pt"
    if adversarial:
        vae = load_vae(normalised, args.device, new_decoder=args.new_decoder)
    else:
        vae = AudioVAE(starter_config().vae)
        initialise(vae)
        if args.init:
            vae = load_vae(args.init, args.device)
            print("revived latents:", revive_latents(vae, pool.crops(32, 64 * vae.config.encode_hop)))
    vae.to(args.device)
    replicas.share(vae)
    trainer = VaeTrainer(
        vae,
        pool,
        VaeSettings(
            batch=args.batch or (DECODER_BATCH if adversarial else VaeSettings().batch),
            peak_rate=args.peak_rate or (DECODER_RATE if adversarial else VaeSettings().peak_rate),
            critics_after=args.critics_after,
            critics_weight=args.critics_weight,
            matching_weight=args.matching_weight,
        ),
        adversarial=adversarial,
        replicas=replicas,
    )
    if args.init_critics and trainer.critics is not None:
        trainer.critics.load_state_dict(torch.load(args.init_critics, weights_only=True))
    if trainer.critics is not None:
        replicas.share(trainer.critics)
    torch.manual_seed(args.seed + replicas.rank)
    folder = args.run / args.stage
    run = Run(folder, num_steps=args.steps, seconds=args.seconds, session_seconds=args.session_seconds)
    train(trainer, run, adversarial=adversarial)
    if not adversarial and replicas.is_first and run.progress >= 1.0:
        vae = load_vae(folder / "vae.pt", args.device)
        crops = pool.crops(128, 160 * vae.config.encode_hop)
        normalise_latents(vae, crops)
        torch.save({name: tensor.cpu() for name, tensor in vae.state_dict().items()}, normalised)
    replicas.end()


if __name__ == "__main__":
    main()
