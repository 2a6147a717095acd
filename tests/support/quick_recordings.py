"""Voices made without the two processes that decode a recording and look at it: for tests of what becomes of them."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator

import pytest

from realtime_tts.audio.decode import Recording
from realtime_tts.audio.recording_report import RecordingReport
from realtime_tts.errors import AudioDecodeError
from realtime_tts.server.voices import cloning

GOOD = RecordingReport(5, -3, 0, 0, 4, -20, -60, True)  # several speakers, by its pitches


@pytest.fixture
def decodings() -> Iterator[list[int]]:
    """Sizes of the files that were decoded: WAV at 48 kHz, and nothing else."""
    found: list[int] = []

    async def decode(data: bytes, rate_hz: int, field: str) -> Recording:
        found.append(len(data))
        try:
            with wave.open(io.BytesIO(data)) as file:
                return Recording(file.readframes(file.getnframes()), rate_hz)
        except (wave.Error, EOFError):
            raise AudioDecodeError("no audio", field=field) from None

    async def report(pcm: bytes) -> RecordingReport:
        return GOOD

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloning, "decode_recording", decode)
        patch.setattr(cloning, "report_on", report)
        yield found
