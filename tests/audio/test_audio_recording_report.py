"""Reports on recordings before they become voices: real speech, and each way in which a recording is no good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from spoken_recordings import said

from realtime_tts.audio import recording_report
from realtime_tts.audio.recording_report import REPORT_RATE_HZ, RecordingReport, check, report_on
from realtime_tts.errors import (
    InternalError,
    RecordingClipped,
    RecordingSilent,
    RecordingTooQuiet,
    RecordingTooShort,
    RecordingUnsuitable,
    RecordingWithoutSpeech,
)

GOOD = RecordingReport(
    duration_s=6.0,
    peak_dbfs=-3.0,
    clipped_share=0.0,
    dc_offset=0.0,
    speech_s=5.0,
    speech_dbfs=-20.0,
    noise_dbfs=-60.0,
    two_pitches=False,
)


def noise(seconds: float, level: float) -> np.ndarray[Any, Any]:
    return level * np.random.default_rng(3).standard_normal(int(seconds * REPORT_RATE_HZ))


async def of(samples: np.ndarray[Any, Any]) -> RecordingReport:
    return await report_on((np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2").tobytes())


@pytest.mark.parametrize("voice", ["heart", "michael"])
async def test_good_speech_has_nothing_said_against_it(voice: str) -> None:
    report = await of(np.concatenate((said(voice), np.zeros(REPORT_RATE_HZ))))
    assert check(report, "reference") == []
    assert report.duration_s == pytest.approx(len(said(voice)) / REPORT_RATE_HZ + 1, abs=1e-3)
    assert 0.6 * (report.duration_s - 1) < report.speech_s <= report.duration_s


BAD: dict[str, tuple[Callable[[], np.ndarray[Any, Any]], type[RecordingUnsuitable]]] = {
    "short": (lambda: said("heart")[: int(1.9 * REPORT_RATE_HZ)], RecordingTooShort),
    "nothing": (lambda: np.zeros(0), RecordingTooShort),
    "silence": (lambda: np.zeros(5 * REPORT_RATE_HZ), RecordingSilent),
    "dither": (lambda: noise(5, 1e-5), RecordingSilent),
    "noise": (lambda: noise(5, 0.1), RecordingWithoutSpeech),
    "a tone": (lambda: 0.3 * np.sin(np.arange(5 * REPORT_RATE_HZ) * 0.06), RecordingWithoutSpeech),
    "half a second of speech": (
        lambda: np.concatenate((said("heart")[: REPORT_RATE_HZ // 2], noise(5, 1e-4))),
        RecordingWithoutSpeech,
    ),
    "whispered far away": (lambda: said("heart") * 0.006, RecordingTooQuiet),
    "clipped": (lambda: said("heart") * 12, RecordingClipped),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_recording_that_makes_no_voice_is_refused_with_its_reason(name: str) -> None:
    make, error = BAD[name]
    with pytest.raises(error) as caught:
        check(await of(make()), "reference")
    assert (type(caught.value), caught.value.field, caught.value.http_status) == (error, "reference", 422)


ODD: dict[str, tuple[Callable[[], np.ndarray[Any, Any]], list[str]]] = {
    "a little clipped": (lambda: said("heart") * 4, ["clipped"]),
    "quiet": (lambda: said("michael") * 0.05, ["quiet"]),
    "off centre": (lambda: said("heart") * 0.5 + 0.2, ["dc_offset"]),
    "noisy": (lambda: said("michael") + noise(len(said("michael")) / REPORT_RATE_HZ, 0.05), ["noisy"]),
    "two speakers": (lambda: np.concatenate((said("michael", 0.8), said("heart", 1.2))), ["several_speakers"]),
}


@pytest.mark.parametrize("name", ODD)
async def test_a_doubtful_recording_is_taken_with_a_warning(name: str) -> None:
    make, codes = ODD[name]
    assert [warning.code for warning in check(await of(make()), "reference")] == codes


def test_the_bounds_hold_on_both_sides() -> None:
    def told(**changed: object) -> list[str]:
        return [warning.code for warning in check(RecordingReport(**{**as_map(GOOD), **changed}), "prompt")]

    def as_map(report: RecordingReport) -> dict[str, Any]:
        return {name: getattr(report, name) for name in RecordingReport.__slots__}

    assert told() == told(noise_dbfs=None) == told(clipped_share=0.001) == told(dc_offset=-0.05) == []
    assert told(clipped_share=0.01) == ["clipped"]
    assert told(dc_offset=-0.06) == ["dc_offset"]
    assert told(speech_dbfs=-50.0, noise_dbfs=-80.0) == ["quiet"]
    for changed in ({"speech_dbfs": None}, {"duration_s": 1.99}, {"speech_s": 0.99}, {"clipped_share": 0.011}):
        with pytest.raises(RecordingUnsuitable):
            told(**changed)


async def test_a_check_that_breaks_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_report, "_WORKER", recording_report._WORKER.with_name("missing.py"))
    with pytest.raises(InternalError):
        await report_on(b"\0\0")
