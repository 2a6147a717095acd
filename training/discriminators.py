"""Discriminators of the VAE's adversarial stage: over periods of the waveform and over spectrograms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

PERIODS = (2, 3, 5, 7, 11)
STFT_SIZES = (512, 1024, 2048)
# Of a spectral discriminator's loss, beside 1 of a period's: its gradient at the audio is four to eight times as large.
SPECTRAL_WEIGHT = 0.25
# Power under which a bin is not compressed, for each sample of the window: bins of silence have the largest gradients
# otherwise, and the decoder learns silence before speech.
_POWER_FLOOR = 1e-4


class _Stack(nn.Module):
    """2-D convolutions with leaky activations; returns every layer's output, the score last."""

    def __init__(self, channels: list[int], kernels: list[tuple[int, int]], strides: list[tuple[int, int]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, kernel, stride, padding=(kernel[0] // 2, kernel[1] // 2)))
            for a, b, kernel, stride in zip(channels[:-1], channels[1:], kernels, strides, strict=True)
        )
        self.score = weight_norm(nn.Conv2d(channels[-1], 1, 3, padding=1))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = x.contiguous(memory_format=torch.channels_last)  # cuDNN's fast layout for bfloat16
        outputs = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            outputs.append(x)
        return [*outputs, self.score(x)]


class Discriminators(nn.Module):
    """Each sees the waveform [B, samples] in its own way."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        channels = [1, width, 4 * width, 8 * width, 16 * width]
        self.periods = nn.ModuleList(_Stack(channels, [(5, 1)] * 4, [(3, 1)] * 4) for _ in PERIODS)
        self.spectra = nn.ModuleList(
            _Stack(
                [2, width, 2 * width, 2 * width, 2 * width],
                [(3, 9), (3, 9), (3, 9), (3, 3)],
                [(1, 1), (1, 2), (1, 2), (1, 1)],
            )
            for _ in STFT_SIZES
        )

    def forward(self, wave: Tensor) -> list[list[Tensor]]:
        """The outputs of every discriminator's layers; each list ends with its score."""
        results = []
        for period, stack in zip(PERIODS, self.periods, strict=True):
            padded = F.pad(wave[:, None], (0, -wave.shape[-1] % period), mode="reflect")
            results.append(stack(padded.unflatten(-1, (-1, period))))
        for size, stack in zip(STFT_SIZES, self.spectra, strict=True):
            window = torch.hann_window(size, device=wave.device)
            spectrum = torch.stft(wave.float(), size, size // 4, window=window, return_complex=True)
            image = torch.view_as_real(spectrum).permute(0, 3, 2, 1)
            # compressed: speech's dynamic range would drown everything but the loudest harmonics
            results.append(stack(image * (image.square().sum(1, keepdim=True) + _POWER_FLOOR * size) ** -0.3))
        return results


_WEIGHTS = (1.0,) * len(PERIODS) + (SPECTRAL_WEIGHT,) * len(STFT_SIZES)


def _weighted_sum(losses: list[Tensor]) -> Tensor:
    """Sum over the discriminators, in the order of `Discriminators.forward`."""
    return torch.stack([weight * loss for weight, loss in zip(_WEIGHTS, losses, strict=True)]).sum()


def discriminator_loss(real: list[list[Tensor]], made: list[list[Tensor]]) -> Tensor:
    """Return the mean least-squares loss: real scores to 1, made ones to 0."""
    losses = [(1 - a[-1]).square().mean() + b[-1].square().mean() for a, b in zip(real, made, strict=True)]
    return torch.stack(losses).mean()


def generator_loss(real: list[list[Tensor]], made: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Return (adversarial loss, feature matching loss), sums over the discriminators."""
    adversarial = [(1 - outputs[-1]).square().mean() for outputs in made]
    matching = [
        torch.stack(
            [
                F.l1_loss(b, a.detach()) / a.detach().abs().mean().clamp(min=1e-3)
                for a, b in zip(ours[:-1], theirs[:-1], strict=True)
            ]
        ).mean()
        for ours, theirs in zip(real, made, strict=True)
    ]
    return _weighted_sum(adversarial), _weighted_sum(matching)
