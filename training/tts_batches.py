"""Batches for TTS training: every way in which the model is asked to speak, drawn at random.

`[103 reference 104]? <voice>? text 101 audio`, where text and audio may begin with those of a prompt to continue. A
row's position i predicts the patch at position i + 1.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from realtime_tts.model.sequence import AUDIO_START, REFERENCE_END, REFERENCE_START
from training.latents import LatentCorpus
from training.speakers import VOICES
from training.starter_config import LETTER_IDS, VOICE_IDS

NUM_VOICES = len(VOICES)
MAX_POSITIONS = 448
_SPACE = LETTER_IDS[" "]
_MARKS = [LETTER_IDS[mark] for mark in ",.?!"]
# Serving begins an open text with 8 characters and speaks up to 14 before its end; its position may be late.
_BEGIN_CHARS, _OPEN_AHEAD = 8, 10


@dataclasses.dataclass(frozen=True, slots=True)
class Conditioning:
    """How often each condition is drawn. What remains of a named voice is spoken unconditioned."""

    voice_token: float = 0.7
    reference: float = 0.25
    pseudo_reference: float = 0.95  # of a pseudo-speaker, which has no token
    prompt: float = 0.25
    open_text: float = 0.35  # of the texts of three words or more: still being written, only the first words are known
    min_reference_patches: int = 4
    max_reference_patches: int = 20


@dataclasses.dataclass(slots=True)
class Row:
    """One sequence: token of each position (0: audio), patch index of each position (-1: text), first predicted one.

    spoken: for each predicted patch the position of the character that is spoken in its middle, -1 if unknown.
    is_open: the text goes on, so that the last patch is not the end of speech.
    """

    tokens: list[int]
    patches: NDArray[np.int64]
    first_target: int
    spoken: NDArray[np.int64]
    is_open: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class BatchShape:
    """Fixed sizes of a batch, so that a training step is compiled and captured once. The last position is never part of
    a row: padded entries of the other lists point at it."""

    positions: int
    rows: int
    audio: int
    targets: int

    @classmethod
    def fit(cls, rows: list[Row], positions: int) -> BatchShape:
        """For rows like these, with some room for their mix to vary."""
        length = sum(len(row.tokens) for row in rows)
        audio = sum(np.count_nonzero(row.patches >= 0) for row in rows)
        targets = sum(len(row.tokens) - row.first_target for row in rows)
        room = 1.06 * positions / length
        spare_rows = 8 + positions // MAX_POSITIONS
        return cls(positions, int(1.5 * room * len(rows)) + spare_rows, int(room * audio), int(room * targets))


@dataclasses.dataclass(slots=True)
class Batch:
    """Rows packed end to end; padding makes further rows, then empty ones.

    For each of N positions: tokens, positions (within the row) and row_index [N] int64; row_starts [rows + 1] int32,
    with N after the last. Audio positions: audio_index [A] with patches audio_patches [A]. Predicted at positions
    target_index [M] the patches target_patches [M], after prefix_patches [M] (-1: silence), with is_last [M], while the
    character at position spoken_index [M] (of N; -1: unknown, or padding) is spoken; `weight` [M] float32 is 0 for
    padding.
    """

    tokens: Tensor
    positions: Tensor
    row_index: Tensor
    row_starts: Tensor
    audio_index: Tensor
    audio_patches: Tensor
    target_index: Tensor
    target_patches: Tensor
    prefix_patches: Tensor
    is_last: Tensor
    spoken_index: Tensor
    weight: Tensor

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def to(self, device: torch.device | str) -> Batch:
        return Batch(**{name: tensor.to(device) for name, tensor in self.tensors().items()})

    def pinned(self) -> Batch:
        """In page-locked memory where there is a GPU, so that its copy to there is not waited for."""
        if not torch.cuda.is_available():
            return self
        return Batch(**{name: tensor.pin_memory() for name, tensor in self.tensors().items()})

    def copy_(self, other: Batch) -> None:
        """Takes over the other's content in place: a captured step reads fixed addresses."""
        for name, tensor in self.tensors().items():
            tensor.copy_(getattr(other, name), non_blocking=True)


class RowMaker:
    """Draws the condition of an utterance and lays the row out. References and prompts are of the utterances in `pool`
    [n] (default: all)."""

    def __init__(
        self,
        corpus: LatentCorpus,
        conditioning: Conditioning,
        rng: np.random.Generator,
        pool: NDArray[np.int64] | None = None,
    ) -> None:
        self.corpus, self.conditioning, self.rng = corpus, conditioning, rng
        pool = np.arange(len(corpus)) if pool is None else pool
        order = pool[np.argsort(corpus.speakers[pool], kind="stable")]
        edges = np.searchsorted(corpus.speakers[order], np.arange(corpus.speakers.max() + 2))
        self._of_speaker = [order[a:b] for a, b in itertools.pairwise(edges)]
        self._spoken = corpus.spoken_characters()
        self._patches_until = [np.cumsum(corpus.counts[utterances]) for utterances in self._of_speaker]

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
        text, audio, first_char = corpus.text(utterance), self._patches_of(utterance), len(tokens)
        spoken = self._spoken_at(utterance, first_char)
        known = self._known_part(text, spoken - first_char) if self.rng.random() < draw.open_text else None
        if known is not None:
            text, audio, spoken = text[: known[0]], audio[: known[1]], spoken[: known[1]]
        if self.rng.random() < draw.prompt:
            prompt = self._other(speaker, utterance)
            prompt_text, prompt_audio = corpus.text(prompt), self._patches_of(prompt)
            length = len(tokens) + len(prompt_text) + len(prompt_audio) + len(text) + len(audio) + 2
            if prompt != utterance and length <= MAX_POSITIONS:
                # the prompt's own patches are predicted too: it is as good an utterance as the other
                text = np.concatenate([prompt_text, [LETTER_IDS[" "]], text])
                audio = np.concatenate([prompt_audio, audio])
                own = np.where(spoken < 0, -1, spoken + len(prompt_text) + 1)
                spoken = np.concatenate([self._spoken_at(prompt, first_char), own])
        tokens += [*text.tolist(), AUDIO_START]
        first_target = len(tokens)
        tokens += [0] * len(audio)
        patches += [np.full(len(text) + 1, -1), audio]
        return Row(tokens, np.concatenate(patches), first_target, spoken, known is not None)

    def _known_part(self, text: NDArray[np.uint8], spoken: NDArray[np.int64]) -> tuple[int, int] | None:
        """Draw where a text is cut that is still being written: numbers of its characters and of the patches that
        serving makes then. None if it is too short or its word times are unknown.

        The known part ends with a word, whose mark is not known yet; half the time with one of the first that serving
        begins with.
        """
        if spoken.min() < 0:
            return None
        ends = np.flatnonzero(text == _SPACE)[1:]
        ends = ends - np.isin(text[ends - 1], _MARKS)
        ends = ends[ends >= _BEGIN_CHARS]
        if not len(ends):
            return None
        end = int(ends[self.rng.integers(min(3, len(ends)) if self.rng.random() < 0.5 else len(ends))])
        # The first patch needs no more text than this, later ones need some in front of the patch before them.
        return end, 1 + int(np.searchsorted(spoken[:-1], end - _OPEN_AHEAD, side="right"))

    def _spoken_at(self, utterance: int, first_char: int) -> NDArray[np.int64]:
        """For each patch the position of its character, in a row where the text begins at `first_char`."""
        start = self.corpus.starts[utterance]
        chars = self._spoken[start : start + self.corpus.counts[utterance]].astype(np.int64)
        return np.where(chars < 0, -1, first_char + chars)

    def _patches_of(self, utterance: int) -> NDArray[np.int64]:
        start = self.corpus.starts[utterance]
        return np.arange(start, start + self.corpus.counts[utterance])

    def _other(self, speaker: int, utterance: int) -> int:
        """Another utterance of the speaker, or the same one if there is no other; long ones oftener, as single words
        are many, but seldom what is spoken from."""
        candidates, until = self._of_speaker[speaker], self._patches_until[speaker]
        if not len(candidates):
            return utterance
        for _ in range(4):
            other = int(candidates[np.searchsorted(until, self.rng.integers(until[-1]), side="right")])
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


def collate(rows: list[Row], shape: BatchShape) -> Batch:
    """Packs the rows. Raises ValueError if they do not fit."""
    starts = np.concatenate([[0], np.cumsum([len(row.tokens) for row in rows])])
    used, spare = int(starts[-1]), shape.positions - 1
    if used > spare:
        raise ValueError(f"{len(rows)} rows of {used} positions do not fit into {shape}")
    # padding makes rows too, as attention has a longest row
    starts = np.concatenate(
        [starts, np.arange(used + MAX_POSITIONS, shape.positions, MAX_POSITIONS), [shape.positions]]
    )
    lengths = np.diff(starts)
    tokens = np.zeros(shape.positions, np.int64)
    patches = np.full(shape.positions, -1)
    last = np.zeros(shape.positions, np.int64)
    predicted, spoken = [], []
    for start, row in zip(starts, rows, strict=False):
        end = start + len(row.tokens)
        tokens[start:end], patches[start:end], last[end - 1] = row.tokens, row.patches, not row.is_open
        predicted.append(np.arange(start + row.first_target, end))
        spoken.append(np.where(row.spoken < 0, -1, start + row.spoken))
    audio, targets = np.flatnonzero(patches >= 0), np.concatenate(predicted)

    def padded(values: NDArray[np.int64], size: int, fill: int) -> Tensor:
        if len(values) > size:
            raise ValueError(f"{len(values)} entries do not fit into {size} of {shape}")
        return torch.from_numpy(np.concatenate([values, np.full(size - len(values), fill)]))

    return Batch(
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])),
        row_index=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
        row_starts=padded(starts, shape.rows + 1, shape.positions).int(),
        audio_index=padded(audio, shape.audio, spare),
        audio_patches=padded(patches[audio], shape.audio, 0),
        target_index=padded(targets - 1, shape.targets, spare),
        target_patches=padded(patches[targets], shape.targets, 0),
        prefix_patches=padded(patches[targets - 1], shape.targets, -1),
        is_last=padded(last[targets], shape.targets, 0),
        spoken_index=padded(np.concatenate(spoken), shape.targets, -1),
        weight=(torch.arange(shape.targets) < len(targets)).float(),
    )


def pack(rows: Iterable[Row], shape: BatchShape) -> Iterator[Batch]:
    """Full batches of the rows in their order, and one of what is left. Rows over `MAX_POSITIONS` are left out."""
    limit = np.array(
        [shape.positions - 1, shape.rows - shape.positions // MAX_POSITIONS - 1, shape.audio, shape.targets]
    )
    pending: list[Row] = []
    used = np.zeros(4, np.int64)
    for row in rows:
        length = len(row.tokens)
        size = np.array([length, 1, np.count_nonzero(row.patches >= 0), length - row.first_target])
        if length > MAX_POSITIONS or np.any(size > limit):
            continue
        if np.any(used + size > limit):
            yield collate(pending, shape)
            pending, used = [], np.zeros(4, np.int64)
        pending.append(row)
        used += size
    if pending:
        yield collate(pending, shape)


class Batches:
    """Endless batches of one shape, packed in random order by worker processes.

    Construct it before CUDA is initialised: the workers are forked and read the corpus's index arrays only.
    """

    def __init__(
        self, maker: RowMaker, utterances: NDArray[np.int64], shape: BatchShape, *, workers: int = 4, seed: int = 0
    ) -> None:
        self._maker, self._utterances, self._shape = maker, utterances, shape
        context = multiprocessing.get_context("fork")
        self._queue = context.Queue(8 * workers)
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
        for batch in pack(self._rows(), self._shape):
            # as plain arrays: tensors would travel as shared memory files, one each
            self._queue.put([tensor.numpy() for tensor in batch.tensors().values()])

    def _rows(self) -> Iterator[Row]:
        while True:
            for utterance in self._maker.rng.permutation(self._utterances):
                yield self._maker.row(int(utterance))
