"""Accuracy of a voice's word times, against the teacher's own durations.

    python -m training.word_times --voice build/starter_voice --teacher-audio build/eval_audio \\
        --texts build/corpus/eval_sentences.txt

The voice speaks each text, but every patch is replaced by the one of the teacher's recording, so that the text head
reads a recording whose words have known places. The readings become word times as in a session. The durations place all
starts late by one constant and all ends by another: errors are about their medians over all voices, which are printed.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from realtime_tts.engine.text_track import TextTrack
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.generate import OfflineRunner, Stream, streams_of
from realtime_tts.model.sequence import Patches, build_sequence
from realtime_tts.model.text_head import HeadProbe, TextSpans
from realtime_tts.session.alignment import WordAligner
from realtime_tts.text.planner import Segment
from realtime_tts.text.words import Word
from training.compare import at_rate
from training.speakers import SAMPLE_RATE_HZ, VOICES
from training.speech_metrics import Samples
from training.teacher import AudioChunk

BATCH = 16  # recordings that are read at once
INSIDE_MS = 80.0  # of a word: a stop there still sounds like its end
_WORD = re.compile(r"([a-z'-]+)\S*")

Times = NDArray[np.float64]


class Recording(NamedTuple):
    """samples: at 24 kHz. times_ms: [words, 2], start and end of each word."""

    text: str
    samples: Samples
    times_ms: Times


def read_recordings(folder: Path, texts: set[str] | None, limit: int | None) -> dict[str, list[Recording]]:
    """Return the recordings of each named voice. Raises ValueError if there are none."""
    found: dict[str, list[Recording]] = {}
    for path in sorted(folder.glob("*.npz")):
        chunk = AudioChunk.load(path)
        counts = np.cumsum([len(text.split()) for text in chunk.texts])
        times = np.split(chunk.words * 1000 / SAMPLE_RATE_HZ, counts[:-1])
        for text, speaker, samples, own in zip(chunk.texts, chunk.speakers, chunk.utterances(), times, strict=True):
            if speaker < len(VOICES) and (texts is None or text in texts):
                found.setdefault(VOICES[speaker], []).append(Recording(text, samples, own))
    if not found:
        raise ValueError(f"no recording of a named voice and of these texts lies in {folder}")
    return {voice: own[:limit] for voice, own in found.items()}


def segment_of(text: str) -> Segment:
    """Return a text in lower case, words divided by spaces, as one segment."""
    words = [
        Word(match[0], match.start(), match.end(), 1.0, match.start(1), match.end(1)) for match in _WORD.finditer(text)
    ]
    return Segment(0, text, 0, len(text), tuple(words))


@torch.inference_mode()
def word_times(loaded: LoadedModel, voice: str, texts: Sequence[str], recordings: Sequence[Patches]) -> list[Times]:
    """Return the times [words, 2] in ms that a session gives for recordings of the texts, read all at once.

    Raises:
        ValueError: the checkpoint has no text head.
    """
    head = loaded.policy.text_head
    if head is None:
        raise ValueError("the checkpoint has no text head")
    prefix = loaded.tokenizer.encode_trusted(loaded.policy.voices[voice].text_prefix)
    inputs = []
    for text in texts:
        tokens = loaded.tokenizer.encode_located(text)
        chars = [token.start for token in tokens]
        inputs.append(
            build_sequence(loaded.config, [token.id for token in tokens], prefix_ids=prefix, spoken_chars=chars)
        )
    silence = torch.zeros(loaded.config.patch_size, loaded.config.latent_dim)
    limits = [len(patches) for patches in recordings]
    streams, num_blocks = streams_of(inputs, [lambda index: silence] * len(inputs), limits, 1.0)
    runner = OfflineRunner(loaded.model, num_blocks, flow_steps=2)
    aligners, tracks = [WordAligner(1.0) for _ in texts], [TextTrack() for _ in texts]
    for aligner, text in zip(aligners, texts, strict=True):
        aligner.put_segment(segment_of(text))
    patch_ms = 1000 * loaded.config.patch_samples / loaded.config.sample_rate
    running = list(range(len(texts)))
    while running:
        probe = HeadProbe(head.layer, head.head, _spans([streams[n] for n in running]))
        runner.step([streams[n] for n in running], probe)
        for n, reading in zip(running, probe.readings[:, 0].tolist(), strict=True):
            made = streams[n].patches
            made[-1] = torch.from_numpy(recordings[n][len(made) - 1])
            end_ms = len(made) * patch_ms
            char = tracks[n].advance(reading, inputs[n].spoken_chars)
            reached = None if char is None else (end_ms - head.lag_ms, char)
            aligners[n].progress(0, end_ms, len(made) == limits[n], reached)
        running = [n for n in running if len(streams[n].patches) < limits[n]]
    told = [aligner.commit_until(math.inf) for aligner in aligners]
    return [np.array([(word.start_ms, word.end_ms) for word in words]) for words in told]


def _spans(streams: Sequence[Stream]) -> TextSpans:
    """Return the place of each stream's text; it is read from the last of its new positions."""
    return TextSpans(
        torch.tensor(np.cumsum([stream.num_new for stream in streams]) - 1),
        torch.tensor([stream.input.spoken_start for stream in streams]),
        torch.tensor([len(stream.input.spoken_chars) for stream in streams]),
    )


def read_times(loaded: LoadedModel, voice: str, recordings: Sequence[Recording]) -> list[Times]:
    """Return the times read from each recording of one voice."""
    times = []
    for start in tqdm(range(0, len(recordings), BATCH), desc=f"{voice} reads", unit="batch"):
        part = recordings[start : start + BATCH]
        with torch.inference_mode():
            patches = [
                loaded.model.encode_recording(
                    torch.from_numpy(at_rate(one.samples, SAMPLE_RATE_HZ, loaded.config.encode_rate_hz))
                ).numpy()
                for one in part
            ]
        times += word_times(loaded, voice, [one.text for one in part], patches)
    return times


def depth_ms(words: Times, position_ms: float) -> float:
    """Return how far inside one of the words [words, 2] a position is, ms from its nearer end; 0 between words."""
    return float(np.minimum(position_ms - words[:, 0], words[:, 1] - position_ms).max(initial=0.0))


def table(read: dict[str, list[Times]], taught: dict[str, list[Times]]) -> str:
    """Return the voices' figures in Markdown. read, taught: times [words, 2] of each recording of a voice."""
    late = np.median(
        np.concatenate([own - true for voice in read for own, true in zip(read[voice], taught[voice], strict=True)]),
        axis=0,
    )
    rows = [
        f"| | words | starts: p50 / p95 ms | ends: p50 / p95 ms | ends ≤ {INSIDE_MS:.0f} ms inside a word |",
        "|---|---|---|---|---|",
    ]
    for voice, own in read.items():
        pairs = [(times, true + late) for times, true in zip(own, taught[voice], strict=True)]
        errors = np.abs(np.concatenate([times - true for times, true in pairs]))
        starts, ends = np.percentile(errors, (50, 95), axis=0).T
        inside = [depth_ms(true, end) <= INSIDE_MS for times, true in pairs for end in times[:-1, 1]]
        cells = f"{starts[0]:.0f} / {starts[1]:.0f} | {ends[0]:.0f} / {ends[1]:.0f} | {100 * np.mean(inside):.1f} %"
        rows.append(f"| {voice} | {len(errors)} | {cells} |")
    return "\n".join([*rows, f"\nmedians, ms: starts {late[0]:+.0f}, ends {late[1]:+.0f}"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", type=Path, default=Path("build/starter_voice"), help="a checkpoint directory")
    parser.add_argument("--teacher-audio", type=Path, default=Path("build/eval_audio"), help="from training.teacher")
    parser.add_argument("--texts", type=Path, help="file of one text a line; by default all that is there")
    parser.add_argument("--limit", type=int, help="at most this many texts of each voice")
    args = parser.parse_args(arguments)
    texts = set(args.texts.read_text().splitlines()) if args.texts else None
    loaded, recordings = load_model(args.voice), read_recordings(args.teacher_audio, texts, args.limit)
    read = {voice: read_times(loaded, voice, own) for voice, own in recordings.items()}
    print(table(read, {voice: [one.times_ms for one in own] for voice, own in recordings.items()}))


if __name__ == "__main__":
    main()
