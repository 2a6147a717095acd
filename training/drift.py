"""Drift of a voice over the segments of one context: rows of segments, continued as the server does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from realtime_tts.engine.continuity import Continuity
from realtime_tts.engine.voices import ZERO_SHOT, EngineVoice
from realtime_tts.model.checkpoint import LoadedModel
from training.evaluation_pool import Worker
from training.flite import VOICES
from training.generation import decode, generate_inputs, max_patches
from training.speech_metrics import Floats, Samples, jumps_at, pitch, speech_seconds

POLICIES = ("voice", "reference", "continuation")
EDGE = 5  # segments at the start that are compared with as many at the end


@dataclasses.dataclass(frozen=True, slots=True)
class Take:
    """One row for each policy and voice, all of the same texts in this order."""

    texts: list[str]
    number: int
    steps: int
    cfg: float


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Measures of a row's segments [n]: median pitch in Hz (nan: unvoiced), seconds of speech, jumps at the joins."""

    policy: str
    voice: str
    texts: list[str]
    pitch_hz: Floats
    seconds: Floats
    joins: Floats

    @classmethod
    def of(cls, policy: str, voice: str, texts: list[str], parts: Sequence[Samples]) -> Row:
        tones = [pitch(samples) for samples in parts]
        seams = np.cumsum([len(samples) for samples in parts])[:-1]
        return cls(
            policy,
            voice,
            texts,
            np.array([np.median(tone) if len(tone) else np.nan for tone in tones]),
            np.array([speech_seconds(samples) for samples in parts]),
            jumps_at(np.concatenate(parts), seams),
        )


def speak_rows(worker: Worker, take: Take) -> list[Row]:
    """All rows together: segment n of each in one batch.

    "voice" repeats the voice's token, "reference" gives the first segment's beginning back as a reference without a
    token, "continuation" prompts with the segment before; each by the server's own `Continuity`.
    """
    loaded = worker.loaded
    keys = [(policy, voice) for policy in POLICIES for voice in VOICES]
    memories = {policy: _continuity(loaded, policy) for policy in POLICIES}
    made: list[list[Samples]] = [[] for _ in keys]
    for number, text in enumerate(take.texts):
        inputs, voices = [], []
        for policy, name in keys:
            named = EngineVoice(name, prefix_ids=tuple(loaded.tokenizer.encode_trusted(f"<{name}>")))
            voice = ZERO_SHOT if policy == "reference" and number else named
            voices.append(ZERO_SHOT if policy == "reference" else named)
            limit = loaded.config.max_length - max_patches(loaded, text)
            around = memories[policy].next(text, voice, name, limit)
            inputs.append(memories[policy].lay_out(around, text))
        seeds = [(take.number * len(take.texts) + number) * len(keys) + row for row in range(len(keys))]
        limits = [max_patches(loaded, text)] * len(keys)
        patches = generate_inputs(loaded, inputs, limits, seeds, steps=take.steps, cfg=take.cfg)
        for row, (policy, name) in enumerate(keys):
            made[row].append(decode(loaded, patches[row], inputs[row].context))
            memories[policy].spoken(name, text, voices[row], list(patches[row]))
    return [Row.of(policy, voice, take.texts, parts) for (policy, voice), parts in zip(keys, made, strict=True)]


def _continuity(loaded: LoadedModel, policy: str) -> Continuity:
    continuity = "continuation" if policy == "continuation" else "reference"
    return Continuity(dataclasses.replace(loaded, policy=dataclasses.replace(loaded.policy, continuity=continuity)))


@dataclasses.dataclass(frozen=True, slots=True)
class Wandering:
    """Percent, last `EDGE` segments over the first, mean of several rows. `chance`: what rows of independent segments
    that scatter as much would exceed one time in twenty; `chance_of_one`: the same of a single row."""

    percent: float
    chance: float
    chance_of_one: float

    @classmethod
    def of(cls, logs: Floats) -> Wandering:
        """logs [rows, segments]: log of a property over the teacher's on the same text."""
        change = np.nanmean(logs[:, -EDGE:], axis=1) - np.nanmean(logs[:, :EDGE], axis=1)
        scatter = float(np.sqrt(np.nanmean(np.nanvar(logs, axis=1, ddof=1))))
        one = 1.96 * scatter * np.sqrt(2 / EDGE)
        return cls(100 * float(np.expm1(change.mean())), 100 * one / np.sqrt(len(logs)), 100 * one)
