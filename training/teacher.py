"""Speaks the script with the teacher on a GPU.

    python -m training.teacher --script build/corpus/script.tsv --teacher build/teacher --out build/audio --hours 200

writes chunks of utterances (`AudioChunk`), each complete when its name appears, so that training can begin on the first
ones while the rest is made. Rerunning makes only what is missing. All GPUs are used.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import queue
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from training.speakers import SAMPLE_RATE_HZ, all_speakers, load_packs, style
from training.teacher_model import FRAME_SAMPLES, Planned, Teacher

BLOCK_LINES = 6_000  # lines that are planned together, so that batches of equal lengths are large
CHUNK_HOURS = 0.5  # of speech in a chunk, about
TOKENS_PER_BATCH = 12_000  # phones whose durations are predicted at once
FRAMES_PER_BATCH = 6400  # 160 s of speech at once
MIN_SAMPLES = 4 * 3840  # the stop flag is ignored for the first patches, so nothing shorter than four can be said
BEFORE_S, AFTER_S = 0.05, 0.12  # of silence that stays at both ends
# Silence is 10 ms blocks under a part of the loudest block's RMS; weak final fricatives stay.
_START_PART, _END_PART = 60.0, 300.0
# A sound after the last word: it begins after the word's end, and after `_GAP_BLOCKS` under one of these parts.
_GAP_PARTS, _GAP_BLOCKS = (180.0, _END_PART), 4


@dataclasses.dataclass(frozen=True, slots=True)
class AudioChunk:
    """Utterances end to end. `ends` [n] in samples; `speakers` [n] index `all_speakers()`; `words` [all words, 2] are
    each word's start and end in samples from its utterance's start, in the order of the texts' words."""

    audio: NDArray[np.int16]
    ends: NDArray[np.int64]
    speakers: NDArray[np.int32]
    texts: list[str]
    words: NDArray[np.int32]

    @classmethod
    def load(cls, path: Path) -> AudioChunk:
        with np.load(path) as data:
            texts = str(data["texts"]).split("\n")
            return cls(data["audio"], data["ends"], data["speakers"], texts, data["words"])

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            fields = {"audio": self.audio, "ends": self.ends, "speakers": self.speakers, "words": self.words}
            np.savez(file, texts=np.array("\n".join(self.texts)), **fields)
        partial.rename(path)

    def utterances(self) -> list[NDArray[np.int16]]:
        return np.split(self.audio, self.ends[:-1])


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One utterance of the script."""

    speaker: int
    text: str
    phones: str


def read_script(path: Path) -> list[Line]:
    """Raises ValueError for a line that is not of three fields."""
    lines = []
    for row in path.read_text(encoding="utf-8").splitlines():
        speaker, text, phones = row.split("\t")
        lines.append(Line(int(speaker), text, phones))
    return lines


def edges(audio: Tensor) -> tuple[Tensor, Tensor]:
    """Where speech begins and ends in audio [n, samples] → two [n] int64, in samples, margins included."""
    block = SAMPLE_RATE_HZ // 100
    rms = audio[:, : audio.shape[1] // block * block].unflatten(1, (-1, block)).square().mean(-1).sqrt()
    loudest = rms.amax(1, keepdim=True)
    index = torch.arange(rms.shape[1], device=audio.device)
    first = torch.where(rms > loudest / _START_PART, index, rms.shape[1]).amin(1)
    last = torch.where(rms > loudest / _END_PART, index, -1).amax(1)
    start = first * block - round(BEFORE_S * SAMPLE_RATE_HZ)
    end = (last + 1) * block + round(AFTER_S * SAMPLE_RATE_HZ)
    return start.clamp(min=0), end.clamp(max=audio.shape[1])


def end_of_speech(audio: NDArray[np.int16], last_word_end: int) -> int:
    """Return where speech [samples] ends, in samples, its margin included.

    The teacher ends two of five British single words with a click of 10 to 30 ms, 28 to 48 dB below the word, 100 to
    400 ms after it. Its durations say where the last word ends; a sound that begins later, after silence, is cut.
    """
    block = SAMPLE_RATE_HZ // 100
    blocks = audio[: len(audio) // block * block].astype(np.float32).reshape(-1, block)
    rms = np.sqrt(np.square(blocks).mean(1))
    end = len(rms)
    for part in _GAP_PARTS:
        loud = np.flatnonzero(rms[:end] > rms.max() / part)
        begins = loud[1:][(np.diff(loud) > _GAP_BLOCKS) & (loud[1:] * block >= last_word_end)]
        if len(begins):
            end = int(begins[0])
    if end == len(rms):
        return len(audio)
    last = int(np.flatnonzero(rms[:end] > rms.max() / _END_PART)[-1])
    return min((last + 1) * block + round(AFTER_S * SAMPLE_RATE_HZ), end * block)


def word_times(phones: str, durations: NDArray[np.int64]) -> NDArray[np.int64]:
    """Start and end of each word [words, 2] in samples of the untrimmed utterance.

    phones: words divided by spaces; durations [len(phones) + 2]: frames of each, one of silence at both ends. A word
    ends with its last phone, not with the mark after it, whose frames are silence.
    """
    ends = np.cumsum(durations) * FRAME_SAMPLES
    times, at = [], 1
    for word in phones.split(" "):
        spoken = len(word.rstrip(",.?!"))
        times.append((ends[at - 1], ends[at - 1 + max(spoken, 1)]))
        at += len(word) + 1
    return np.array(times)


class Reader:
    """Speaks lines in batches of equal lengths."""

    def __init__(self, teacher: Teacher, vocabulary: dict[str, int], packs: Path, device: torch.device) -> None:
        self._teacher, self._vocabulary, self._device = teacher.to(device), vocabulary, device
        self._speakers = all_speakers()
        loaded = load_packs(packs)
        self._styles = torch.from_numpy(np.stack([style(loaded, speaker) for speaker in self._speakers]))

    def _style(self, lines: list[Line]) -> Tensor:
        rows = torch.tensor([line.speaker for line in lines])
        columns = torch.tensor([len(line.phones) - 1 for line in lines])
        return self._styles[rows, columns].to(self._device)

    def _factors(self, lines: list[Line], name: str) -> Tensor:
        return torch.tensor([getattr(self._speakers[line.speaker], name) for line in lines], device=self._device)

    def _plans(self, lines: list[Line]) -> list[Planned]:
        """One for each line, in their order."""
        order = np.argsort([len(line.phones) for line in lines], kind="stable")
        plans: list[Planned | None] = [None] * len(lines)
        start = 0
        while start < len(order):
            longest = len(lines[order[min(start + 64, len(order) - 1)]].phones) + 2
            batch = order[start : start + max(8, TOKENS_PER_BATCH // longest)]
            chosen = [lines[n] for n in batch]
            ids = [np.array([0, *(self._vocabulary[phone] for phone in line.phones), 0]) for line in chosen]
            for n, plan in zip(
                batch, self._teacher.plan(ids, self._style(chosen), self._factors(chosen, "speed")), strict=True
            ):
                plans[n] = plan
            start += len(batch)
        return [plan for plan in plans if plan is not None]

    def read(self, lines: list[Line]) -> list[tuple[int, NDArray[np.int16], NDArray[np.int32]]]:
        """(index of the line, its audio, its words' times) of all lines, equal lengths together.

        A line whose speech cannot be told from silence is left out.
        """
        plans = self._plans(lines)
        frames = np.array([int(plan.durations.sum()) for plan in plans])
        results = []
        for length in np.unique(frames):
            same = np.flatnonzero(frames == length)
            size = max(1, FRAMES_PER_BATCH // int(length))
            for start in range(0, len(same), size):
                batch = same[start : start + size]
                chosen = [lines[n] for n in batch]
                audio = self._teacher.speak(
                    [plans[n] for n in batch], self._style(chosen), self._factors(chosen, "pitch")
                )
                starts, ends = (part.tolist() for part in edges(audio))
                samples = (audio.clamp(-1, 1) * 32767).round().to(torch.int16).cpu().numpy()
                for row, n in enumerate(batch):
                    if not starts[row] < ends[row]:
                        continue
                    words = word_times(lines[n].phones, plans[n].durations.numpy()) - starts[row]
                    own = samples[row, starts[row] : ends[row]]
                    own = own[: end_of_speech(own, int(words[-1, 1]))]
                    own = np.pad(own, (0, max(0, MIN_SAMPLES - len(own))))
                    results.append((int(n), own, words.clip(0, len(own)).astype(np.int32)))
        return results

    def use_half_precision(self, lines: list[Line], tolerance: float = 0.02) -> float:
        """Make the decoder's residual blocks compute in half precision, on a GPU.

        Return the relative error of the longest of `lines`; above `tolerance` full precision is restored.
        """
        from training.teacher_kernels import use_fast_blocks

        plans, generator = self._plans(lines), self._teacher.decoder.generator
        longest = max(range(len(plans)), key=lambda n: int(plans[n].durations.sum()))
        style, pitch = self._style([lines[longest]]), self._factors([lines[longest]], "pitch")

        def audio() -> Tensor:
            torch.manual_seed(0)
            return self._teacher.speak([plans[longest]], style, pitch)

        exact = audio()
        use_fast_blocks(generator, torch.float16)
        error = ((audio() - exact).norm() / exact.norm()).item()
        if not error < tolerance:
            use_fast_blocks(generator, torch.float32)
        return error


def chunk_of(lines: list[Line], spoken: list[tuple[int, NDArray[np.int16], NDArray[np.int32]]]) -> AudioChunk:
    return AudioChunk(
        audio=np.concatenate([audio for _, audio, _ in spoken]),
        ends=np.cumsum([len(audio) for _, audio, _ in spoken]),
        speakers=np.array([lines[n].speaker for n, _, _ in spoken], np.int32),
        texts=[lines[n].text for n, _, _ in spoken],
        words=np.concatenate([words for _, _, words in spoken]),
    )


def spoken_hours(folder: Path) -> float:
    """Return the approximate hours of speech."""
    return CHUNK_HOURS * len(list(folder.glob("*.npz")))


def _save(pending: queue.Queue[tuple[AudioChunk, Path] | None]) -> None:
    while (job := pending.get()) is not None:
        job[0].save(job[1])


def _speak_share(args: argparse.Namespace, own: int, count: int) -> None:
    """Speak every block of the script whose number is `own` modulo `count`, until there are enough hours."""
    # By default each process has a thread for every core: twelve processes on 64 cores then made nothing in minutes.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))
    if args.device.startswith("cuda"):
        torch.cuda.set_device(args.device)  # Triton launches on the current device, wherever its tensors are
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    teacher = Teacher(args.kokoro)
    teacher.load_weights(torch.load(args.teacher / "kokoro.pt", weights_only=True))
    vocabulary = json.loads((args.teacher / "vocab.json").read_text())["vocab"]
    reader = Reader(teacher, vocabulary, args.teacher / "voices", torch.device(args.device))
    script = read_script(args.script)
    if args.device.startswith("cuda"):
        print(f"half precision differs by {reader.use_half_precision(script[:64]):.4f}", flush=True)
    torch.manual_seed(args.seed + own)  # after the comparison of precisions, which sets a seed of its own
    pending: queue.Queue[tuple[AudioChunk, Path] | None] = queue.Queue(8)
    saver = threading.Thread(target=_save, args=(pending,))
    saver.start()
    wanted = args.hours / count
    blocks = range(own * BLOCK_LINES, len(script), count * BLOCK_LINES)
    hours = 0.0
    with tqdm(total=wanted, unit="h", mininterval=5, disable=own > 0) as progress:
        for start in blocks:
            name = f"{start // BLOCK_LINES:04d}"
            if hours < wanted and not (args.out / f"{name}-00.npz").exists():
                made = _speak_block(reader, script[start : start + BLOCK_LINES], args.out / name, pending)
                hours += made
                progress.update(made)
    pending.put(None)
    saver.join()


def _speak_block(
    reader: Reader, lines: list[Line], stem: Path, pending: queue.Queue[tuple[AudioChunk, Path] | None]
) -> float:
    """Hand the block's chunks, each a random part of its lines, to `pending`. Returns the hours of speech."""
    spoken = reader.read(lines)
    order = np.random.default_rng(len(lines)).permutation(len(spoken))
    hours = sum(len(audio) for _, audio, _ in spoken) / SAMPLE_RATE_HZ / 3600
    parts = np.array_split(order, max(1, round(hours / CHUNK_HOURS)))
    for part, chosen in reversed(list(enumerate(parts))):  # part 0 last: its name says that the block is whole
        pending.put((chunk_of(lines, [spoken[n] for n in chosen]), stem.with_name(f"{stem.name}-{part:02d}.npz")))
    return hours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, default=Path("build/corpus/script.tsv"))
    parser.add_argument("--teacher", type=Path, default=Path("build/teacher"), help="from training.unpack_teacher")
    parser.add_argument("--kokoro", type=Path, help="where the package kokoro lies, if not installed")
    parser.add_argument("--out", type=Path, default=Path("build/audio"))
    parser.add_argument("--hours", type=float, default=200.0, help="stop after about this much speech")
    parser.add_argument("--processes", type=int, help="by default three for each GPU: one alone leaves it half idle")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    gpus = torch.cuda.device_count() if args.device == "cuda" else 0
    count = args.processes or max(1, 3 * gpus)
    context = multiprocessing.get_context("spawn")
    # The pipeline may end this process early: its exit, and not the signal itself, ends the daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    processes = []
    for own in range(count):
        if gpus:
            args.device = f"cuda:{own % gpus}"
        processes.append(context.Process(target=_speak_share, args=(args, own, count), daemon=True))
        processes[-1].start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a process of the teacher failed")
    (args.out / "complete").write_text(f"{spoken_hours(args.out):.2f}\n")


if __name__ == "__main__":
    main()
