"""Cost and quality of libopus' complexity settings at the bit rates that clients request: processor time, distance to
the original, word errors of a recogniser, bytes; and a listening sheet.

    python -m benchmarks.opus_complexity --runs 5 --sheet opus-sheet

Material: sentences by the bundled voice at 48 kHz, and the same with the upper octaves of a wide-band voice put on (the
hiss of its consonants mirrored above 8 kHz). Distance: root mean square of the differences of log spectra, dB, 20 ms
windows, wherever the original is within 50 dB of its loudest, without the codec's delay. Processor time: of the thread
that encodes, complexities in turn, the least of `--runs`.

The sheet is a directory with a page: a picture of the table, and one sentence in every complexity and bit rate.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jiwer
import matplotlib
import numpy as np
import soxr
from tqdm import tqdm

from benchmarks.recognition import Recogniser
from realtime_tts.api.tts import TTS
from realtime_tts.audio.codecs import OPUS_COMPLEXITY, AudioFormat
from realtime_tts.audio.containers import write_wav
from realtime_tts.audio.opus import OpusDecoder, OpusEncoder

RATE_HZ, FRAME_SAMPLES = 48_000, 960
COMPLEXITIES = range(11)
BITRATES = (16_000, 24_000, 32_000, 64_000)
HEARD = 2  # the sentence on the sheet
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
    """Return the samples with the band of 4 to 8 kHz copied to 8 to 12 kHz, 6 dB lower."""
    spectrum = np.fft.rfft(speech)
    low, high = (round(hz * len(speech) / RATE_HZ) for hz in (4_000, 8_000))
    spectrum[high : high + (high - low)] += 0.5 * spectrum[low:high][::-1]
    return np.fft.irfft(spectrum, len(speech)).astype(np.float32)


def frames_of(samples: Samples) -> list[bytes]:
    pcm = np.frombuffer(_s16(samples), "<i2")
    pcm = np.concatenate([pcm, np.zeros(FRAME_SAMPLES + -len(pcm) % FRAME_SAMPLES, "<i2")])
    return [pcm[start : start + FRAME_SAMPLES].tobytes() for start in range(0, len(pcm), FRAME_SAMPLES)]


def encode(frames: Sequence[bytes], complexity: int, bitrate: int) -> tuple[list[bytes], int, float]:
    """Packets, the codec's delay in samples, and seconds of processor time."""
    encoder = OpusEncoder(AudioFormat(bitrate=bitrate), complexity)
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


def through(samples: Samples, complexity: int, bitrate: int) -> tuple[Samples, float]:
    """Return the decoded audio, and the mean bytes of a packet."""
    packets, delay_samples, _ = encode(frames_of(samples), complexity, bitrate)
    return decode(packets, delay_samples, len(samples)), float(np.mean([len(packet) for packet in packets]))


@dataclass
class Row:
    """One complexity at one bit rate."""

    bitrate: int
    complexity: int
    ms_per_s: float
    bytes: float
    voice_db: float
    wide_db: float
    words_wrong: float  # %; nan: not asked for


def costs(speech: Samples, num_runs: int) -> dict[tuple[int, int], float]:
    """Milliseconds of processor time a second, by bit rate and complexity."""
    frames = frames_of(speech)
    cost = {(bitrate, complexity): float("inf") for bitrate in BITRATES for complexity in COMPLEXITIES}
    for _ in tqdm(range(num_runs), desc="processor time"):
        for bitrate, complexity in cost:
            spent_s = encode(frames, complexity, bitrate)[2]
            cost[bitrate, complexity] = min(cost[bitrate, complexity], 1000 * spent_s * RATE_HZ / len(speech))
    return cost


def measure(
    spoken: Sequence[Samples], cost: dict[tuple[int, int], float], recogniser: Recogniser, recognised: Sequence[int]
) -> list[Row]:
    speech = np.concatenate(spoken)
    wide = widened(speech)
    rows = []
    for bitrate, complexity in tqdm(cost, desc="quality"):
        decoded, num_bytes = through(speech, complexity, bitrate)
        wide_db = distance_db(wide, through(wide, complexity, bitrate)[0])
        wrong = float("nan")
        if bitrate in recognised:
            heard = [recogniser.transcribe(through(one, complexity, bitrate)[0], RATE_HZ) for one in spoken]
            wrong = 100 * jiwer.wer(list(SENTENCES), heard)
        spent_ms, voice_db = cost[bitrate, complexity], distance_db(speech, decoded)
        rows.append(Row(bitrate, complexity, spent_ms, num_bytes, voice_db, wide_db, wrong))
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    """Cost and distance by complexity, a line for each bit rate."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    shown = {"ms_per_s": "ms of a processor a second", "voice_db": "dB, voice", "wide_db": "dB, wide-band voice"}
    if not all(math.isnan(row.words_wrong) for row in rows):
        shown["words_wrong"] = "words wrong, %"
    figure, axes = pyplot.subplots(1, len(shown), figsize=(3.8 * len(shown), 3.8))
    for one, (name, label) in zip(axes, shown.items(), strict=True):
        for bitrate in BITRATES:
            own = [row for row in rows if row.bitrate == bitrate]
            values = [getattr(row, name) for row in own]
            one.plot(
                [row.complexity for row in own], values, marker="o", markersize=3, label=f"{bitrate // 1000} kbit/s"
            )
        one.axvline(OPUS_COMPLEXITY, color="grey", linestyle=":", linewidth=1)
        one.set(xlabel="complexity", ylabel=label, ylim=(0, None))
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def write_sheet(rows: Sequence[Row], sentence: Samples, directory: Path) -> None:
    """A page with the figures, and the sentence (made wide-band) as every encoder leaves it."""
    directory.mkdir(parents=True, exist_ok=True)
    draw(rows, directory / "figures.png")
    (directory / "figures.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    wide = widened(sentence)
    write_wav(directory / "original.wav", _s16(wide), RATE_HZ)
    cells = []
    for row in rows:
        name = f"{row.bitrate // 1000}k-{row.complexity}.wav"
        write_wav(directory / name, _s16(through(wide, row.complexity, row.bitrate)[0]), RATE_HZ)
        figures = (row.ms_per_s, row.bytes, row.voice_db, row.wide_db, row.words_wrong)
        values = "".join(f"<td>{value:.1f}</td>" for value in figures)
        cells.append(
            f"<tr><td>{row.bitrate // 1000}</td><td>{row.complexity}</td>{values}"
            f'<td><audio controls preload="none" src="{name}"></audio></td></tr>'
        )
    names = (
        "kbit/s",
        "complexity",
        "ms/s",
        "bytes",
        "dB, voice",
        "dB, wide",
        "words wrong, %",
        html.escape(SENTENCES[HEARD]),
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    page = (
        '<!doctype html><meta charset="utf-8"><title>Opus by complexity</title>'
        "<style>body{font:14px sans-serif}td,th{padding:2px 10px;text-align:right}</style>"
        f'<p>Original: <audio controls src="original.wav"></audio><p><img src="figures.png" alt="">'
        f"<table><tr>{head}</tr>{''.join(cells)}</table>"
    )
    (directory / "index.html").write_text(page)


def _s16(samples: Samples) -> bytes:
    return (np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sheet", type=Path, help="where the listening sheet goes")
    parser.add_argument(
        "--recognise",
        type=int,
        nargs="*",
        default=BITRATES,
        help="bit rates that words are counted at: most of the time",
    )
    given = parser.parse_args()
    tts = TTS()
    try:
        spoken = [speak(tts, text) for text in SENTENCES]
    finally:
        tts.close()
    recogniser = Recogniser()
    plain = [recogniser.transcribe(samples, RATE_HZ) for samples in spoken]
    print(f"words wrong without a codec: {100 * jiwer.wer(list(SENTENCES), plain):.1f} %")
    rows = measure(spoken, costs(np.concatenate(spoken), given.runs), recogniser, given.recognise)
    print("kbit/s | complexity | ms/s | bytes | voice, dB | wide, dB | words wrong, %")
    for row in rows:
        figures = (
            f"{row.ms_per_s:.2f} | {row.bytes:.0f} | {row.voice_db:.2f} | {row.wide_db:.2f} | {row.words_wrong:.1f}"
        )
        print(f"{row.bitrate // 1000} | {row.complexity} | {figures}")
    if given.sheet is not None:
        write_sheet(rows, spoken[HEARD], given.sheet)


if __name__ == "__main__":
    main()
