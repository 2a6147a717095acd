"""Conversion of samples between plain encodings, G.711 among them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MULAW_BIAS = 132


def _g711(pcm: bytes, is_alaw: bool) -> bytes:
    """Convert s16le samples to one byte each, of mu-law or A-law, with the polarity and inversion of the standard."""
    import numpy as np  # imported here, since importing the gateway must not load it

    return bytes(_table(is_alaw)[np.frombuffer(pcm, "<u2")])


@functools.cache
def _table(is_alaw: bool) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the byte of every sample, indexed by the sample as an unsigned 16-bit number.

    Both laws cut the magnitude into 8 segments of 16 steps, each segment's steps twice as wide as the last one's
    (A-law's first two are alike).
    """
    import numpy as np

    samples = np.arange(65_536).astype(np.int16).astype(np.int32)
    segment, step = np.divmod(np.arange(128), 16)
    if is_alaw:
        starts = (step + 16 * (segment > 0)) << (np.maximum(segment, 1) + 3)
        magnitudes = np.where(samples < 0, ~samples, samples)  # A-law has no zero: -1 mirrors 0
        signs = np.where(samples < 0, 0x55, 0xD5)
    else:
        starts = ((16 + step) << (segment + 3)) - MULAW_BIAS
        magnitudes = abs(samples)
        signs = np.where(samples < 0, 0x7F, 0xFF)
    codes = np.searchsorted(starts, magnitudes, side="right") - 1
    return np.asarray(codes ^ signs, np.uint8)


def as_f32le(pcm_s16le: bytes) -> bytes:
    """Convert s16le samples to f32le in -1…1."""
    import numpy as np  # imported here, since importing the gateway must not load it

    scaled = np.frombuffer(pcm_s16le, dtype="<i2").astype("<f4") / 32_768
    return bytes(scaled.tobytes())


def resampled(samples: npt.NDArray[np.float32], from_hz: int, to_hz: int) -> npt.NDArray[np.float32]:
    """Return a whole recording at another rate. The number of samples is rounded up, as the reference's loader does."""
    import numpy as np
    import soxr  # imported here, since importing the gateway must not load them

    found = soxr.resample(samples, from_hz, to_hz)
    return np.pad(found, (0, -(-len(samples) * to_hz // from_hz) - len(found)))


# Encoders of s16le samples, by codec.
PLAIN_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "pcm_s16le": bytes,
    "pcm_f32le": as_f32le,
    "mulaw": functools.partial(_g711, is_alaw=False),
    "alaw": functools.partial(_g711, is_alaw=True),
}
