"""Check whether a recording is suitable for a voice: its measurements and their limits.

A faulty recording makes a faulty voice for as long as the voice is kept. So it is refused with a reason, or accepted
with a warning, when it is uploaded.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from realtime_tts.audio.isolated import run_isolated
from realtime_tts.errors import (
    InternalError,
    RecordingClipped,
    RecordingSilent,
    RecordingTooQuiet,
    RecordingTooShort,
    RecordingWithoutSpeech,
)

REPORT_RATE_HZ = 48_000
MIN_DURATION_S = 2.0
MIN_SPEECH_S = 1.0
SILENT_DBFS = -60.0  # peak
TOO_QUIET_DBFS, QUIET_DBFS = -50.0, -35.0  # of the speech
TOO_CLIPPED, CLIPPED = 0.01, 0.001  # share of the samples
MAX_DC = 0.05
MIN_SNR_DB = 12.0
_WALL_S = 60.0
_WORKER = Path(__file__).with_name("recording_report_worker.py")


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """Measurements of a recording.

    Attributes:
        peak_dbfs: level of the loudest sample.
        speech_dbfs, noise_dbfs: mean level of speech, typical level of the rest; None if none.
        clipped_share: share of samples in runs at full scale. dc_offset: share of full scale.
        two_pitches: the speech has two distant groups of pitches, as two speakers have.
    """

    duration_s: float
    peak_dbfs: float
    clipped_share: float
    dc_offset: float
    speech_s: float
    speech_dbfs: float | None
    noise_dbfs: float | None
    two_pitches: bool


@dataclass(frozen=True, slots=True)
class RecordingWarning:
    """A fault that will be audible in the voice; `code` is for programs."""

    code: str
    message: str


async def report_on(pcm: bytes) -> RecordingReport:
    """Measure s16le mono PCM at `REPORT_RATE_HZ` in a separate process, which ends if the task is cancelled.

    Raises:
        InternalError: the process failed.
    """
    try:
        status, stdout, _ = await run_isolated(_WORKER, data=pcm, wall_s=_WALL_S)
    except TimeoutError:
        raise InternalError("the recording could not be checked in time") from None
    if status:
        raise InternalError("the recording could not be checked")
    return RecordingReport(**json.loads(stdout))


def check(report: RecordingReport, field: str) -> list[RecordingWarning]:
    """Return the warnings about a suitable recording.

    Raises:
        RecordingUnsuitable: it is not suitable; `field` names it.
    """
    _refuse(report, field)
    speech_dbfs = report.speech_dbfs or 0.0
    above_db = math.inf if report.noise_dbfs is None else speech_dbfs - report.noise_dbfs
    faults = {
        "clipped": (report.clipped_share > CLIPPED, f"{report.clipped_share:.1%} of the samples are clipped"),
        "quiet": (speech_dbfs < QUIET_DBFS, f"the speech is quiet ({speech_dbfs:.0f} dBFS)"),
        "dc_offset": (
            abs(report.dc_offset) > MAX_DC,
            f"the signal is off centre by {report.dc_offset:.0%} of full scale",
        ),
        "noisy": (above_db < MIN_SNR_DB, f"the speech is only {above_db:.0f} dB above the noise"),
        "several_speakers": (report.two_pitches, "there seem to be several speakers; the voice will be a blend"),
    }
    return [RecordingWarning(code, message) for code, (applies, message) in faults.items() if applies]


def _refuse(report: RecordingReport, field: str) -> None:
    if report.duration_s < MIN_DURATION_S:
        message = f"the recording lasts {report.duration_s:.1f} s; a voice needs {MIN_DURATION_S:g} s or more"
        raise RecordingTooShort(message, field=field)
    if report.peak_dbfs < SILENT_DBFS:
        raise RecordingSilent("the recording is silent", field=field)
    if report.speech_s < MIN_SPEECH_S or report.speech_dbfs is None:
        message = f"there are {report.speech_s:.1f} s of speech in the recording; a voice needs {MIN_SPEECH_S:g} s"
        raise RecordingWithoutSpeech(message, field=field)
    if report.speech_dbfs < TOO_QUIET_DBFS:
        raise RecordingTooQuiet(f"the speech is too quiet ({report.speech_dbfs:.0f} dBFS)", field=field)
    if report.clipped_share > TOO_CLIPPED:
        message = f"{report.clipped_share:.0%} of the samples are clipped: it was recorded too loud"
        raise RecordingClipped(message, field=field)
