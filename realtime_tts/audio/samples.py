"""Conversion of samples between plain encodings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from realtime_tts.audio import g711

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
    "mulaw": g711.encode_mulaw,
    "alaw": g711.encode_alaw,
}
