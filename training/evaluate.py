"""Measures a checkpoint against the teacher on texts held out of training, and writes the figures as JSON.

    python -m training.evaluate --checkpoint realtime_tts/starter_voice --corpus build/corpus

Sections (all of them, or those named by --only): wer, steps, duration, sound, voices, cloning, drift. Needs Flite's
libraries and pocketsphinx. An interrupted evaluation keeps the sections it has finished; --again repeats them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.recognition import transcribe_all, word_error_rate
from realtime_tts.model.checkpoint import LoadedModel, load_model
from training.flite import NAMED_SPEAKERS, VOICES, Flite, Speaker, pseudo_speakers
from training.generation import Utterance, decode, generate
from training.speech_metrics import (
    Samples,
    distances,
    envelope,
    formant_scale,
    pitch,
    rank_correlation,
    seam_jumps,
    speech_seconds,
    voice_features,
)
from training.teacher import PSEUDO_SPEAKERS_SEED, utterance

REFERENCE_PATCHES = 10


class Evaluation:
    """One checkpoint, the teacher, and the held-out texts."""

    def __init__(self, loaded: LoadedModel, flite: Flite, corpus: Path, *, limit: int | None, workers: int) -> None:
        self.loaded, self.flite, self.workers = loaded, flite, workers
        self.sentences = (corpus / "eval_sentences.txt").read_text().splitlines()[:limit]
        self.words = (corpus / "eval_words.txt").read_text().splitlines()[:limit]
        self.pairs = (corpus / "eval_pairs.txt").read_text().splitlines()[:limit]
        self.steps, self.cfg = loaded.policy.default_steps, loaded.policy.default_cfg
        self._spoken: dict[tuple[str, int], list[Samples]] = {}

    def teacher(self, texts: list[str], speaker: Speaker) -> list[Samples]:
        return [utterance(self.flite, text, speaker) for text in texts]

    def say(self, utterances: list[Utterance], *, steps: int | None = None, seed: int = 0) -> list[Samples]:
        patches = generate(self.loaded, utterances, steps=steps or self.steps, cfg=self.cfg, seed=seed)
        return [decode(self.loaded, part) for part in patches]

    def spoken(self, kind: str, voice: str) -> list[Samples]:
        """The held-out texts of a kind in a named voice, made once."""
        key = (kind, VOICES.index(voice))
        if key not in self._spoken:
            self._spoken[key] = self.say([Utterance(text, voice) for text in getattr(self, kind)])
        return self._spoken[key]

    def encode(self, samples: Samples) -> NDArray[np.float32]:
        return self.loaded.model.encode_recording(torch.from_numpy(samples.astype(np.float32) / 32768)).numpy()

    def _wer(self, texts: list[str], audio: list[Samples]) -> float:
        return 100 * word_error_rate(texts, transcribe_all(audio, self.workers))

    def wer(self) -> dict[str, Any]:
        """Percent, teacher beside model, each voice on all sentences; and of the teacher through the VAE alone."""
        result = {}
        for speaker in NAMED_SPEAKERS:
            theirs = self.teacher(self.sentences, speaker)
            part = theirs[:: max(1, len(theirs) // 60)]
            coded = [decode(self.loaded, self.encode(samples)) for samples in part]
            result[speaker.name] = {
                "teacher": self._wer(self.sentences, theirs),
                "model": self._wer(self.sentences, self.spoken("sentences", speaker.name)),
                "teacher_through_vae": self._wer(self.sentences[:: max(1, len(theirs) // 60)], coded),
            }
        return result

    def step_counts(self) -> dict[str, Any]:
        """Word error rate at 10, 6 and 4 flow steps, the three voices together on every third sentence."""
        texts = self.sentences[::3]
        result = {}
        for steps in (10, 6, 4):
            audio = [
                samples
                for voice in VOICES
                for samples in self.say([Utterance(t, voice) for t in texts], steps=steps, seed=1)
            ]
            result[str(steps)] = self._wer(texts * len(VOICES), audio)
        return result

    def duration(self) -> dict[str, Any]:
        """Length of the speech over the teacher's: median and share within 0.8 to 1.25, for each kind of text."""
        result = {}
        for kind in ("sentences", "words", "pairs"):
            texts = getattr(self, kind)
            ratios = [
                speech_seconds(ours) / speech_seconds(theirs)
                for speaker in NAMED_SPEAKERS
                for ours, theirs in zip(self.spoken(kind, speaker.name), self.teacher(texts, speaker), strict=True)
            ]
            within = [0.8 <= ratio <= 1.25 for ratio in ratios]
            low, median, high = np.percentile(ratios, [0.5, 50, 99.5])
            result[kind] = {
                "count": len(ratios),
                "within": np.mean(within),
                "median": median,
                "p0_5": low,
                "p99_5": high,
            }
        return result

    def sound(self) -> dict[str, Any]:
        """Distances to the teacher in dB, and clicks at patch seams of speech decoded patch by patch."""
        vae, tts, jumps = [], [], []
        for speaker in NAMED_SPEAKERS:
            texts = self.sentences[:20]
            for theirs, ours in zip(self.teacher(texts, speaker), self.spoken("sentences", speaker.name), strict=False):
                coded = decode(self.loaded, self.encode(theirs))[: len(theirs)]
                vae.append(distances(coded, theirs, aligned=True))
                tts.append(distances(ours, theirs, aligned=False))
                jumps.append(seam_jumps(ours, self.loaded.config.patch_samples))
        names = ("mel_cepstral_db", "log_spectral_db")
        seams = np.concatenate(jumps)
        return {
            "vae": dict(zip(names, np.mean(vae, axis=0), strict=True)),
            "tts": dict(zip(names, np.mean(tts, axis=0), strict=True)),
            "seams": {"count": len(seams), "max_jump": seams.max(), "share_over_0_1": float((seams > 0.1).mean())},
        }

    def voices(self) -> dict[str, Any]:
        """Share of generated sentences whose voice a nearest-mean classifier of the teacher's speech gets right."""
        texts = self.sentences[:100]
        taught = [
            np.array([voice_features(samples) for samples in self.teacher(texts, speaker)])
            for speaker in NAMED_SPEAKERS
        ]
        spread = np.concatenate([part - part.mean(0) for part in taught]).std(0)
        means = np.array([part.mean(0) for part in taught])
        right = []
        for number, voice in enumerate(VOICES):
            for samples in self.spoken("sentences", voice)[:100]:
                away = np.square((voice_features(samples) - means) / spread).sum(1)
                right.append(int(away.argmin()) == number)
        return {"count": len(right), "accuracy": np.mean(right)}

    def cloning(self, num_speakers: int = 30) -> dict[str, Any]:
        """Rank correlation of pitch and formants between unseen pseudo-speakers and what is cloned from them."""
        speakers = pseudo_speakers(num_speakers, PSEUDO_SPEAKERS_SEED + 1000, prefix="unseen")
        template = np.mean(
            [envelope(samples) for voice in NAMED_SPEAKERS for samples in self.teacher(self.sentences[:5], voice)],
            axis=0,
        )
        texts = self.sentences[10:13]
        utterances, references = [], []
        for number, speaker in enumerate(speakers):
            recording = np.concatenate(self.teacher([self.sentences[-1 - number % len(self.sentences)]], speaker))
            references.append(np.concatenate(self.teacher(texts, speaker)))
            patches = self.encode(recording)[:REFERENCE_PATCHES]
            utterances += [Utterance(text, reference=patches) for text in texts]
        made = self.say(utterances)
        clones = [np.concatenate(made[start : start + len(texts)]) for start in range(0, len(made), len(texts))]
        tones = [[float(np.median(pitch(samples))) for samples in part] for part in (references, clones)]
        shapes = [[formant_scale(samples, template) for samples in part] for part in (references, clones)]
        return {
            "speakers": num_speakers,
            "pitch_rho": rank_correlation(*tones),
            "formants_rho": rank_correlation(*shapes),
        }

    def drift(self, num_segments: int = 20) -> dict[str, Any]:
        """Last five of a row of segments against the first five, percent, for each way of carrying a voice on."""
        texts = [text for text in self.sentences if len(text) < 60][:num_segments]
        return {policy: self._drift(texts, policy) for policy in ("voice", "reference", "continuation")}

    def _drift(self, texts: list[str], policy: str) -> dict[str, float]:
        tones: list[list[float]] = []
        rates: list[list[float]] = []
        baseline = self.teacher(texts, NAMED_SPEAKERS[0])
        pace = [speech_seconds(samples) for samples in baseline]
        pitches = [float(np.median(pitch(samples))) for samples in baseline]
        for voice in VOICES:
            tone, rate = [], []
            previous: tuple[str, NDArray[np.float32]] | None = None
            first: NDArray[np.float32] | None = None
            for number, text in enumerate(texts):
                request = Utterance(text, voice)
                if policy == "reference" and first is not None:
                    request = Utterance(text, reference=first[:REFERENCE_PATCHES])
                elif policy == "continuation" and previous is not None:
                    request = Utterance(text, voice, prompt=previous[1], prompt_text=previous[0])
                patches = generate(self.loaded, [request], steps=self.steps, cfg=self.cfg, seed=number)[0]
                samples = decode(self.loaded, patches)
                first = patches if first is None else first
                previous = (text, patches)
                # over the teacher's own on the same text: sentences differ in tune and pace
                tone.append(float(np.median(pitch(samples))) / pitches[number])
                rate.append(pace[number] / speech_seconds(samples))
            tones.append(tone)
            rates.append(rate)
        return {"pitch_percent": _worst_drift(tones), "rate_percent": _worst_drift(rates)}


def _worst_drift(rows: list[list[float]]) -> float:
    return max(abs(100 * (np.mean(row[-5:]) / np.mean(row[:5]) - 1)) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=Path("realtime_tts/starter_voice"))
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus"))
    parser.add_argument("--out", type=Path, default=Path("build/evaluation.json"))
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--limit", type=int, help="texts of each kind")
    parser.add_argument("--workers", type=int, default=2, help="of the recogniser")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--library-dir", type=Path, help="where Flite's shared libraries lie, if not installed")
    args = parser.parse_args()
    loaded = load_model(args.checkpoint, args.device, "float32")
    evaluation = Evaluation(loaded, Flite(args.library_dir), args.corpus, limit=args.limit, workers=args.workers)
    sections: dict[str, Callable[[], dict[str, Any]]] = {
        "wer": evaluation.wer,
        "steps": evaluation.step_counts,
        "duration": evaluation.duration,
        "sound": evaluation.sound,
        "voices": evaluation.voices,
        "cloning": evaluation.cloning,
        "drift": evaluation.drift,
    }
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.only or sections:
        if args.again or name not in results:
            results[name] = sections[name]()
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(results, indent=1, default=float))
            print(name, json.dumps(results[name], default=float))


if __name__ == "__main__":
    main()
