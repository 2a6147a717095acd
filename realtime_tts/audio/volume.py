"""Louder or softer speech, mono, without look-ahead and without clipping.

A volume up to 1 is a multiplication. Above 1, samples are multiplied up to a knee; beyond it a curve approaches full
scale and never exceeds it. Each sample is computed alone, so chunks can be cut anywhere and nothing is held back. A
limiter with look-ahead would keep the shape of the loudest parts better, at the cost of its look-ahead in latency.
"""

from __future__ import annotations

KNEE = 0.75  # −2.5 dB of full scale: values below it are only multiplied
_FORMATS = {"s16le": ("<i2", 32_768.0), "f32le": ("<f4", 1.0)}


def at_volume(pcm: bytes, volume: float, encoding: str = "s16le") -> bytes:
    """Return the samples multiplied by `volume`. Above 1, values beyond the knee are compressed; at 1 `pcm` is returned
    unchanged.

    Args:
        encoding: ``s16le``, or ``f32le`` in −1…1.
    """
    if volume == 1.0:
        return pcm
    import numpy as np  # imported here, since importing the gateway must not load it

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
