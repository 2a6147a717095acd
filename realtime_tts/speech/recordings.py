"""Conversion of recordings as callers pass them (a path, or samples and their rate) to what a worker takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from realtime_tts.audio.decode import Recording, decode_recording
from realtime_tts.audio.samples import resampled
from realtime_tts.contract import frames
from realtime_tts.errors import AudioDecodeError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RecordingLike: TypeAlias = Union[str, Path, "tuple[npt.NDArray[np.generic], int]", Recording]
RATE_HZ = 48_000  # covers the band of speech; the worker resamples to its model's rate


async def read_recording(recording: RecordingLike, field: str) -> bytes:
    """Return a recording as mono s16le at 48 kHz.

    Args:
        recording: a file of any usual format, or ([samples] or [samples, channels], rate in Hz), float in −1…1 or
            int16; or one that is decoded already, at `RATE_HZ`.

    Raises:
        AudioDecodeError: a file that is missing or cannot be decoded; invalid samples.
    """
    if isinstance(recording, Recording):
        return recording.pcm
    if isinstance(recording, tuple):
        return _from_samples(*recording, field)
    try:
        data = Path(recording).read_bytes()  # noqa: ASYNC240 - small and local; decoding is what takes long
    except OSError as error:
        raise AudioDecodeError(f"{recording} cannot be read: {error.strerror}", field=field) from error
    return (await decode_recording(data, RATE_HZ, field)).pcm


def _from_samples(samples: npt.NDArray[np.generic], rate_hz: int, field: str) -> bytes:
    import numpy as np  # here, since the gateway imports this module and decodes files without it

    pcm = np.asarray(samples)
    if pcm.dtype == np.int16:
        pcm = pcm.astype(np.float32) / 32768.0
    pcm = pcm.astype(np.float32)
    if pcm.ndim == 2:
        pcm = pcm.mean(axis=1)
    if pcm.ndim != 1 or pcm.size == 0 or not np.isfinite(pcm).all():
        raise AudioDecodeError("samples must be a finite array [samples] or [samples, channels]", field=field)
    if pcm.size > frames.MAX_RECORDING_S * rate_hz:  # before it is resampled, copied and sent
        raise AudioDecodeError(f"a recording may last {frames.MAX_RECORDING_S:.0f} s", field=field)
    return bytes((np.clip(resampled(pcm, rate_hz, RATE_HZ), -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes())


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceRecordings:
    """Recordings for a voice: a reference (speech to imitate), a prompt (speech to continue, with its text), or
    both."""

    reference: RecordingLike | None = None
    prompt: RecordingLike | None = None
    prompt_text: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.reference is None and self.prompt is None and self.prompt_text is None


async def encoding_request(voice_id: str, recordings: VoiceRecordings) -> frames.EncodeVoice:
    """Read recordings into a request to encode them.

    Raises:
        AudioDecodeError: one that cannot be read or decoded, a prompt without its text, or no recording.
    """
    if (recordings.prompt is None) != (recordings.prompt_text is None):
        raise AudioDecodeError("a prompt needs both its recording and its text", field="prompt_text")
    if recordings.is_empty:
        raise AudioDecodeError("a voice needs a recording", field="reference_audio")
    reference = prompt = b""
    if recordings.reference is not None:
        reference = await read_recording(recordings.reference, "reference_audio")
    if recordings.prompt is not None:
        prompt = await read_recording(recordings.prompt, "prompt_audio")
    return frames.EncodeVoice(voice_id, RATE_HZ, len(reference), payload=reference + prompt)
