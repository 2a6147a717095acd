"""Sections of an evaluation: texts, voices and resulting figures. Needs six sentences or more."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from training.drift import POLICIES, Row, Take, Wandering, speak_rows
from training.evaluation_measures import (
    Length,
    measure_aligned_distances,
    measure_distances,
    measure_length,
    measure_pitch,
    measure_speaker,
    measure_voice,
)
from training.evaluation_pool import encode, teach, through_vae
from training.evaluation_speech import HeldOut, all_voices, by_voice, in_groups, paired
from training.flite import NAMED_SPEAKERS, PSEUDO_SPEAKERS_SEED, VOICES, Speaker, pseudo_speakers
from training.generation import Line
from training.speech_metrics import Samples, rank_correlation, seam_jumps, speech_seconds
from training.word_errors import Difference, WordErrors

SECTIONS = ("teacher", "wer", "duration", "sound", "voices", "cloning", "drift", "steps")
STEP_COUNTS = (10, 6, 4)
CLONE_PATCHES = 20  # length of a reference, 3.2 s: the maximum in training
MISSING_S, EXTRA_S = 0.1, 0.2  # at an ending: the teacher's voices differ from each other by less


class Evaluation(HeldOut):
    """Each section returns figures that JSON can hold."""

    def teacher(self) -> dict[str, Any]:
        """The teacher's word error rate, percent."""
        heard = self.teacher_heard()
        return {voice: WordErrors.count(self.sentences, heard[voice]).percent for voice in VOICES}

    def wer(self) -> dict[str, Any]:
        """Percent, teacher beside model, each voice on all sentences; and of the teacher through the VAE alone, on
        sixty. "all" are the three voices together."""
        ours, theirs = self.heard(self.num_steps), self.teacher_heard()
        every = max(1, len(self.sentences) // 60)
        some = self.sentences[::every]
        original = self.taught("sentences", every=every)
        flat = [samples for voice in VOICES for samples in original[voice]]
        coded = self.hear(by_voice(self.workers.map(through_vae, flat, "VAE")), "VAE")
        count = {
            "model": {voice: WordErrors.count(self.sentences, ours[voice]) for voice in VOICES},
            "teacher": {voice: WordErrors.count(self.sentences, theirs[voice]) for voice in VOICES},
            "vae": {voice: WordErrors.count(some, coded[voice]) for voice in VOICES},
            "teacher_some": {voice: WordErrors.count(some, theirs[voice][::every]) for voice in VOICES},
        }
        for part in count.values():
            part["all"] = WordErrors.together([part[voice] for voice in VOICES])
        result: dict[str, Any] = {"sentences": len(self.sentences)}
        for voice in (*VOICES, "all"):
            model, teacher = count["model"][voice], count["teacher"][voice]
            num_said = len(self.sentences) * (len(VOICES) if voice == "all" else 1)
            result[voice] = {
                "teacher": teacher.percent,
                "model": model.percent,
                "difference": dataclasses.asdict(Difference.between(model, teacher)),
                "teacher_through_vae": count["vae"][voice].percent,
                "vae_difference": dataclasses.asdict(
                    Difference.between(count["vae"][voice], count["teacher_some"][voice])
                ),
                "last_word_missed_percent": {
                    "model": 100 * float(model.last_missed.sum()) / num_said,
                    "teacher": 100 * float(teacher.last_missed.sum()) / num_said,
                },
                "words_after_the_last": {"model": model.words_after.sum(), "teacher": teacher.words_after.sum()},
            }
        result["worst"] = self._worst_heard(count["model"], count["teacher"], ours)
        return result

    def _worst_heard(
        self, ours: dict[str, WordErrors], theirs: dict[str, WordErrors], heard: dict[str, list[str]], count: int = 12
    ) -> list[dict[str, Any]]:
        rows = [
            {"voice": voice, "text": text, "heard": heard[voice][n], "more_errors_than_teacher": int(more)}
            for voice in VOICES
            for n, (text, more) in enumerate(
                zip(self.sentences, ours[voice].errors - theirs[voice].errors, strict=True)
            )
        ]
        return sorted(rows, key=lambda row: -row["more_errors_than_teacher"])[:count]

    def steps(self, every: int = 2) -> dict[str, Any]:
        """At 10, 6 and 4 flow steps from the same noise, the three voices together: word error rate on every second
        sentence, its difference from the first, and distances to the teacher on every sixth. Recognising takes most of
        an evaluation's time; on 477 utterances the interval of a difference is about a point to each side."""
        theirs = self.taught("sentences", every=3 * every)
        texts = self.sentences[::every]
        result: dict[str, Any] = {}
        first: WordErrors | None = None
        for steps in STEP_COUNTS:
            heard = self.heard(steps, every)
            errors = WordErrors.together([WordErrors.count(texts, heard[voice]) for voice in VOICES])
            first = first or errors
            ours = {voice: part[::3] for voice, part in self.spoken("sentences", steps, every).items()}
            distance = np.mean(self.workers.map(measure_distances, paired(ours, theirs), "distances"), axis=0)
            result[str(steps)] = {
                "sentences": len(texts),
                "wer": errors.percent,
                "difference": dataclasses.asdict(Difference.between(errors, first)),
                "mel_cepstral_db": distance[0],
                "log_spectral_db": distance[1],
            }
        return result

    def duration(self) -> dict[str, Any]:
        """Speech over the teacher's: share within 0.8 to 1.25, how it ends, and the texts that are worst.

        "teacher_within" is the teacher's own share when it says the texts twice: its noise moves the ends of words."""
        return {kind: self._durations(kind) for kind in self.texts}

    def _durations(self, kind: str) -> dict[str, Any]:
        texts = self.texts[kind]
        theirs = self.taught(kind)
        lengths = self.workers.map(measure_length, paired(self.spoken(kind), theirs), f"lengths, {kind}")
        again = self.workers.map(measure_length, paired(self.taught(kind), theirs), f"lengths, {kind}, teacher")
        ratios, own_ratios = (np.array([length.ratio for length in part]) for part in (lengths, again))
        within = _within(ratios)
        low, median, high = np.percentile(ratios, [0.5, 50, 99.5])
        said = [(voice, text) for voice in VOICES for text in texts]
        missing = [length.missing_s > MISSING_S for length in lengths]
        extra = [length.extra_s > EXTRA_S for length in lengths]
        return {
            "count": len(ratios),
            "within": within.mean(),
            "teacher_within": _within(own_ratios).mean(),
            "within_by_voice": dict(zip(VOICES, within.reshape(len(VOICES), -1).mean(1), strict=True)),
            "median": median,
            "p0_5": low,
            "p99_5": high,
            "end_missing": np.mean(missing),
            "end_extra": np.mean(extra),
            "worst": _worst_lengths(said, lengths),
        }

    def sound(self, count: int = 20) -> dict[str, Any]:
        """Distances to the teacher in dB, and clicks at patch seams of speech decoded patch by patch, as served,
        beside jumps where there is no seam."""
        theirs = self.taught("sentences", count)
        lines = [Line(text, voice) for voice in VOICES for text in self.sentences[:count]]
        ours = by_voice(self.say(lines, "patch by patch", patch_by_patch=True))
        flat = [samples for voice in VOICES for samples in theirs[voice]]
        coded = by_voice(self.workers.map(through_vae, flat, "VAE"))
        vae = self.workers.map(measure_aligned_distances, paired(coded, theirs), "distances")
        tts = self.workers.map(measure_distances, paired(ours, theirs), "distances")
        patch = self.config.patch_samples
        seams, elsewhere = (
            np.concatenate([seam_jumps(samples, patch, shift) for part in ours.values() for samples in part])
            for shift in (0, patch // 3)
        )
        names = ("mel_cepstral_db", "log_spectral_db")
        return {
            "vae": dict(zip(names, np.mean(vae, axis=0), strict=True)),
            "tts": dict(zip(names, np.mean(tts, axis=0), strict=True)),
            "seams": _jumps(seams),
            "elsewhere": _jumps(elsewhere),
        }

    def voices(self) -> dict[str, Any]:
        """Share of sentences whose voice a nearest-mean classifier gets right. It learns from the teacher's even
        sentences; "teacher" is its accuracy on the odd ones."""
        theirs = self.workers.map(measure_voice, all_voices(self.taught("sentences")), "teacher's voices")
        taught = np.array(theirs).reshape(len(VOICES), len(self.sentences), -1)
        ours = np.array(self.workers.map(measure_voice, all_voices(self.spoken("sentences")), "voices"))
        means = taught[:, ::2].mean(1)
        spread = np.std(taught[:, ::2] - means[:, None], axis=(0, 1))

        def right(features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            away = np.square((features[:, :, None] - means) / spread).sum(-1)
            return away.argmin(-1) == np.arange(len(VOICES))[:, None]

        own = right(ours.reshape(taught.shape))
        return {
            "count": own.size,
            "accuracy": own.mean(),
            "by_voice": dict(zip(VOICES, own.mean(1), strict=True)),
            "teacher": right(taught[:, 1::2]).mean(),
        }

    def cloning(self, num_speakers: int = 30) -> dict[str, Any]:
        """Rank correlation of pitch and formants between unseen pseudo-speakers and what is cloned from one sentence
        of each, both saying the same three texts. "ceiling": the speakers themselves on three other texts."""
        speakers = pseudo_speakers(num_speakers, PSEUDO_SPEAKERS_SEED + 1000, prefix="unseen")
        texts, others = self.sentences[:3], self.sentences[3:6]
        originals = [self.sentences[-1 - n % len(self.sentences)] for n in range(num_speakers)]
        recordings = self.workers.map(teach, list(zip(originals, speakers, strict=True)), "references")
        references = [patches[:CLONE_PATCHES] for patches in self.workers.map(encode, recordings, "encoding")]
        made = self.say([Line(text, reference=part) for part in references for text in texts], "clones")
        bases, other_bases = self._readings(NAMED_SPEAKERS, texts), self._readings(NAMED_SPEAKERS, others)
        jobs = [(part, bases) for part in self._readings(speakers, texts)]
        jobs += [(part, other_bases) for part in self._readings(speakers, others)]
        jobs += [(part, bases) for part in in_groups(made, len(texts))]
        figures = np.array(self.workers.map(measure_speaker, jobs, "speakers"))
        true, other, cloned = figures.reshape(3, num_speakers, 2).transpose(0, 2, 1)
        return {
            "speakers": num_speakers,
            "pitch_rho": rank_correlation(true[0], cloned[0]),
            "formants_rho": rank_correlation(true[1], cloned[1]),
            "ceiling": {
                "pitch_rho": rank_correlation(true[0], other[0]),
                "formants_rho": rank_correlation(true[1], other[1]),
            },
            "pitch_error_percent": 100 * np.nanmedian(np.abs(cloned[0] / true[0] - 1)),
            "formants_error_percent": 100 * np.median(np.abs(np.expm1(cloned[1] - true[1]))),
        }

    def _readings(self, speakers: Sequence[Speaker], texts: list[str]) -> list[list[Samples]]:
        """[speaker][text]"""
        jobs = [(text, speaker) for speaker in speakers for text in texts]
        return in_groups(self.workers.map(teach, jobs, "speakers"), len(texts))

    def drift(self, num_segments: int = 20, num_takes: int = 4) -> dict[str, Any]:
        """Change of pitch and rate over twenty segments of one context, percent, over the teacher's own on the same
        texts; for each way of carrying a voice on, the voice that changes most. Takes differ in the order of texts."""
        texts = [text for text in self.sentences if len(text) < 60][:num_segments]
        jobs = [(text, speaker) for speaker in NAMED_SPEAKERS for text in texts]
        audio = self.workers.map(teach, jobs, "teacher")
        tones = self.workers.map(measure_pitch, audio, "pitch")
        keys = [(speaker.name, text) for text, speaker in jobs]
        norms = {key: (tone, speech_seconds(part)) for key, tone, part in zip(keys, tones, audio, strict=True)}
        orders = [np.random.default_rng(take).permutation(len(texts)) for take in range(num_takes)]
        takes = [
            Take([texts[index] for index in order], number, self.num_steps, self.cfg)
            for number, order in enumerate(orders)
        ]
        rows = [row for part in self.workers.map(speak_rows, takes, "takes") for row in part]
        return {
            "segments": len(texts),
            "takes": num_takes,
            **{policy: _wandering([row for row in rows if row.policy == policy], norms) for policy in POLICIES},
        }


def _wandering(rows: list[Row], norms: dict[tuple[str, str], tuple[float, float]]) -> dict[str, Any]:
    pitches, rates = {}, {}
    for voice in VOICES:
        own = [row for row in rows if row.voice == voice]
        norm = np.array([[norms[voice, text] for text in row.texts] for row in own]).transpose(2, 0, 1)
        pitches[voice] = Wandering.of(np.log(np.array([row.pitch_hz for row in own]) / norm[0]))
        seconds = np.array([row.seconds for row in own])
        rates[voice] = Wandering.of(np.log(norm[1] / np.where(seconds > 0, seconds, np.nan)))
    return {
        "pitch": _most(pitches),
        "rate": _most(rates),
        "joins": _jumps(np.concatenate([row.joins for row in rows]), sum(len(row.texts) - 1 for row in rows)),
    }


def _within(ratios: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (ratios >= 0.8) & (ratios <= 1.25)


def _most(voices: dict[str, Wandering]) -> dict[str, Any]:
    voice = max(voices, key=lambda name: abs(voices[name].percent))
    return {"voice": voice, **dataclasses.asdict(voices[voice])}


def _jumps(jumps: np.ndarray[Any, Any], count: int | None = None) -> dict[str, Any]:
    result = {"loud": len(jumps), "max_jump": jumps.max(initial=0.0), "over_0_1": int((jumps > 0.1).sum())}
    return result if count is None else {"count": count, **result}


def _worst_lengths(said: list[tuple[str, str]], lengths: list[Length], count: int = 12) -> list[dict[str, Any]]:
    """The texts furthest from the teacher's length, and those with the worst ends."""

    def badness(index: int) -> float:
        length = lengths[index]
        ratio = abs(np.log(max(length.ratio, 1e-3)))
        return float(max(ratio / 0.223, length.missing_s / MISSING_S, length.extra_s / EXTRA_S))

    order = sorted(range(len(lengths)), key=badness, reverse=True)[:count]
    return [{"voice": said[n][0], "text": said[n][1], **dataclasses.asdict(lengths[n])} for n in order]
