"""Louder or softer speech, mono, without look-ahead and without clipping.

Softer is a product. Louder is one up to a knee, and beyond it a curve that comes close to full scale and never passes
it: each sample for itself, so that pieces can be cut anywhere and nothing is held back. What a limiter with look-ahead
would do better, keep the wave's shape where it is loudest, costs the milliseconds that it looks ahead.
"""

from __future__ import annotations

import numpy as np

KNEE = 0.75  # −2.5 dB of full scale: what stays below it is multiplied and nothing else
_FORMATS = {"s16le": ("<i2", 32_768.0), "f32le": ("<f4", 1.0)}


def at_volume(pcm: bytes, volume: float, encoding: str = "s16le") -> bytes:
    """As many samples, each multiplied by `volume`, bent at the knee where that is above 1; at 1 exactly `pcm`.

    Args:
        encoding: ``s16le``, or ``f32le`` in −1…1.
    """
    if volume == 1.0:
        return pcm
    dtype, scale = _FORMATS[encoding]
    samples = np.frombuffer(pcm, dtype).astype(np.float32) * np.float32(volume / scale)
    if volume > 1.0:
        magnitude = np.abs(samples)
        if (loud := magnitude > KNEE).any():
            bent = KNEE + (1 - KNEE) * np.tanh((magnitude[loud] - KNEE) / (1 - KNEE))
            samples[loud] = np.copysign(bent, samples[loud])
    if encoding == "s16le":
        samples = np.clip(np.round(samples * np.float32(scale)), -scale, scale - 1)
    return bytes(samples.astype(dtype).tobytes())
