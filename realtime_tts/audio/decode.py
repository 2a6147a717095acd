"""Decoding of uploaded recordings, in any usual file format, to mono PCM, in a separate process with limits.

Decoders are a target of hostile input, and their work must not block the event loop. A separate process solves both, at
a cost of about 0.3 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from realtime_tts.audio.isolated import run_isolated
from realtime_tts.errors import AudioDecodeError

MAX_BYTES = 20 * 1024 * 1024  # size of a file
MAX_S = 60.0  # duration of the audio; also bounds the output
MEMORY_BYTES = 1024 * 1024 * 1024  # address space of the decoding process, including 300 MB for the libraries
CPU_S, WALL_S = 10, 60.0  # processor time and wall time of the process
_WORKER = Path(__file__).with_name("decode_worker.py")
_EXIT_REFUSED = 3
_BROKEN = "the file could not be decoded within the limits of memory and time"


@dataclass(frozen=True, slots=True)
class Recording:
    """Mono s16le samples at `sample_rate` Hz."""

    pcm: bytes
    sample_rate: int

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / 2 / self.sample_rate


async def decode_recording(data: bytes, sample_rate: int, field: str = "audio") -> Recording:
    """Decode an audio file (WAV, FLAC, MP3, Ogg, MP4/M4A, WebM …) to mono at `sample_rate` Hz.

    Cancelling the task ends the process. `field` names the file in errors.

    Raises:
        AudioDecodeError: too large, too long, damaged, empty, of an unknown kind, or too costly to decode.
    """
    if len(data) > MAX_BYTES:
        raise AudioDecodeError(f"the file is larger than {MAX_BYTES} bytes", field=field)
    if not data:
        raise AudioDecodeError("the file is empty", field=field)
    numbers = (sample_rate, MAX_S, MEMORY_BYTES, CPU_S)  # in the order of the worker's usage line
    try:
        status, stdout, stderr = await run_isolated(_WORKER, *numbers, data=data, wall_s=WALL_S)
    except TimeoutError:
        raise AudioDecodeError(_BROKEN, field=field) from None
    if status == 0:
        return Recording(stdout, sample_rate)
    lines = stderr.decode("utf-8", "replace").splitlines()
    raise AudioDecodeError(lines[-1] if status == _EXIT_REFUSED and lines else _BROKEN, field=field)
