"""Recording of a test's microphone: silence, steady noise that begins at once, silence, speech, silence."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from realtime_tts_client import synthesize

RATE_HZ = 48_000
NOISE_FROM_S, NOISE_TO_S = 1.0, 3.0
SPEECH_FROM_S = 3.5
SENTENCE = "Please stop now, there is something that I would like to say before you go on."


def microphone_recording(path: Path, server_url: str) -> Path:
    """Written as a WAV file, with speech of that server's; its end is quiet for longer than a test takes."""
    speech, _ = synthesize(server_url.replace("http", "ws", 1), SENTENCE, sample_rate=RATE_HZ)
    noise = np.random.default_rng(5).normal(0, 0.05, int((NOISE_TO_S - NOISE_FROM_S) * RATE_HZ))
    samples = np.zeros(60 * RATE_HZ)
    for start_s, part in ((NOISE_FROM_S, noise), (SPEECH_FROM_S, 0.6 * speech / np.max(np.abs(speech)))):
        start = int(start_s * RATE_HZ)
        samples[start : start + len(part)] = part
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return path
