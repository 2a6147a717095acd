"""Recordings that users bring, in any usual file format, as mono PCM: decoded in a process of its own with limits.

Decoders are a target of hostile input, and their work must not block the event loop. A separate process solves both, at
a cost of about 0.3 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from realtime_tts.audio.isolated import run_isolated
from realtime_tts.errors import AudioDecodeError

_WORKER = Path(__file__).with_name("decode_worker.py")
_EXIT_REFUSED = 3
_BROKEN = "the file could not be decoded within the limits of memory and time"


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits for decoding one recording.

    Attributes:
        max_bytes: size of the file.
        max_s: duration of the audio; also bounds the output.
        memory_bytes: address space of the decoding process, including 300 MB for the libraries.
        cpu_s, wall_s: processor time and wall time of the process.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_s: float = 60.0
    memory_bytes: int = 1024 * 1024 * 1024
    cpu_s: int = 10
    wall_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Recording:
    """Mono s16le samples at `sample_rate` Hz."""

    pcm: bytes
    sample_rate: int

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / 2 / self.sample_rate


async def decode_recording(data: bytes, sample_rate: int, limits: DecodeLimits | None = None) -> Recording:
    """Decode an audio file (WAV, FLAC, MP3, Ogg, MP4/M4A, WebM …) to mono at `sample_rate` Hz.

    Cancelling the task ends the process.

    Raises:
        AudioDecodeError: too large, too long, damaged, empty, of an unknown kind, or too costly to decode.
    """
    limits = limits or DecodeLimits()
    if len(data) > limits.max_bytes:
        raise AudioDecodeError(f"the file is larger than {limits.max_bytes} bytes", field="audio")
    if not data:
        raise AudioDecodeError("the file is empty", field="audio")
    numbers = (sample_rate, limits.max_s, limits.memory_bytes, limits.cpu_s)  # in the order of the worker's usage line
    try:
        status, stdout, stderr = await run_isolated(_WORKER, *numbers, data=data, wall_s=limits.wall_s)
    except TimeoutError:
        raise AudioDecodeError(_BROKEN, field="audio") from None
    if status == 0:
        return Recording(stdout, sample_rate)
    lines = stderr.decode("utf-8", "replace").splitlines()
    raise AudioDecodeError(lines[-1] if status == _EXIT_REFUSED and lines else _BROKEN, field="audio")
