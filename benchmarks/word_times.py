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

from benchmarks.engine_speech import SAMPLE_TEXT, Heard, Speaker
from benchmarks.recognition import Aligner
from benchmarks.sentences import evaluation_sentences
from realtime_tts.bench.report import figure, table, write_json
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.model.checkpoint import LoadedModel, load_model

SEGMENTS = 10  # of one context, where segments continue one another
MODES = ("named", "reference", "prompt", "both", "segments")
Array = np.ndarray[Any, np.dtype[Any]]


def word_starts_s(text: str, positions: Array, ends_s: Array, lag_s: float) -> list[float]:
    """When each word begins: the moment at which the position reaches its first character, straight between patches."""
    path = np.concatenate(([0.0], positions))
    path += 1e-9 * np.arange(path.size)  # it rises everywhere: a word begins at the end of the first patch that has it
    times_s = np.concatenate(([0.0], ends_s - lag_s))
    starts = [word.start() for word in re.finditer(r"[a-z']+", text)]
    return [float(start_s) for start_s in np.interp(starts, path, times_s)]


def spoken(loaded: LoadedModel, mode: str, voice: str, texts: list[str]) -> list[Heard]:
    """The texts in one mode. Recordings are of the checkpoint's own voice."""
    title, device, options = f"{mode} {voice}", torch.device("cpu"), EngineOptions(max_streams=8)
    if mode == "segments":
        policy = dataclasses.replace(loaded.policy, continuity="continuation")
        speaker = Speaker(dataclasses.replace(loaded, policy=policy), device, options)
        return speaker.speak(texts, voice, per_context=SEGMENTS, title=title)
    speaker = Speaker(loaded, device, options)
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
        expected = aligner.word_times_s(re.findall(r"[a-z']+", segment.text), segment.pcm, loaded.config.sample_rate)
        if expected is None:
            num_lost += 1
            continue
        measured = word_starts_s(segment.text, segment.positions, segment.ends_s, head.lag_ms / 1000)
        found += [a - b for a, (b, _) in zip(measured, expected, strict=True)]
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
    loaded = load_model(arguments.model)
    texts = evaluation_sentences()[arguments.skip :][: arguments.sentences]
    rows = measure(loaded, texts, arguments.modes)
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
