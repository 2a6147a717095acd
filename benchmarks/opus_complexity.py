"""What libopus' complexity costs and gives at the default bit rate: processor time, distance to the original, words
that a recogniser gets wrong, bytes.

    python -m benchmarks.opus_complexity --runs 5

Material: sentences by the bundled voice at 48 kHz, the same with the upper octaves of a wide-band voice put on (the
hiss of its consonants mirrored above 8 kHz), a glide of harmonics, and noise. Distance: root mean square of the
differences of log spectra, dB, 20 ms windows, wherever the original is within 50 dB of its loudest, without the codec's
delay.
Processor time: of the thread that encodes, complexities in turn, the least of `--runs`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import jiwer
import numpy as np
import soxr
from tqdm import tqdm

from benchmarks.recognition import Recogniser
from realtime_tts.api.tts import TTS
from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.opus import OpusDecoder, OpusEncoder

RATE_HZ, FRAME_SAMPLES = 48_000, 960
VOICE_RATE_HZ = 16_000
COMPLEXITIES = (0, 2, 4, 5, 7, 10)  # those between them are hardly told apart
WINDOW = 960
FLOOR_DB = 50.0
SENTENCES = (
    "the boats came in at four and nobody on the harbour wall said a word",
    "she counted the boxes twice and wrote the number in her book",
    "it will rain before noon but the market does not wait for the weather",
    "someone laughed behind the house and a dog began to bark",
    "please call the office on monday and ask for a new appointment",
    "the train to the north leaves from platform seven in ten minutes",
    "we have read your letter and will send an answer by the end of the week",
    "most of the children had never seen so much snow in their lives",
)

Samples = np.ndarray[Any, np.dtype[np.float32]]


def speak(tts: TTS, text: str) -> Samples:
    chunks = [np.asarray(chunk, dtype=np.float32) for chunk in tts.generate(text)]
    return np.asarray(soxr.resample(np.concatenate(chunks), tts.sample_rate, RATE_HZ), dtype=np.float32)


def widened(speech: Samples) -> Samples:
    """With what lies between 4 and 8 kHz once more between 8 and 12 kHz, 6 dB lower."""
    spectrum = np.fft.rfft(speech)
    low, high = (round(hz * len(speech) / RATE_HZ) for hz in (4_000, 8_000))
    spectrum[high : high + (high - low)] += 0.5 * spectrum[low:high][::-1]
    return np.fft.irfft(spectrum, len(speech)).astype(np.float32)


def glide(seconds: float) -> Samples:
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * (150 * t + 12 * np.sin(2 * np.pi * t))
    return sum(0.2 * np.sin(k * phase) / k for k in range(1, 20)).astype(np.float32)


def noise(seconds: float) -> Samples:
    return np.random.default_rng(0).normal(0, 0.05, round(seconds * RATE_HZ)).astype(np.float32)


def frames_of(samples: Samples) -> list[bytes]:
    pcm = (np.clip(samples, -1, 1) * 32_767).astype("<i2")
    pcm = np.concatenate([pcm, np.zeros(FRAME_SAMPLES + -len(pcm) % FRAME_SAMPLES, "<i2")])
    return [pcm[start : start + FRAME_SAMPLES].tobytes() for start in range(0, len(pcm), FRAME_SAMPLES)]


def encode(frames: Sequence[bytes], complexity: int) -> tuple[list[bytes], int, float]:
    """Packets, the codec's delay in samples, and seconds of processor time."""
    encoder = OpusEncoder(AudioFormat(), complexity)
    packets = encoder.encode(frames[:1])  # which sets libav up
    begun = time.thread_time()
    for start in range(1, len(frames), 8):
        packets += encoder.encode(frames[start : start + 8])
    return packets, encoder.delay_samples, time.thread_time() - begun


def decode(packets: Sequence[bytes], delay_samples: int, num_samples: int) -> Samples:
    decoder = OpusDecoder()
    decoded = np.concatenate([decoder.decode(packet) for packet in packets])
    return np.asarray(decoded[delay_samples : delay_samples + num_samples], dtype=np.float32)


def distance_db(original: Samples, decoded: Samples) -> float:
    spectra = []
    for samples in (original, decoded):
        starts = range(0, len(original) - WINDOW, WINDOW // 2)
        windows = np.stack([samples[start : start + WINDOW] for start in starts]) * np.hanning(WINDOW)
        spectra.append(20 * np.log10(np.abs(np.fft.rfft(windows)) + 1e-4))
    loud = spectra[0] > spectra[0].max() - FLOOR_DB
    return float(np.sqrt(np.mean((spectra[0] - spectra[1])[loud] ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    tts = TTS()
    try:
        spoken = [speak(tts, text) for text in SENTENCES]
    finally:
        tts.close()
    speech = np.concatenate(spoken)
    material = {"voice": speech, "wide": widened(speech), "glide": glide(20.0), "noise": noise(20.0)}
    framed = {name: frames_of(samples) for name, samples in material.items()}
    cost = {(name, complexity): float("inf") for name in material for complexity in COMPLEXITIES}
    for _ in tqdm(range(given.runs)):
        for name, complexity in cost:
            elapsed_s = encode(framed[name], complexity)[2]
            cost[name, complexity] = min(cost[name, complexity], elapsed_s * RATE_HZ / len(material[name]))
    recogniser = Recogniser()
    plain = [recogniser.transcribe(samples, RATE_HZ) for samples in spoken]
    print(f"words wrong without a codec: {100 * jiwer.wer(list(SENTENCES), plain):.1f} %")
    print("complexity | " + " | ".join(f"{name}: ms/s, dB, bytes" for name in material) + " | words wrong, %")
    for complexity in COMPLEXITIES:
        cells = []
        for name, samples in material.items():
            packets, delay_samples, _ = encode(framed[name], complexity)
            decoded = decode(packets, delay_samples, len(samples))
            mean_bytes = np.mean([len(packet) for packet in packets])
            spent = 1000 * cost[name, complexity]
            cells.append(f"{spent:.2f}, {distance_db(samples, decoded):.2f}, {mean_bytes:.0f}")
        heard = []
        for samples in spoken:
            packets, delay_samples, _ = encode(frames_of(samples), complexity)
            heard.append(recogniser.transcribe(decode(packets, delay_samples, len(samples)), RATE_HZ))
        print(f"{complexity} | " + " | ".join(cells) + f" | {100 * jiwer.wer(list(SENTENCES), heard):.1f}", flush=True)


if __name__ == "__main__":
    main()
