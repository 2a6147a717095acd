"""Faster or slower speech with its pitch kept, mono, streaming: FFmpeg's `atempo` (overlapped windows, in PyAV).

What it holds back is part of a window: 40–90 ms of the input, less than one patch of the model, so that a first packet
waits for nothing. A window is 43 ms at 24 and 48 kHz, and 64 ms at 16 kHz.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import av
import av.filter

# Beyond a factor of two `atempo` leaves samples out, and below one half it refuses; two in a row do neither.
_MAX_FACTOR = 2.0
_FORMATS = {"s16le": ("s16", 2), "f32le": ("flt", 4)}
# `atempo` gives out as much at a time as goes in at a time: with these it holds back little besides its window, and
# gives the same whatever pieces we are given.
_SLICE_SAMPLES = 128


class StreamTempo:
    """Tempo filter of one stream. n samples give round(n / speed) in all, in any chunking of whole samples.

    Args:
        sample_rate_hz: of input and output.
        speed: within 1/4 and 4; above 1 is faster.
        encoding: ``s16le`` or ``f32le``.
    """

    def __init__(self, sample_rate_hz: int, speed: float, encoding: str = "s16le") -> None:
        self._rate_hz, self._speed = sample_rate_hz, speed
        self._format, self._sample_bytes = _FORMATS[encoding]
        self._time_base = Fraction(1, sample_rate_hz)
        self._graph = _build_graph(sample_rate_hz, speed, self._format)
        self._num_pushed = self._num_pulled = 0
        self._carry = b""

    def push(self, pcm: bytes) -> bytes:
        """Add samples and return those that are ready."""
        pcm = self._carry + pcm
        slice_bytes = self._sample_bytes * _SLICE_SAMPLES
        whole = len(pcm) // slice_bytes * slice_bytes
        self._carry = pcm[whole:]
        return b"".join(self._convert(pcm[start : start + slice_bytes]) for start in range(0, whole, slice_bytes))

    def finish(self) -> bytes:
        """Return the rest. Nothing can be pushed after it."""
        num_samples = self._num_pushed + len(self._carry) // self._sample_bytes
        num_left = round(num_samples / self._speed) - self._num_pulled
        last_slice = self._carry + bytes(self._sample_bytes * _SLICE_SAMPLES - len(self._carry))
        left = self._convert(last_slice)
        while (
            len(left) < self._sample_bytes * num_left
        ):  # silence after the end flushes the filter, and fades its output
            left += self._convert(bytes(len(last_slice)))
        return left[: self._sample_bytes * num_left]

    def _convert(self, pcm: bytes) -> bytes:
        num_samples = len(pcm) // self._sample_bytes
        frame = av.AudioFrame(format=self._format, layout="mono", samples=num_samples)
        frame.planes[0].update(pcm)
        frame.sample_rate = self._rate_hz
        frame.time_base = self._time_base
        frame.pts = self._num_pushed
        self._num_pushed += num_samples
        self._graph.push(frame)
        return b"".join(self._pull())

    def _pull(self) -> Iterator[bytes]:
        while True:
            try:
                frame = self._graph.pull()
            except av.BlockingIOError:  # needs more input
                return
            if not isinstance(frame, av.AudioFrame):
                raise AssertionError("an audio graph gives audio frames")
            self._num_pulled += frame.samples
            # A plane may be longer than its samples: buffers are aligned.
            yield bytes(frame.planes[0])[: self._sample_bytes * frame.samples]


def _build_graph(sample_rate_hz: int, speed: float, sample_format: str) -> av.filter.Graph:
    graph = av.filter.Graph()
    graph.threads = 1  # or each graph starts as many threads as there are cores
    last = graph.add_abuffer(
        sample_rate=sample_rate_hz, format=sample_format, layout="mono", time_base=Fraction(1, sample_rate_hz)
    )
    num_filters = max(1, math.ceil(abs(math.log(speed, _MAX_FACTOR)) - 1e-9))
    for _ in range(num_filters):
        tempo = graph.add("atempo", repr(speed ** (1 / num_filters)))
        last.link_to(tempo)
        last = tempo
    sink = graph.add("abuffersink")
    last.link_to(sink)
    graph.configure()
    return graph
