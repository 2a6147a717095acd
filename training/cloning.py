"""Judges how well a voice speaks like speakers that training never heard, from five seconds of each.

    python -m training.script --readers unseen --corpus build/corpus/eval_sentences.txt --out build/corpus/unseen.tsv
    python -m training.teacher --script build/corpus/unseen.tsv --out build/unseen_audio
    python -m training.cloning --voice build/starter_voice --audio build/unseen_audio

Each speaker's first recordings, joined and cut to five seconds, are the reference; the texts of the others are spoken
with it. Likeness is Resemblyzer's cosine to the speaker's recordings of other texts, as a share of what the speaker's
own recordings have among each other.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from realtime_tts.model.checkpoint import LoadedModel, load_model
from training.compare import at_rate
from training.generation import Line, decode, generate
from training.judges import RATE_HZ, Audio, voice_encoder
from training.speakers import SAMPLE_RATE_HZ
from training.speech_metrics import Samples, pitch
from training.teacher import AudioChunk

REFERENCE_S = 5.0
MIN_COMPARED = 2  # recordings of a speaker beside the reference, and speakers

Recordings = list[tuple[str, Samples]]  # text, samples at 24 kHz


@dataclasses.dataclass(frozen=True, slots=True)
class Likeness:
    """One speaker's figures. likeness: the clone's over the speaker's own. Pitches in Hz: medians of voiced frames."""

    likeness: float
    pitch_hz: float
    cloned_pitch_hz: float


def read_speakers(folder: Path) -> dict[int, Recordings]:
    """Return each speaker's recordings, in the order of the files."""
    found: dict[int, Recordings] = {}
    for path in sorted(folder.glob("*.npz")):
        chunk = AudioChunk.load(path)
        for speaker, text, samples in zip(chunk.speakers.tolist(), chunk.texts, chunk.utterances(), strict=True):
            found.setdefault(speaker, []).append((text, samples))
    return found


def split(recordings: Recordings) -> tuple[Samples, Recordings] | None:
    """Return the reference and the recordings that are not in it; None if too few remain."""
    wanted = round(REFERENCE_S * SAMPLE_RATE_HZ)
    lengths = np.cumsum([len(samples) for _, samples in recordings])
    count = int(np.searchsorted(lengths, wanted)) + 1
    if len(recordings) - count < MIN_COMPARED:
        return None
    return np.concatenate([samples for _, samples in recordings[:count]])[:wanted], recordings[count:]


def clone(loaded: LoadedModel, reference: Samples, texts: Sequence[str]) -> list[Samples]:
    """Return the texts as spoken with the reference, at the model's rate."""
    audio = torch.from_numpy(at_rate(reference, SAMPLE_RATE_HZ, loaded.config.encode_rate_hz))
    with torch.inference_mode():
        patches = loaded.model.encode_recording(audio).numpy()
        lines = [Line(text, reference=patches) for text in texts]
        policy = loaded.policy
        spoken = generate(loaded, lines, range(len(lines)), steps=policy.default_steps, cfg=policy.default_cfg)
        return [decode(loaded, part) for part in spoken]


def compare(embed: Callable[[Audio], Audio], own: Sequence[Audio], cloned: Sequence[Audio]) -> Likeness:
    """Compare recordings (16 kHz) of the same texts, in the same order."""
    first, second = (np.stack([embed(audio) for audio in each]) for each in (own, cloned))
    others = ~np.eye(len(own), dtype=bool)
    likeness = (second @ first.T)[others].mean() / (first @ first.T)[others].mean()
    return Likeness(float(likeness), *(_median_pitch(each) for each in (own, cloned)))


def _median_pitch(recordings: Sequence[Audio]) -> float:
    tracks = [pitch((audio.clip(-1, 1) * 32767).astype(np.int16)) for audio in recordings]
    return float(np.median(np.concatenate(tracks)))


def summary(found: Sequence[Likeness]) -> str:
    """Return one line: the mean and the least likeness, and how pitches go together."""
    likeness: NDArray[np.float64] = np.array([each.likeness for each in found])
    pitches = np.log([[each.pitch_hz, each.cloned_pitch_hz] for each in found])
    correlation = np.corrcoef(pitches.T)[0, 1]
    return (
        f"{len(found)} speakers: likeness {likeness.mean():.3f} of their own, least {likeness.min():.3f}; "
        f"correlation of pitches {correlation:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, default=Path("build/starter_voice"), help="a checkpoint directory")
    parser.add_argument("--audio", type=Path, default=Path("build/unseen_audio"), help="from training.teacher")
    args = parser.parse_args()
    loaded, embed, found = load_model(args.voice), voice_encoder(), []
    for recordings in tqdm(read_speakers(args.audio).values(), unit="speaker"):
        parts = split(recordings)
        if parts is None:
            continue
        reference, others = parts
        cloned = clone(loaded, reference, [text for text, _ in others])
        own = [at_rate(samples, SAMPLE_RATE_HZ, RATE_HZ) for _, samples in others]
        found.append(compare(embed, own, [at_rate(each, loaded.config.sample_rate, RATE_HZ) for each in cloned]))
    if len(found) < MIN_COMPARED:
        parser.error(f"{args.audio} has too few speakers with enough recordings")
    print(summary(found))


if __name__ == "__main__":
    main()
