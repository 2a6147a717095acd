"""The corpus as the TTS model sees it: every utterance's latent patches, speaker, characters and word times.

    python -m training.latents --audio build/audio --vae build/vae/normalised.pt --out build/latents.pt

Run again when there are more chunks, it encodes those, and puts them after the others; with --follow it waits for
them itself. Under torchrun each process encodes its share.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from realtime_tts.model.audio_vae import AudioVAE
from training.fast_layers import use_fast_layers
from training.replicas import Replicas
from training.starter_config import LETTER_IDS
from training.teacher import AudioChunk
from training.vae_training import load_vae

_SPACE = LETTER_IDS[" "]
_SILENT = [LETTER_IDS[char] for char in " ,.?!"]


def _sums(values: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum values[starts[n] : starts[n + 1]] for each n."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[starts])


@dataclasses.dataclass(slots=True)
class LatentCorpus:
    """patches [all patches, patch_size, latent_dim] float16; utterance u owns patches
    starts[u] : starts[u] + counts[u] and characters text_starts[u] : text_starts[u + 1] of `text_ids`.

    words [all words, 2] float32: start and end of each space-separated word of the texts, in patches from its
    utterance's start; -1 where they are unknown. chunks: the names of the audio files that the corpus holds.
    """

    patches: Tensor
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    speakers: NDArray[np.int32]
    text_ids: NDArray[np.uint8]
    text_starts: NDArray[np.int64]
    words: NDArray[np.float32]
    chunks: list[str] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, utterance: int) -> NDArray[np.uint8]:
        return self.text_ids[self.text_starts[utterance] : self.text_starts[utterance + 1]]

    def words_of(self, utterance: int) -> NDArray[np.float32]:
        """Return the word times [words, 2] of one utterance, in patches from its start."""
        first, end = self.text_starts[utterance : utterance + 2]
        before = utterance + np.count_nonzero(self.text_ids[:first] == _SPACE)
        return self.words[before : before + 1 + np.count_nonzero(self.text_ids[first:end] == _SPACE)]

    def spoken_characters(self, moment: float = 0.5) -> NDArray[np.int16]:
        """Return for each patch which character of its utterance's text is spoken there; -1 without word times.

        moment: where in the patch, from 0 (its start) to 1. The letters of a word share its time evenly. In a pause
        after a word, or after the last one, it is the mark or the space after the word's letters, or the last
        character of the text; before the first word it is the first character.
        """
        word_counts = 1 + _sums(self.text_ids == _SPACE, self.text_starts)
        owners = np.repeat(np.arange(len(self)), word_counts)
        patch_owners = np.repeat(np.arange(len(self)), self.counts)
        first_chars, letters_ends = self._letters()
        # One time axis for all utterances, end to end. Unknown words start with their utterance, so that they sort.
        limits = self.counts[owners, None]
        times = np.clip(self.words, 0, limits) + (np.cumsum(self.counts) - self.counts)[owners, None]
        moments = np.arange(len(patch_owners)) + moment
        word = np.searchsorted(times[:, 0], moments, side="right") - 1
        first_words = np.cumsum(word_counts) - word_counts
        is_before = word < first_words[patch_owners]
        word = np.maximum(word, first_words[patch_owners])
        start, end = times[word].T
        letters = letters_ends[word] - first_chars[word]
        share = np.clip((moments - start) / np.maximum(end - start, 1e-6), 0, 1)
        spoken = first_chars[word] + np.minimum((share * letters).astype(np.int64), letters - 1)
        pause = np.minimum(letters_ends[word], self.text_starts[patch_owners + 1] - 1)
        spoken = np.where(moments >= end, pause, spoken)
        spoken = np.where(is_before, self.text_starts[patch_owners], spoken) - self.text_starts[patch_owners]
        return np.where(self.words[word, 0] < 0, -1, spoken).astype(np.int16)

    def _letters(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the letters of each word start and end in `text_ids`; marks at a word's end are none."""
        spaces = np.flatnonzero(self.text_ids == _SPACE)
        starts = np.sort(np.concatenate([self.text_starts[:-1], spaces + 1]))
        ends = np.sort(np.concatenate([spaces, self.text_starts[1:]]))
        is_letter = ~np.isin(self.text_ids, _SILENT)
        last_letter = np.maximum.accumulate(np.where(is_letter, np.arange(len(self.text_ids)), -1))
        return starts, np.maximum(last_letter[ends - 1] + 1, starts + 1)

    @classmethod
    def build(
        cls,
        patches: list[Tensor],
        speakers: list[int],
        texts: list[str],
        words: NDArray[np.float32] | None = None,
    ) -> LatentCorpus:
        """Make a corpus from each utterance's patches [n, patch_size, latent_dim], and the word times of all.

        Raises ValueError if there is not one row of word times for each word.
        """
        num_words = sum(text.count(" ") + 1 for text in texts)
        if words is None:
            words = np.full((num_words, 2), -1, np.float32)
        if words.shape != (num_words, 2):
            raise ValueError(f"word times must be of shape {(num_words, 2)}, got {words.shape}")
        counts = np.array([len(part) for part in patches])
        ids = [np.array([LETTER_IDS[char] for char in text], np.uint8) for text in texts]
        return cls(
            patches=torch.cat(patches),
            starts=np.cumsum(counts) - counts,
            counts=counts,
            speakers=np.array(speakers, np.int32),
            text_ids=np.concatenate(ids),
            text_starts=np.concatenate([[0], np.cumsum([len(part) for part in ids])]),
            words=words.astype(np.float32),
        )

    @classmethod
    def together(cls, parts: list[LatentCorpus]) -> LatentCorpus:
        """One after the other."""
        counts = np.concatenate([part.counts for part in parts])
        text_lengths = np.concatenate([np.diff(part.text_starts) for part in parts])
        return cls(
            patches=torch.cat([part.patches for part in parts]),
            starts=np.cumsum(counts) - counts,
            counts=counts,
            speakers=np.concatenate([part.speakers for part in parts]),
            text_ids=np.concatenate([part.text_ids for part in parts]),
            text_starts=np.concatenate([[0], np.cumsum(text_lengths)]),
            words=np.concatenate([part.words for part in parts]),
            chunks=[chunk for part in parts for chunk in part.chunks],
        )

    def save(self, path: Path) -> None:
        arrays = {
            name: torch.from_numpy(getattr(self, name))
            for name in ("starts", "counts", "speakers", "text_ids", "text_starts", "words")
        }
        partial = path.with_suffix(".partial")
        torch.save({"patches": self.patches.cpu(), "chunks": self.chunks, **arrays}, partial)
        partial.rename(path)

    @classmethod
    def load(cls, path: Path) -> LatentCorpus:
        """Load a corpus onto the CPU. One that was saved without word times has unknown ones."""
        content = torch.load(path, weights_only=True)
        if "words" not in content:
            num_words = len(content["starts"]) + int((content["text_ids"] == _SPACE).sum())
            content["words"] = torch.full((num_words, 2), -1.0)
        patches, chunks = content.pop("patches"), content.pop("chunks")
        return cls(patches, **{name: tensor.numpy() for name, tensor in content.items()}, chunks=chunks)


@torch.inference_mode()
def encode_utterances(
    vae: AudioVAE, audio: list[NDArray[np.int16]], patch_size: int, max_batch_s: float = 480
) -> list[Tensor]:
    """Patches [n, patch_size, latent_dim] float16 of each utterance, zero-padded on the right to whole patches.

    Utterances of similar length share a batch; the encoder is causal, so that padding on the right changes nothing.
    """
    device = next(vae.parameters()).device
    patch_samples = patch_size * vae.config.encode_hop
    lengths = [-(-len(samples) // patch_samples) for samples in audio]
    order = np.argsort(lengths, kind="stable")
    result: list[Tensor] = [torch.empty(0)] * len(audio)
    start = 0
    while start < len(order):
        size = 1
        limit = max_batch_s * vae.config.encode_rate_hz / patch_samples
        while start + size < len(order) and (size + 1) * lengths[order[start + size]] <= limit:
            size += 1
        chosen = order[start : start + size]
        longest = lengths[chosen[-1]] * patch_samples
        pcm = torch.stack([F.pad(torch.from_numpy(audio[u]), (0, longest - len(audio[u]))) for u in chosen])
        latents = vae.encode(pcm.to(device).float() / 32768).half().unflatten(1, (-1, patch_size))
        for row, utterance in enumerate(chosen):
            result[utterance] = latents[row, : lengths[utterance]]
        start += size
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=Path, default=Path("build/audio"))
    parser.add_argument("--vae", type=Path, default=Path("build/vae/normalised.pt"))
    parser.add_argument("--out", type=Path, default=Path("build/latents.pt"))
    parser.add_argument("--follow", action="store_true", help="encode chunks as the teacher makes them, until its last")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    replicas = Replicas.from_environment()
    if args.follow and replicas.count > 1:
        parser.error("--follow encodes in one process")
    replicas.join(args.device)
    vae = load_vae(args.vae, args.device, new_decoder=True).eval()  # only its encoder is needed
    use_fast_layers(vae)
    done = set(torch.load(args.out, weights_only=True, mmap=True)["chunks"]) if args.out.exists() else set()
    chunks = new_chunks(args.audio, done, follow=args.follow)
    _add(args.out, itertools.islice(chunks, replicas.rank, None, replicas.count), vae, replicas)
    replicas.end()


def new_chunks(folder: Path, done: set[str], *, follow: bool, poll_s: float = 1.0) -> Iterator[Path]:
    """Yield the chunks whose names are not in `done`, by name; with `follow` also those that the teacher is still to
    make, as soon as they are there."""
    seen = set(done)
    while True:
        is_last_look = not follow or (folder / "complete").exists()  # asked first: no chunk appears after that file
        new = [path for path in sorted(folder.glob("*.npz")) if path.name not in seen]
        yield from new
        seen |= {path.name for path in new}
        if is_last_look:
            return
        if not new:
            time.sleep(poll_s)


def _add(out: Path, own: Iterable[Path], vae: AudioVAE, replicas: Replicas) -> None:
    """Encode this process's chunks; put those of all processes after what `out` holds."""
    parts = [out.with_name(f"{out.name}.{rank}") for rank in range(replicas.count)]
    parts[replicas.rank].unlink(missing_ok=True)  # of a process that was cut off
    encoded = [_encode(vae, path) for path in tqdm(own, unit="chunk", disable=not replicas.is_first)]
    if encoded:
        LatentCorpus.together(encoded).save(parts[replicas.rank])
    replicas.wait()
    present = [part for part in parts if part.exists()]
    if replicas.is_first and present:
        corpus = LatentCorpus.together([LatentCorpus.load(part) for part in (out, *present) if part.exists()])
        corpus.save(out)
        for part in present:
            part.unlink()
        print(f"{len(corpus)} utterances, {len(corpus.patches) * 0.16 / 3600:.1f} h")


def _encode(vae: AudioVAE, path: Path) -> LatentCorpus:
    chunk = AudioChunk.load(path)
    encoded = encode_utterances(vae, chunk.utterances(), patch_size=4)
    patches = torch.cat(encoded).cpu().split([len(part) for part in encoded])  # one copy from the device
    words = chunk.words.astype(np.float32) / (4 * vae.config.encode_hop)
    corpus = LatentCorpus.build(list(patches), chunk.speakers.tolist(), chunk.texts, words)
    return dataclasses.replace(corpus, chunks=[path.name])


if __name__ == "__main__":
    main()
