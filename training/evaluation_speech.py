"""Speech of an evaluation: the held-out texts spoken by the checkpoint and the teacher, and their recognition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.model.config import ModelConfig
from realtime_tts.model.config_file import read_config
from training.evaluation_pool import Workers, hear, speak, speak_jobs, teach
from training.flite import NAMED_SPEAKERS, VOICES
from training.generation import Line
from training.speech_metrics import Samples


class HeldOut:
    """One checkpoint, the teacher, and the held-out texts of each kind."""

    def __init__(self, workers: Workers, checkpoint: Path, texts: dict[str, list[str]], heard_path: Path) -> None:
        self.workers, self.texts = workers, texts
        self.sentences = texts["sentences"]
        self.config: ModelConfig = read_config(checkpoint / "config.json")
        policy = ServingPolicy.load(checkpoint)
        self.num_steps, self.cfg = policy.default_steps, policy.default_cfg
        self._heard_path = heard_path
        self._spoken: dict[tuple[str, int, int], dict[str, list[Samples]]] = {}
        self._heard: dict[tuple[int, int], dict[str, list[str]]] = {}

    def taught(self, kind: str, count: int | None = None, every: int = 1) -> dict[str, list[Samples]]:
        texts = self.texts[kind][:count][::every]
        jobs = [(text, speaker) for speaker in NAMED_SPEAKERS for text in texts]
        return by_voice(self.workers.map(teach, jobs, f"teacher, {kind}"))

    def say(self, lines: Sequence[Line], label: str, **options: Any) -> list[Samples]:
        options = {"steps": self.num_steps, "cfg": self.cfg, **options}
        jobs, order = speak_jobs(lines, **options)
        made = [samples for part in self.workers.map(speak, jobs, label) for samples in part]
        placed: list[Samples] = [made[0]] * len(made)
        for index, samples in zip(order, made, strict=True):
            placed[index] = samples
        return placed

    def spoken(self, kind: str, steps: int | None = None, every: int = 1) -> dict[str, list[Samples]]:
        """Every n-th text of a kind in each named voice, made once. A text's noise is its own, whatever the
        steps."""
        steps = steps or self.num_steps
        key, all_of_them = (kind, steps, every), (kind, steps, 1)
        if all_of_them in self._spoken:
            return {voice: part[::every] for voice, part in self._spoken[all_of_them].items()}
        if key not in self._spoken:
            texts = self.texts[kind]
            lines = [Line(text, voice) for voice in VOICES for text in texts[::every]]
            seeds = [
                n for start in range(len(VOICES)) for n in range(start * len(texts), (start + 1) * len(texts), every)
            ]
            made = self.say(lines, f"{kind}, {steps} steps", steps=steps, seeds=seeds)
            self._spoken[key] = by_voice(made)
        return self._spoken[key]

    def hear(self, recordings: dict[str, list[Samples]], label: str) -> dict[str, list[str]]:
        flat = [samples for part in recordings.values() for samples in part]
        return by_voice(self.workers.map(hear, flat, f"listening, {label}"), tuple(recordings))

    def heard(self, steps: int, every: int = 1) -> dict[str, list[str]]:
        """Return the recognised texts of every n-th sentence at a number of flow steps, in each voice."""
        if (steps, 1) in self._heard:
            return {voice: part[::every] for voice, part in self._heard[steps, 1].items()}
        if (steps, every) not in self._heard:
            self._heard[steps, every] = self.hear(self.spoken("sentences", steps, every), f"{steps} steps")
        return self._heard[steps, every]

    def teacher_heard(self) -> dict[str, list[str]]:
        """Return the recognised texts of the teacher's sentences; stored in a file that all checkpoints share."""
        path = self._heard_path
        known: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
        missing = [text for text in self.sentences if any(text not in known.get(voice, {}) for voice in VOICES)]
        if missing:
            jobs = [(text, speaker) for speaker in NAMED_SPEAKERS for text in missing]
            audio = by_voice(self.workers.map(teach, jobs, "teacher, sentences"))
            for voice, heard in self.hear(audio, "teacher").items():
                known.setdefault(voice, {}).update(zip(missing, heard, strict=True))
            path.write_text(json.dumps(known, indent=1))
        return {voice: [known[voice][text] for text in self.sentences] for voice in VOICES}


def by_voice(flat: list[Any], voices: tuple[str, ...] = VOICES) -> dict[str, list[Any]]:
    """A list that has the first voice's items first."""
    return dict(zip(voices, in_groups(flat, len(flat) // len(voices)), strict=True))


def in_groups(flat: list[Any], size: int) -> list[list[Any]]:
    return [flat[start : start + size] for start in range(0, len(flat), size)]


def all_voices(recordings: dict[str, list[Samples]]) -> list[Samples]:
    return [samples for voice in VOICES for samples in recordings[voice]]


def paired(ours: dict[str, list[Samples]], theirs: dict[str, list[Samples]]) -> list[tuple[Samples, Samples]]:
    return list(zip(all_voices(ours), all_voices(theirs), strict=True))
