"""Recordings as callers hand them over (a path, or samples and their rate) → what a worker takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np
import soxr

from realtime_tts.audio.decode import decode_recording
from realtime_tts.errors import AudioDecodeError
from realtime_tts.workers import frames

RecordingLike: TypeAlias = Union[str, Path, "tuple[np.ndarray[Any, Any], int]"]
_RATE_HZ = 48_000  # all that speech has; the worker resamples to what its model reads


async def read_recording(recording: RecordingLike, field: str) -> bytes:
    """Mono s16le at 48 kHz.

    Args:
        recording: a file of any usual format, or ([samples] or [samples, channels], rate in Hz), float in −1…1 or
            int16.

    Raises:
        AudioDecodeError: a file that is missing or cannot be decoded; samples that are no audio.
    """
    if isinstance(recording, tuple):
        return _from_samples(*recording, field)
    try:
        data = Path(recording).read_bytes()  # noqa: ASYNC240 - small and local; decoding is what takes long
    except OSError as error:
        raise AudioDecodeError(f"{recording} cannot be read: {error.strerror}", field=field) from error
    return (await decode_recording(data, _RATE_HZ)).pcm


def _from_samples(samples: np.ndarray[Any, Any], rate_hz: int, field: str) -> bytes:
    pcm = np.asarray(samples)
    if pcm.dtype == np.int16:
        pcm = pcm.astype(np.float32) / 32768.0
    pcm = pcm.astype(np.float32)
    if pcm.ndim == 2:
        pcm = pcm.mean(axis=1)
    if pcm.ndim != 1 or pcm.size == 0 or not np.isfinite(pcm).all():
        raise AudioDecodeError("samples must be a finite array [samples] or [samples, channels]", field=field)
    resampled = soxr.resample(pcm, rate_hz, _RATE_HZ)
    return bytes((np.clip(resampled, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes())


async def voice_from_recordings(
    voice_id: str, reference: RecordingLike | None, prompt: RecordingLike | None, prompt_text: str | None
) -> frames.AddVoice:
    """The message that makes a voice of an isolated reference, of speech to continue from, or of both."""
    if (prompt is None) != (prompt_text is None):
        raise AudioDecodeError("a prompt needs both its recording and its text", field="prompt_text")
    reference_pcm = b"" if reference is None else await read_recording(reference, "reference_audio")
    prompt_pcm = b"" if prompt is None else await read_recording(prompt, "prompt_audio")
    return frames.AddVoice(
        voice_id,
        _RATE_HZ,
        prompt_text=prompt_text,
        as_reference=reference is not None,
        prompt_offset=len(reference_pcm) if prompt is not None else 0,
        payload=reference_pcm + prompt_pcm,
    )
