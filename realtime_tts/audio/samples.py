"""Samples from one plain encoding to another."""

from __future__ import annotations

from collections.abc import Callable

from realtime_tts.audio import g711


def as_f32le(pcm_s16le: bytes) -> bytes:
    """s16le → f32le in -1…1."""
    import numpy as np  # whoever encodes has loaded it, and a gateway's import has not

    scaled = np.frombuffer(pcm_s16le, dtype="<i2").astype("<f4") / 32_768
    return bytes(scaled.tobytes())


# From s16le, by codec.
PLAIN_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "pcm_s16le": bytes,
    "pcm_f32le": as_f32le,
    "mulaw": g711.encode_mulaw,
    "alaw": g711.encode_alaw,
}
