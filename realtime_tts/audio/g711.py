"""G.711 companding of s16le samples, through tables built from the recommendation's segments. Pure.

Both laws cut the magnitude into 8 segments of 16 steps, each segment's steps twice as wide as the last one's (A-law's
first two are alike). The tables map all 65,536 samples, so encoding is one look-up per sample.
"""

from __future__ import annotations

import functools
import sys
from array import array

MULAW_BIAS = 132


@functools.cache
def mulaw_table() -> bytes:
    """Byte of every sample, indexed by the sample as an unsigned 16-bit number."""
    starts = [max(0, ((16 + code % 16) << (code // 16 + 3)) - MULAW_BIAS) for code in range(128)]
    codes = _codes_of_magnitudes(starts, 32_769)
    positive = bytes(0xFF - code for code in codes[:32_768])
    negative = bytes(0x7F - code for code in codes[1:])  # magnitudes 1…32768
    return positive + negative[::-1]


@functools.cache
def alaw_table() -> bytes:
    """Byte of every sample, indexed by the sample as an unsigned 16-bit number."""
    starts = [(code % 16 + (16 if code >= 16 else 0)) << (max(code // 16, 1) + 3) for code in range(128)]
    codes = _codes_of_magnitudes(starts, 32_768)
    positive = bytes((0x80 | code) ^ 0x55 for code in codes)
    negative = bytes(code ^ 0x55 for code in codes)  # A-law has no zero: -1 mirrors 0
    return positive + negative[::-1]


def encode_mulaw(pcm: bytes) -> bytes:
    """s16le samples → one byte each, standard G.711 polarity and inversion."""
    return _look_up(pcm, mulaw_table())


def encode_alaw(pcm: bytes) -> bytes:
    """s16le samples → one byte each, even bits inverted as G.711 demands."""
    return _look_up(pcm, alaw_table())


def _codes_of_magnitudes(starts: list[int], num_magnitudes: int) -> bytes:
    """Code of each magnitude below `num_magnitudes`; code c begins at `starts[c]`."""
    ends = [*starts[1:], num_magnitudes]
    return b"".join(bytes([code]) * (ends[code] - starts[code]) for code in range(128))


def _look_up(pcm: bytes, table: bytes) -> bytes:
    samples = array("H", pcm)
    if sys.byteorder == "big":
        samples.byteswap()
    return bytes(map(table.__getitem__, samples))
