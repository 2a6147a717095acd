"""Compares a voice with its teacher on texts held out of training, by the judges of `training.judges`.

    python -m training.compare --voice build/starter_voice --teacher-audio build/eval_audio \\
        --texts build/corpus/eval_sentences.txt --steps 4 10 --cfg 2.0

prints a table for each named voice: the teacher, the teacher through the VAE, and the model at each number of flow
steps and each guidance. --out DIR also writes the tables, the transcripts, WAV files, and a plot of spectrogram and
pitch.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from realtime_tts.model.checkpoint import LoadedModel, load_model
from training.generation import Line, decode, generate
from training.heard_words import comparable_words, skipped_and_repeated
from training.judges import RATE_HZ, Audio, Judges, load_judges
from training.speakers import SAMPLE_RATE_HZ, VOICES
from training.speech_metrics import Samples, speech_seconds
from training.teacher import AudioChunk
from training.word_errors import Difference, WordErrors

LENGTHS = (0.8, 1.25)  # of speech over the teacher's: what counts as right
BATCH = 16  # texts that the model speaks at once
TEACHER = "teacher"
THROUGH_VAE = "teacher through the VAE"
_HEADER = (
    "| | n | DistillMOS (5th percentile) | word errors | minus teacher [95 %] | length within "
    f"{LENGTHS[0]}–{LENGTHS[1]} | similarity | skipped | repeated |\n|---|---|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """Whisper's account of one system's recordings: transcripts, word errors, words skipped and words repeated."""

    transcripts: list[str]
    errors: WordErrors
    skipped: int
    repeated: int

    @classmethod
    def compare(cls, texts: Sequence[str], transcripts: Sequence[str]) -> Heard:
        said, heard = ([comparable_words(text) for text in part] for part in (texts, transcripts))
        slips = [skipped_and_repeated(*pair) for pair in zip(said, heard, strict=True)]
        skipped, repeated = (sum(counts) for counts in zip(*slips, strict=True))
        return cls(list(transcripts), WordErrors.count(said, heard), skipped, repeated)


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """One system's figures in one voice: arrays [n], None where the judge is missing.

    lengths: seconds of speech over the teacher's. similarity: cosine to the teacher's voice in the other texts.
    """

    lengths: NDArray[np.float64]
    quality: NDArray[np.float64] | None = None
    heard: Heard | None = None
    similarity: NDArray[np.float64] | None = None


def read_teacher(folder: Path, texts: set[str] | None, limit: int | None) -> dict[str, dict[str, Samples]]:
    """Return the teacher's recordings (24 kHz) as voice → text → samples, without mixtures and other texts.

    Raises ValueError if nothing remains.
    """
    found: dict[str, dict[str, Samples]] = {voice: {} for voice in VOICES}
    for path in sorted(folder.glob("*.npz")):
        chunk = AudioChunk.load(path)
        for text, speaker, samples in zip(chunk.texts, chunk.speakers, chunk.utterances(), strict=True):
            if speaker < len(VOICES) and (texts is None or text in texts):
                found[VOICES[speaker]].setdefault(text, samples)
    chosen = {voice: dict(list(own.items())[:limit]) for voice, own in found.items() if own}
    if not chosen:
        raise ValueError(f"no recording of a named voice and of these texts lies in {folder}")
    return chosen


def at_rate(samples: Samples, rate_hz: int, wanted_hz: int) -> Audio:
    """Return float32 audio in −1…1 at `wanted_hz`."""
    audio = samples.astype(np.float32) / 32768
    return audio if rate_hz == wanted_hz else np.asarray(soxr.resample(audio, rate_hz, wanted_hz), np.float32)


def through_vae(loaded: LoadedModel, samples: Samples) -> Samples:
    """Return the teacher's recording (24 kHz), encoded and decoded, at the model's rate."""
    audio = at_rate(samples, SAMPLE_RATE_HZ, loaded.config.encode_rate_hz)
    with torch.inference_mode():
        decoded = decode(loaded, loaded.model.encode_recording(torch.from_numpy(audio)).numpy())
    return decoded[: round(len(samples) * loaded.config.sample_rate / SAMPLE_RATE_HZ)]


def speak(loaded: LoadedModel, voice: str, texts: Sequence[str], *, steps: int, cfg: float) -> list[Samples]:
    """Return the model's recordings of the texts; the noise of text n has the seed n."""
    spoken = []
    for start in tqdm(range(0, len(texts), BATCH), desc=f"{voice} speaks, {steps} steps", unit="batch"):
        lines = [Line(text, voice) for text in texts[start : start + BATCH]]
        with torch.inference_mode():
            patches = generate(loaded, lines, range(start, start + len(lines)), steps=steps, cfg=cfg)
            spoken += [decode(loaded, part) for part in patches]
    return spoken


def leave_one_out(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return for each row [n, size] the mean of the other rows at length 1; for a single row, itself."""
    if len(embeddings) == 1:
        return embeddings
    others = embeddings.sum(0) - embeddings
    return others / np.linalg.norm(others, axis=1, keepdims=True)


def judge_voice(
    judges: Judges, texts: Sequence[str], systems: dict[str, list[Audio]], label: str
) -> dict[str, Figures]:
    """Return the figures of each system's recordings (16 kHz) of the texts; the first system is the teacher."""
    teacher = next(iter(systems.values()))
    taught_s = [max(_speech_s(audio), 0.01) for audio in teacher]
    reference = leave_one_out(np.stack([judges.embed(audio) for audio in teacher])) if judges.embed else None
    figures = {}
    for name, recordings in systems.items():
        quality, transcripts, similarity = [], [], []
        for n, audio in enumerate(tqdm(recordings, desc=f"{label}, {name}", mininterval=5)):
            if judges.quality:
                quality.append(judges.quality(audio))
            if judges.transcribe:
                transcripts.append(judges.transcribe(audio))
            if judges.embed and reference is not None:
                similarity.append(float(judges.embed(audio) @ reference[n]))
        figures[name] = Figures(
            lengths=np.array([_speech_s(audio) for audio in recordings]) / taught_s,
            quality=np.array(quality) if judges.quality else None,
            heard=Heard.compare(texts, transcripts) if judges.transcribe else None,
            similarity=np.array(similarity) if judges.embed else None,
        )
    return figures


def _speech_s(audio: Audio) -> float:
    return speech_seconds((audio.clip(-1, 1) * 32767).astype(np.int16))


def table(voice: str, figures: dict[str, Figures]) -> str:
    """Return one voice's table in Markdown; "–" where a judge is missing. The first row is the teacher's."""
    teacher = next(iter(figures.values()))
    return "\n".join([f"### {voice}", _HEADER, *(_row(name, own, teacher) for name, own in figures.items())])


def _row(name: str, own: Figures, teacher: Figures) -> str:
    quality = difference = errors = skipped = repeated = similarity = "–"
    if own.quality is not None:
        quality = f"{own.quality.mean():.2f} ({np.percentile(own.quality, 5):.2f})"
    if own.heard is not None and teacher.heard is not None:
        errors = f"{own.heard.errors.percent:.1f} %"
        skipped, repeated = str(own.heard.skipped), str(own.heard.repeated)
        if own is not teacher:
            points = Difference.between(own.heard.errors, teacher.heard.errors)
            difference = f"{points.points:+.1f} [{points.low:+.1f}, {points.high:+.1f}]"
    if own.similarity is not None:
        similarity = f"{own.similarity.mean():.3f}"
    right = 100 * np.mean((own.lengths >= LENGTHS[0]) & (own.lengths <= LENGTHS[1]))
    cells = (name, len(own.lengths), quality, errors, difference, f"{right:.0f} %", similarity, skipped, repeated)
    return f"| {' | '.join(map(str, cells))} |"


def write_wav(path: Path, samples: Samples, rate_hz: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(samples.astype("<i2").tobytes())


def write_recordings(
    folder: Path, texts: Sequence[str], systems: dict[str, list[Samples]], rate_hz: int, figures: dict[str, Figures]
) -> None:
    """Write WAV files, texts.tsv (file, text, transcript) and a plot of the first text."""
    from training.compare_plots import plot_recordings

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, recordings in systems.items():
        heard, rate = figures[name].heard, SAMPLE_RATE_HZ if name == TEACHER else rate_hz
        for n, samples in enumerate(recordings):
            path = folder / f"{n:03d} {name}.wav"
            write_wav(path, samples, rate)
            rows.append(f"{path.name}\t{texts[n]}\t{heard.transcripts[n] if heard else ''}\n")
    (folder / "texts.tsv").write_text("".join(rows), encoding="utf-8")
    shown = {
        name: at_rate(recordings[0], SAMPLE_RATE_HZ if name == TEACHER else rate_hz, RATE_HZ)
        for name, recordings in systems.items()
        if name != THROUGH_VAE
    }
    plot_recordings(texts[0], shown, folder / "spectrograms.png")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, default=Path("build/starter_voice"), help="a checkpoint directory")
    parser.add_argument("--teacher-audio", type=Path, default=Path("build/eval_audio"), help="from training.teacher")
    parser.add_argument("--texts", type=Path, nargs="*", help="files of one text a line; by default all that is there")
    parser.add_argument("--steps", type=int, nargs="+", help="numbers of flow steps; by default the voice's own")
    parser.add_argument("--cfg", type=float, nargs="+", help="guidance; by default the voice's own")
    parser.add_argument("--limit", type=int, help="at most this many texts of each voice")
    parser.add_argument("--out", type=Path, help="folder for tables, transcripts, WAV files and plots")
    args = parser.parse_args(arguments)
    texts = {line for path in args.texts for line in path.read_text().splitlines()} if args.texts else None
    taught = read_teacher(args.teacher_audio, texts, args.limit)
    loaded, judges = load_model(args.voice), load_judges()
    rate_hz = loaded.config.sample_rate
    settings = list(
        itertools.product(args.steps or [loaded.policy.default_steps], args.cfg or [loaded.policy.default_cfg])
    )
    tables = []
    for voice, own in taught.items():
        own_texts = list(own)
        systems = {TEACHER: list(own.values())}
        recoded = tqdm(own.values(), desc=f"{voice}, through the VAE", mininterval=5)
        systems[THROUGH_VAE] = [through_vae(loaded, samples) for samples in recoded]
        for steps, cfg in settings:
            name = f"model, {steps} steps, CFG {cfg:g}"
            systems[name] = speak(loaded, voice, own_texts, steps=steps, cfg=cfg)
        judged = {
            name: [at_rate(part, SAMPLE_RATE_HZ if name == TEACHER else rate_hz, RATE_HZ) for part in recordings]
            for name, recordings in systems.items()
        }
        figures = judge_voice(judges, own_texts, judged, voice)
        tables.append(table(voice, figures))
        print(f"\n{tables[-1]}\n", flush=True)
        if args.out:
            write_recordings(args.out / voice, own_texts, systems, rate_hz, figures)
    if args.out:
        (args.out / "tables.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
