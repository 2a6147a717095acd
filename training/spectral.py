"""Spectral distances between waveforms: what the VAE is trained to make small, and what the evaluation reports."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.speakers import SAMPLE_RATE_HZ

FFT_SIZES = (64, 128, 256, 512, 1024, 2048)
MEL_BINS = (10, 20, 40, 64, 96, 128)


def mel_filters(num_bins: int, fft_size: int, rate_hz: int = SAMPLE_RATE_HZ) -> Tensor:
    """Triangular filters [num_bins, fft_size // 2 + 1], evenly spaced on the mel scale, each with a peak of 1."""

    def to_mel(hz: Tensor) -> Tensor:
        return 2595 * torch.log10(1 + hz / 700)

    edges_mel = torch.linspace(0, to_mel(torch.tensor(rate_hz / 2)).item(), num_bins + 2)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    bins_hz = torch.linspace(0, rate_hz / 2, fft_size // 2 + 1)
    low, centre, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    # at least one bin wide, or the lowest filters of a short window would be empty
    width = rate_hz / fft_size
    rising = (bins_hz - low) / (centre - low).clamp(min=width)
    falling = (high - bins_hz) / (high - centre).clamp(min=width)
    return torch.minimum(rising, falling).clamp(min=0)


def magnitudes(wave: Tensor, fft_size: int, window: Tensor) -> Tensor:
    """wave [B, samples] → [B, fft_size // 2 + 1, frames], hop of a quarter window."""
    spectrum = torch.stft(wave, fft_size, fft_size // 4, window=window, return_complex=True)
    # the root's gradient is infinite at zero, which silence reaches
    return torch.view_as_real(spectrum).square().sum(-1).add(1e-9).sqrt()


class SpectralLoss(nn.Module):
    """Mean over resolutions of log-mel L1, log-magnitude L1 and spectral convergence.

    Mel bins weigh by the ear's resolution; linear log-magnitudes keep harmonics above 3 kHz, which mel bins smear.
    """

    def __init__(self) -> None:
        super().__init__()
        for size, bins in zip(FFT_SIZES, MEL_BINS, strict=True):
            self.register_buffer(f"window_{size}", torch.hann_window(size))
            self.register_buffer(f"mel_{size}", mel_filters(bins, size))

    def forward(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """[B, samples] twice → the loss, and the mean log10-mel L1 in it (comparable between runs)."""
        log_mel, total = predicted.new_zeros(()), predicted.new_zeros(())
        for size in FFT_SIZES:
            window, filters = getattr(self, f"window_{size}"), getattr(self, f"mel_{size}")
            ours, theirs = magnitudes(predicted, size, window), magnitudes(target, size, window)
            floor = 1e-5 * size  # about 20 dB under the teacher's own noise
            mel = F.l1_loss(_log10(filters @ ours, floor), _log10(filters @ theirs, floor))
            linear = F.l1_loss(_log10(ours, floor), _log10(theirs, floor))
            convergence = (ours - theirs).norm() / theirs.norm().clamp(min=1e-3)
            log_mel = log_mel + mel / len(FFT_SIZES)
            total = total + (mel + 0.5 * linear + 0.5 * convergence) / len(FFT_SIZES)
        return total, log_mel.detach()


def _log10(magnitude: Tensor, floor: float) -> Tensor:
    return torch.log10(magnitude.clamp(min=floor))
