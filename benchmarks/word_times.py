"""Accuracy of word starts from text positions, against a forced alignment of the same audio.

    python -m benchmarks.word_times --json word_times.json

Every way to speak is measured through the engine: the checkpoint's own voices, a recording as isolated reference, as
prompt, as both, and segments that continue one another.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.recognition import Aligner
from realtime_tts.bench.report import figure, table, write_json
from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.location import local_directory
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.setup import choose_config
from realtime_tts.engine.voices import encode_voice
from realtime_tts.model.checkpoint import LoadedModel, load_model

SENTENCES = Path(__file__).parents[1] / "training" / "texts" / "evaluation_sentences.txt"
SAMPLE_TEXT = "the ferry leaves the harbour at noon, and i will be on it."  # what the recordings say
SEGMENTS = 10  # of one context, where segments continue one another
MODES = ("named", "reference", "prompt", "both", "segments")
Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass
class Heard:
    """One segment as the engine sent it. positions: [patches], each the head's lag before the patch's end; ends_s:
    [patches], which are shorter where silence in front of the speech was left out."""

    text: str
    positions: Array
    ends_s: Array
    pcm: Array


def word_starts_s(text: str, positions: Array, ends_s: Array, lag_s: float) -> list[float]:
    """When each word begins: the moment at which the position reaches its first character, straight between patches."""
    path = np.concatenate(([0.0], positions))
    times_s = np.concatenate(([0.0], ends_s - lag_s))
    starts = []
    for word in re.finditer(r"[a-z']+", text):
        at = int(np.searchsorted(path, word.start()))  # the first patch's end at or past it
        if at == 0 or at == len(path):
            starts.append(float(times_s[min(at, len(path) - 1)]))
            continue
        share = (word.start() - path[at - 1]) / (path[at] - path[at - 1])
        starts.append(float(times_s[at - 1] + share * (times_s[at] - times_s[at - 1])))
    return starts


class Speaker:
    """An engine in this process, whose messages are collected."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        options = EngineOptions(max_streams=8)
        self.engine = Engine(loaded, choose_config(loaded, torch.device("cpu"), options), self._take)
        self.done = tqdm(disable=True)
        self._audio: dict[str, list[frames.Audio]] = {}

    def _take(self, message: frames.Message) -> None:
        if isinstance(message, frames.Audio):
            self._audio.setdefault(message.request_id, []).append(message)
        elif isinstance(message, frames.Done):
            self.done.update()
        elif isinstance(message, (frames.Failed, frames.VoiceFailed)):
            raise RuntimeError(message.message)

    def speak(self, texts: list[str], voice: str | None, *, per_context: int = 1, title: str = "") -> list[Heard]:
        """All of them, `per_context` one after another in one context."""
        self._audio.clear()
        for number, text in enumerate(texts):
            context = f"c{number // per_context}"
            fields = {"seed": number, "segment": number % per_context, "encoding": "f32le", "paced": False}
            self.engine.post(frames.Generate(str(number), context, text, voice=voice, **fields))
        with tqdm(total=len(texts), desc=title, disable=not title) as self.done:
            while self.engine.step() or not self.engine.is_idle:
                pass
        for context in {number // per_context for number in range(len(texts))}:
            self.engine.post(frames.CloseContext(f"c{context}"))
        self.engine.step()
        return [self._heard(str(number), text) for number, text in enumerate(texts)]

    def _heard(self, name: str, text: str) -> Heard:
        audio = self._audio[name]
        positions = np.array([np.nan if m.text_position is None else m.text_position for m in audio])
        pcm = [np.frombuffer(message.payload, "<f4") for message in audio]
        ends_s = np.cumsum([part.size for part in pcm]) / self.loaded.config.sample_rate
        return Heard(text, positions, ends_s, np.concatenate(pcm))

    def add_voice(self, name: str, speech: Array, mode: str) -> None:
        pcm = (np.clip(speech, -1, 1) * 32767).astype("<i2").tobytes()
        parts = [pcm if mode in wanted else b"" for wanted in (("reference", "both"), ("prompt", "both"))]
        rate_hz = self.loaded.config.sample_rate
        message = frames.EncodeVoice(name, rate_hz, len(parts[0]), payload=b"".join(parts))
        encoded = encode_voice(self.loaded, message)
        counts = encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim
        prompt_text = None if mode == "reference" else SAMPLE_TEXT
        self.engine.post(frames.AddVoice(name, *counts, prompt_text=prompt_text, payload=encoded.payload))


def spoken(loaded: LoadedModel, mode: str, voice: str, texts: list[str]) -> list[Heard]:
    """The texts in one mode. Recordings are of the checkpoint's own voice."""
    title = f"{mode} {voice}"
    if mode == "segments":
        policy = dataclasses.replace(loaded.policy, continuity="continuation")
        speaker = Speaker(dataclasses.replace(loaded, policy=policy))
        return speaker.speak(texts, voice, per_context=SEGMENTS, title=title)
    speaker = Speaker(loaded)
    if mode == "named":
        return speaker.speak(texts, voice, title=title)
    (sample,) = speaker.speak([SAMPLE_TEXT], voice)
    speaker.add_voice("recorded", sample.pcm, mode)
    return speaker.speak(texts, "recorded", title=title)


def errors_s(heard: list[Heard], loaded: LoadedModel, aligner: Aligner) -> tuple[list[float], int]:
    """Measured minus aligned word starts, and how many sentences could not be aligned."""
    head = loaded.policy.text_head
    if head is None:
        raise SystemExit("this checkpoint has no text head")
    found: list[float] = []
    num_lost = 0
    for segment in heard:
        expected = aligner.word_starts_s(re.findall(r"[a-z']+", segment.text), segment.pcm, loaded.config.sample_rate)
        if expected is None:
            num_lost += 1
            continue
        measured = word_starts_s(segment.text, segment.positions, segment.ends_s, head.lag_ms / 1000)
        found += [a - b for a, b in zip(measured, expected, strict=True)]
    return found, num_lost


def measure(loaded: LoadedModel, texts: list[str], modes: list[str]) -> list[dict[str, Any]]:
    aligner, rows = Aligner(), []
    for mode in modes:
        for voice in loaded.policy.voices:
            errors, num_lost = errors_s(spoken(loaded, mode, voice, texts), loaded, aligner)
            away = np.abs(errors) * 1000
            rows.append(
                {
                    "mode": mode,
                    "voice": voice,
                    "words": len(errors),
                    "not_aligned": num_lost,
                    "p50_ms": float(np.percentile(away, 50)),
                    "p95_ms": float(np.percentile(away, 95)),
                    "median_ms": float(np.median(errors) * 1000),
                    "errors_ms": [round(1000 * error, 1) for error in errors],
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="starter-voice")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--sentences", type=int, default=100, help="of the evaluation's (default 100)")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of them")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_model(str(local_directory(arguments.model) or arguments.model))
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    texts = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    rows = measure(loaded, texts[arguments.skip :][: arguments.sentences], arguments.modes)
    columns = ["mode", "voice", "words", "not_aligned", "p50_ms", "p95_ms", "median_ms"]
    print(
        table(
            columns,
            [[str(row[name]) if name in columns[:4] else figure(row[name]) for name in columns] for row in rows],
        )
    )
    if arguments.json:
        write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()
