"""The VAE's latents: what they cost, their normalisation, and a fresh start for those that carry nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from realtime_tts.model.audio_vae import AudioVAE

USED = 0.1  # deviation of a latent's mean from which on it carries something


def posterior(vae: AudioVAE, pcm: Tensor) -> tuple[Tensor, Tensor]:
    """pcm [B, samples] → mean and log variance, each [B, latent_dim, frames]."""
    hidden = vae.encoder.block(pcm[:, None])
    return vae.encoder.fc_mu(hidden), vae.encoder.fc_logvar(hidden).clamp(-12, 4)


def kl_divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """To the unit normal, nats of each latent [latent_dim], from [B, latent_dim, frames] twice."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean((0, 2))


@torch.no_grad()
def normalise_latents(vae: AudioVAE, pcm: Tensor) -> tuple[Tensor, Tensor]:
    """Folds each latent's mean and deviation over pcm [B, samples] into the VAE: encode gives z, decode takes it.

    Returns mean and deviation [latent_dim] before. What the decoder sees left of the first frame is zero, which now is
    the mean: it is trained on after this.
    """
    mean, _ = posterior(vae, pcm)
    deviation, mean = torch.std_mean(mean, dim=(0, 2))
    # a latent that the VAE does not use stays near zero: at unit variance it would be one more thing to predict
    deviation = torch.where(deviation < USED, 1.0, deviation)
    for head in (vae.encoder.fc_mu, vae.encoder.fc_logvar):
        is_mean = head is vae.encoder.fc_mu
        head.weight.div_(deviation[:, None, None] if is_mean else 1)
        head.bias.copy_((head.bias - mean) / deviation if is_mean else head.bias - 2 * deviation.log())
    first = vae.decoder.model[0]  # depthwise over the latents
    first.bias.add_(first.weight.sum((1, 2)) * mean)
    first.weight.mul_(deviation[:, None, None])
    return mean, deviation


@torch.no_grad()
def revive_latents(vae: AudioVAE, pcm: Tensor) -> int:
    """Gives latents unused over pcm [B, samples] a random, precise encoding and a small say in the decoder; returns how
    many. A collapsed posterior does not recover by itself. The other latents keep their meaning, so that a TTS model
    trained on them can be trained on.
    """
    mean, _ = posterior(vae, pcm)
    dead = mean.std(dim=(0, 2)) < USED
    hidden = vae.encoder.block(pcm[:, None])
    fc_mu, fc_logvar = vae.encoder.fc_mu, vae.encoder.fc_logvar
    fc_mu.weight[dead] = torch.randn_like(fc_mu.weight[dead]) / (hidden.std() * fc_mu.weight[0].numel() ** 0.5)
    fc_mu.bias[dead] = 0
    fc_logvar.weight[dead] = 0
    fc_logvar.bias[dead] = -4
    depthwise, pointwise = vae.decoder.model[0], vae.decoder.model[1]
    depthwise.weight[dead] = 0
    depthwise.weight[dead, :, -1] = 1
    depthwise.bias[dead] = 0
    pointwise.weight[:, dead] = 0.3 * pointwise.weight[:, ~dead].std() * torch.randn_like(pointwise.weight[:, dead])
    return int(dead.sum())
