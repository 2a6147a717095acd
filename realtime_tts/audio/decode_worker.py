"""Process that decodes untrusted recordings: container on stdin, s16le mono PCM on stdout.

Run by `decode.py` as a file, isolated (`python -I`), so that it imports nothing but PyAV. The input may be
hostile: memory, CPU time, files and processes are limited before a byte of it is parsed. Only demuxers are allowed that
neither open further files nor fetch URLs (a playlist could name any).

Usage: decode_worker.py RATE_HZ MAX_SECONDS MEMORY_BYTES CPU_SECONDS NICENESS
Exit status 0: PCM on stdout. 3: no usable recording; the reason is one line on stderr. Others: a crash.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import resource
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import av
    import av.container

EXIT_REFUSED = 3
MAX_FILES = 16  # open at once: libraries are opened one after another while they are loaded
# Self-contained audio, no playlists (hls, dash, concat) and no raw or text formats that match anything.
DEMUXERS = "wav,w64,rf64,aiff,au,flac,mp3,ogg,matroska,webm,mov,mp4,m4a,3gp,aac,amr,caf,asf"


class Refused(Exception):
    """The recording cannot be used; the argument is the reason."""


def limit_resources(memory_bytes: int, cpu_seconds: int, niceness: int) -> None:
    with contextlib.suppress(OSError):
        os.nice(niceness)
    wanted = {"RLIMIT_AS": memory_bytes, "RLIMIT_CPU": cpu_seconds, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    wanted |= {"RLIMIT_NPROC": 0, "RLIMIT_NOFILE": MAX_FILES}
    for name, value in wanted.items():
        # macOS has RLIMIT_AS but refuses to set it.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            resource.setrlimit(getattr(resource, name), (value, value))


def decode(data: bytes, rate_hz: int, max_seconds: float) -> bytes:
    """Return the first audio stream of `data` as s16le mono samples at `rate_hz`."""
    import av
    import av.logging

    av.logging.set_level(av.logging.PANIC)
    max_samples = int(max_seconds * rate_hz)
    chunks: list[bytes] = []
    num_samples = 0
    try:
        with av.open(
            io.BytesIO(data), "r", options={"format_whitelist": DEMUXERS, "protocol_whitelist": ""}
        ) as container:
            if not container.streams.audio:
                raise Refused("the file has no audio")
            resampler = av.AudioResampler(format="s16", layout="mono", rate=rate_hz)
            for frame in _frames(container, resampler):
                chunks.append(bytes(frame.planes[0])[: 2 * frame.samples])
                num_samples += frame.samples
                if num_samples > max_samples:
                    raise Refused(f"the recording is longer than {max_seconds:g} s")
    except av.FFmpegError as error:
        raise Refused("the file is damaged or of a kind that is not supported") from error
    if not num_samples:
        raise Refused("the file has no audio")
    return b"".join(chunks)


def _frames(container: av.container.InputContainer, resampler: av.AudioResampler) -> Iterator[av.AudioFrame]:
    """Yield frames of the first audio stream after conversion, as they are decoded, so that a bomb stops early."""
    for frame in container.decode(audio=0):
        check_finite(frame)
        yield from resampler.resample(frame)
    yield from resampler.resample(None)


def check_finite(frame: av.AudioFrame) -> None:
    """Raise `Refused` for samples that are not finite: their conversion to integers is undefined."""
    kind = frame.format.name.removesuffix("p")
    if kind in ("flt", "dbl"):
        num_bytes = frame.format.bytes * frame.samples * (1 if frame.format.is_planar else frame.layout.nb_channels)
        for plane in frame.planes:
            if not math.isfinite(sum(memoryview(bytes(plane))[:num_bytes].cast("f" if kind == "flt" else "d"))):
                raise Refused("the recording has samples that are not finite")


def main() -> int:
    rate_hz, max_seconds, memory_bytes, cpu_seconds, niceness = map(float, sys.argv[1:])
    data = sys.stdin.buffer.read()
    limit_resources(int(memory_bytes), int(cpu_seconds), int(niceness))
    try:
        pcm = decode(data, int(rate_hz), max_seconds)
    except Refused as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    except MemoryError:
        sys.stderr.write("decoding takes too much memory\n")
        return EXIT_REFUSED
    sys.stdout.buffer.write(pcm)
    return 0


if __name__ == "__main__":
    sys.exit(main())
