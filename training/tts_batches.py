"""Batches for TTS training: every way in which the model is asked to speak, drawn at random.

`[103 reference 104]? <voice>? text 101 audio`, where text and audio may begin with those of a prompt to continue. A
row's position i predicts the patch at position i + 1.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.flite import VOICES
from training.latents import LatentCorpus
from training.starter_config import AUDIO_START, LETTER_IDS, REFERENCE_END, REFERENCE_START, VOICE_IDS

NUM_VOICES = len(VOICES)
MAX_POSITIONS = 448


@dataclasses.dataclass(frozen=True, slots=True)
class Conditioning:
    """How often each condition is drawn. What remains of a named voice is spoken unconditioned."""

    voice_token: float = 0.7
    reference: float = 0.25
    pseudo_reference: float = 0.95  # of a pseudo-speaker, which has no token
    prompt: float = 0.25
    min_reference_patches: int = 4
    max_reference_patches: int = 20


@dataclasses.dataclass(slots=True)
class Row:
    """One sequence: token of each position (0: audio), patch index of each position (-1: text), first predicted one."""

    tokens: list[int]
    patches: NDArray[np.int64]
    first_target: int


@dataclasses.dataclass(slots=True)
class Batch:
    """tokens [B, L] int64. Audio positions (flattened B * L): audio_index [A] with patches audio_patches [A]. Predicted
    at flat positions target_index [M] the patches target_patches [M], after prefix_patches [M] (-1: silence), with
    is_last [M]."""

    tokens: Tensor
    audio_index: Tensor
    audio_patches: Tensor
    target_index: Tensor
    target_patches: Tensor
    prefix_patches: Tensor
    is_last: Tensor

    def to(self, device: torch.device | str) -> Batch:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Batch(**{name: tensor.to(device, non_blocking=True) for name, tensor in fields.items()})


class RowMaker:
    """Draws the condition of an utterance and lays the row out."""

    def __init__(self, corpus: LatentCorpus, conditioning: Conditioning, rng: np.random.Generator) -> None:
        self.corpus, self.conditioning, self.rng = corpus, conditioning, rng
        order = np.argsort(corpus.speakers, kind="stable")
        edges = np.searchsorted(corpus.speakers[order], np.arange(corpus.speakers.max() + 2))
        self._of_speaker = [order[a:b] for a, b in itertools.pairwise(edges)]

    def row(self, utterance: int) -> Row:
        corpus, draw, speaker = self.corpus, self.conditioning, int(self.corpus.speakers[utterance])
        tokens: list[int] = []
        patches: list[NDArray[np.int64]] = []
        kind = self.rng.random()
        is_named = speaker < NUM_VOICES
        if is_named and kind < draw.voice_token:
            tokens.append(VOICE_IDS[f"<{VOICES[speaker]}>"])
            patches.append(np.array([-1]))
        elif kind < (draw.voice_token + draw.reference if is_named else draw.pseudo_reference):
            reference = self._reference(speaker, utterance)
            tokens += [REFERENCE_START, *[0] * len(reference), REFERENCE_END]
            patches += [np.array([-1]), reference, np.array([-1])]
        text, audio = corpus.text(utterance), self._patches_of(utterance)
        if self.rng.random() < draw.prompt:
            prompt = self._other(speaker, utterance)
            prompt_text, prompt_audio = corpus.text(prompt), self._patches_of(prompt)
            length = len(tokens) + len(prompt_text) + len(prompt_audio) + len(text) + len(audio) + 2
            if prompt != utterance and length <= MAX_POSITIONS:
                # the prompt's own patches are predicted too: it is as good an utterance as the other
                text = np.concatenate([prompt_text, [LETTER_IDS[" "]], text])
                audio = np.concatenate([prompt_audio, audio])
        tokens += [*text.tolist(), AUDIO_START]
        first_target = len(tokens)
        tokens += [0] * len(audio)
        patches += [np.full(len(text) + 1, -1), audio]
        return Row(tokens, np.concatenate(patches), first_target)

    def _patches_of(self, utterance: int) -> NDArray[np.int64]:
        start = self.corpus.starts[utterance]
        return np.arange(start, start + self.corpus.counts[utterance])

    def _other(self, speaker: int, utterance: int) -> int:
        """Another utterance of the speaker, or the same one if there is no other."""
        candidates = self._of_speaker[speaker]
        for _ in range(4):
            other = int(self.rng.choice(candidates))
            if other != utterance:
                return other
        return utterance

    def _reference(self, speaker: int, utterance: int) -> NDArray[np.int64]:
        """A stretch of another utterance: from its beginning half the time, as recordings are, else from anywhere."""
        draw = self.conditioning
        patches = self._patches_of(self._other(speaker, utterance))
        length = int(self.rng.integers(draw.min_reference_patches, draw.max_reference_patches + 1))
        slack = len(patches) - length
        start = int(self.rng.integers(slack + 1)) if slack > 0 and self.rng.random() < 0.5 else 0
        return patches[start : start + length]


def collate(rows: list[Row], multiple: int = 16) -> Batch:
    """Right-padded to a multiple of `multiple` positions: causal attention never looks at what follows."""
    length = -(-max(len(row.tokens) for row in rows) // multiple) * multiple
    tokens = np.zeros((len(rows), length), np.int64)
    parts: dict[str, list[NDArray[np.int64]]] = {
        name: [] for name in ("audio", "audio_patch", "at", "target", "prefix", "last")
    }
    for number, row in enumerate(rows):
        tokens[number, : len(row.tokens)] = row.tokens
        audio = np.flatnonzero(row.patches >= 0)
        parts["audio"].append(audio + number * length)
        parts["audio_patch"].append(row.patches[audio])
        targets = np.arange(row.first_target, len(row.tokens))
        parts["at"].append(targets - 1 + number * length)
        parts["target"].append(row.patches[targets])
        parts["prefix"].append(row.patches[targets - 1])
        parts["last"].append((targets == len(row.tokens) - 1).astype(np.int64))
    flat = {name: torch.from_numpy(np.concatenate(arrays)) for name, arrays in parts.items()}
    return Batch(torch.from_numpy(tokens), *(flat[name] for name in parts))


class Batches:
    """Endless batches of about `num_positions` padded positions, of rows of similar length, made by worker processes.

    Construct it before CUDA is initialised: the workers are forked and read the corpus's index arrays only.
    """

    def __init__(
        self, maker: RowMaker, utterances: NDArray[np.int64], num_positions: int, *, workers: int = 4, seed: int = 0
    ) -> None:
        self._maker, self._utterances, self._num_positions = maker, utterances, num_positions
        context = multiprocessing.get_context("fork")
        self._queue = context.Queue(2 * workers)
        self._processes = [context.Process(target=self._work, args=(seed + n,), daemon=True) for n in range(workers)]
        for process in self._processes:
            process.start()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield Batch(*(torch.from_numpy(array) for array in self._queue.get()))

    def close(self) -> None:
        """Ends the workers and gives their pipes back."""
        for process in self._processes:
            process.terminate()
            process.join()
            process.close()
        self._queue.close()
        self._queue.join_thread()
        self._queue._writer.close()  # only the feeder thread of a writing process would close it

    def _work(self, seed: int) -> None:
        self._maker.rng = np.random.default_rng(seed)
        for batch in self._batches():
            # as plain arrays: tensors would travel as shared memory files, one each
            self._queue.put([getattr(batch, field.name).numpy() for field in dataclasses.fields(Batch)])

    def _batches(self) -> Iterator[Batch]:
        rng = self._maker.rng
        lengths = self._maker.corpus.counts + np.diff(self._maker.corpus.text_starts)
        while True:
            # sorted within a random group: similar lengths together, but another mix in every epoch
            shuffled = rng.permutation(self._utterances)
            for start in range(0, len(shuffled), 8192):
                group = shuffled[start : start + 8192]
                rows = [self._maker.row(int(u)) for u in group[np.argsort(lengths[group], kind="stable")]]
                rows = [row for row in rows if len(row.tokens) <= MAX_POSITIONS]
                rows.sort(key=lambda row: len(row.tokens))
                pending = list(self._split(rows))
                for index in rng.permutation(len(pending)):
                    yield collate(pending[index])

    def _split(self, rows: list[Row]) -> Iterator[list[Row]]:
        chosen: list[Row] = []
        for row in rows:
            if chosen and (len(chosen) + 1) * len(row.tokens) > self._num_positions:
                yield chosen
                chosen = []
            chosen.append(row)
        yield chosen
