"""Sample rate and tempo of a stream of mono samples, by filters of libav (in PyAV).

Rate: libswresample. It holds back 1–4 ms at more than 90 dB signal to noise, with aliases of a downward conversion
100 dB down. soxr, whose offline quality is a little better, works in large blocks: it holds back 20–40 ms between 24
and 48 kHz, and 75–157 ms down to 8 kHz, as much as a whole patch of the model.

Tempo: `atempo` (overlapped windows), which keeps the pitch. It holds back part of a window: 40–90 ms of the input, less
than one patch of the model, so that it delays no first packet. A window is 43 ms at 24 and 48 kHz, 64 ms at 16 kHz.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

# 48 taps a side and a cut-off at 95 % of the lower Nyquist rate: flat to 0.42 of the rate. The default (32, 97 %) lets
# aliases of 42 dB through on the way to 8 kHz. Floats inside, so that there is one rounding, at the end.
_RESAMPLE_OPTIONS = "filter_size=48:cutoff=0.95:internal_sample_fmt=fltp"

# Milliseconds converted at a time. libav keeps several buffers of the largest piece that it has received: with pieces
# of 10, 40 and 160 ms a context at 48 kHz holds 93, 133, 296 KiB, and a second takes 1.2, 0.5, 0.25 ms.
_RESAMPLE_SLICE_MS = 40

# Zeros before the first and after the last sample, longer than the filter at any rate. Without them libswresample
# mirrors the signal at its ends, which bends them, and returns nothing at all for inputs shorter than its filter.
_EDGE_SAMPLES = 2_048

# Beyond a factor of two `atempo` leaves samples out, and below one half it refuses; two in a row do neither.
_MAX_FACTOR = 2.0
_FORMATS = {"s16le": ("s16", 2), "f32le": ("flt", 4)}  # libav's name, bytes of a sample
# `atempo` returns blocks of the size that it receives. With small ones of constant size it holds back little besides
# its window, and its output does not depend on the division of the input.
_TEMPO_SLICE_SAMPLES = 128


class StreamResampler:
    """Resampler of one stream. Any division into whole samples gives the same output bytes; n input samples give
    ceil(n·out/in) in total.

    Args:
        input_rate_hz, output_rate_hz: equal rates pass bytes through unchanged, and load no library.
    """

    def __init__(self, input_rate_hz: int, output_rate_hz: int) -> None:
        self._slice_bytes = 2 * (input_rate_hz * _RESAMPLE_SLICE_MS // 1000)
        common = math.gcd(input_rate_hz, output_rate_hz)
        self._step_in, self._step_out = input_rate_hz // common, output_rate_hz // common
        # The leading edge is a whole number of output samples too, so that these can be dropped without a shift.
        num_steps = -(-_EDGE_SAMPLES // self._step_in)
        self._num_leading = num_steps * self._step_in
        self._num_surplus = num_steps * self._step_out  # output samples of the edge that are still to drop
        self._filter: _MonoFilter | None = None
        if input_rate_hz != output_rate_hz:
            to_s16 = f"sample_fmts=s16:sample_rates={output_rate_hz}:channel_layouts=mono"
            chain = [("aresample", f"{output_rate_hz}:{_RESAMPLE_OPTIONS}"), ("aformat", to_s16)]
            self._filter = _MonoFilter(input_rate_hz, "s16le", chain)

    def push(self, pcm: bytes) -> bytes:
        """Add s16le samples and return those that are ready."""
        if self._filter is None or not pcm:
            return pcm
        leading = b"" if self._filter.num_pushed else bytes(2 * self._num_leading)
        return self._convert(self._filter, leading + pcm)

    def finish(self) -> bytes:
        """Return the rest. Nothing can be pushed after it."""
        if self._filter is None or not self._filter.num_pushed:
            return b""
        num_made = self._filter.num_pulled + self._num_surplus
        num_wanted = -(-self._filter.num_pushed * self._step_out // self._step_in) - num_made
        return self._convert(self._filter, bytes(2 * _EDGE_SAMPLES))[: 2 * num_wanted]

    def _convert(self, filter_: _MonoFilter, pcm: bytes) -> bytes:
        slices = (pcm[start : start + self._slice_bytes] for start in range(0, len(pcm), self._slice_bytes))
        converted = b"".join(map(filter_.push, slices))
        num_dropped = min(self._num_surplus, len(converted) // 2)
        self._num_surplus -= num_dropped
        return converted[2 * num_dropped :]


class StreamTempo:
    """Tempo filter of one stream. n samples give round(n / speed) in total, in any division into whole samples.

    Args:
        sample_rate_hz: of input and output.
        speed: within 1/4 and 4; above 1 is faster.
        encoding: ``s16le`` or ``f32le``.
    """

    def __init__(self, sample_rate_hz: int, speed: float, encoding: str = "s16le") -> None:
        self._speed, self._sample_bytes = speed, _FORMATS[encoding][1]
        num_filters = max(1, math.ceil(abs(math.log(speed, _MAX_FACTOR)) - 1e-9))
        chain = [("atempo", repr(speed ** (1 / num_filters)))] * num_filters
        self._filter = _MonoFilter(sample_rate_hz, encoding, chain)
        self._carry = b""

    def push(self, pcm: bytes) -> bytes:
        """Add samples and return those that are ready."""
        pcm = self._carry + pcm
        slice_bytes = self._sample_bytes * _TEMPO_SLICE_SAMPLES
        whole = len(pcm) // slice_bytes * slice_bytes
        self._carry = pcm[whole:]
        return b"".join(self._filter.push(pcm[start : start + slice_bytes]) for start in range(0, whole, slice_bytes))

    def finish(self) -> bytes:
        """Return the rest. Nothing can be pushed after it."""
        num_samples = self._filter.num_pushed + len(self._carry) // self._sample_bytes
        num_bytes_left = self._sample_bytes * (round(num_samples / self._speed) - self._filter.num_pulled)
        silence = bytes(self._sample_bytes * _TEMPO_SLICE_SAMPLES)
        left = self._filter.push((self._carry + silence)[: len(silence)])
        while len(left) < num_bytes_left:  # silence after the end flushes the filter, and fades its output
            left += self._filter.push(silence)
        return left[:num_bytes_left]


class _MonoFilter:
    """Chain of audio filters, fed with packed little-endian samples.

    Args:
        rate_hz: of the input.
        encoding: of the input, ``s16le`` or ``f32le``. The filters must return samples of this format, too.
        chain: name and arguments of each filter.

    Attributes:
        num_pushed, num_pulled: samples so far.
    """

    def __init__(self, rate_hz: int, encoding: str, chain: Iterable[tuple[str, str]]) -> None:
        import av  # imported here, since importing the gateway must not load it
        import av.filter

        self.num_pushed = self.num_pulled = 0
        self._rate_hz, (self._format, self._sample_bytes) = rate_hz, _FORMATS[encoding]
        self._time_base = Fraction(1, rate_hz)
        self._graph = av.filter.Graph()
        self._graph.threads = 1  # or each graph starts as many threads as there are cores, without work for them
        last = self._graph.add_abuffer(
            sample_rate=rate_hz, format=self._format, layout="mono", time_base=self._time_base
        )
        for name, arguments in (*chain, ("abuffersink", "")):
            link = self._graph.add(name, arguments or None)
            last.link_to(link)
            last = link
        self._graph.configure()

    def push(self, pcm: bytes) -> bytes:
        """Add whole samples and return those that are ready."""
        import av

        num_samples = len(pcm) // self._sample_bytes
        frame = av.AudioFrame(format=self._format, layout="mono", samples=num_samples)
        frame.planes[0].update(pcm)
        frame.sample_rate, frame.time_base, frame.pts = self._rate_hz, self._time_base, self.num_pushed
        self.num_pushed += num_samples
        self._graph.push(frame)
        chunks: list[bytes] = []
        while True:
            try:
                ready = self._graph.pull()
            except av.BlockingIOError:  # needs more input
                return b"".join(chunks)
            assert isinstance(ready, av.AudioFrame), "an audio graph gives audio frames"
            self.num_pulled += ready.samples
            # A plane may be longer than its samples: buffers are aligned.
            chunks.append(bytes(ready.planes[0])[: self._sample_bytes * ready.samples])
