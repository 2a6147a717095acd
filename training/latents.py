"""The corpus as the TTS model sees it: every utterance's latent patches, its speaker and its characters.

    python -m training.latents --audio build/audio --vae build/vae/normalised.pt --out build/latents.pt

Run again when there are more chunks, it encodes those, and puts them after the others. Under torchrun each process
encodes its share.
"""

from __future__ import annotations

import argparse
import dataclasses
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


@dataclasses.dataclass(slots=True)
class LatentCorpus:
    """patches [all patches, patch_size, latent_dim] float16; utterance u owns patches
    starts[u] : starts[u] + counts[u] and characters text_starts[u] : text_starts[u + 1] of `text_ids`. `chunks` names
    the files of audio that it holds."""

    patches: Tensor
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    speakers: NDArray[np.int32]
    text_ids: NDArray[np.uint8]
    text_starts: NDArray[np.int64]
    chunks: list[str] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, utterance: int) -> NDArray[np.uint8]:
        return self.text_ids[self.text_starts[utterance] : self.text_starts[utterance + 1]]

    @classmethod
    def build(cls, patches: list[Tensor], speakers: list[int], texts: list[str]) -> LatentCorpus:
        """From each utterance's patches [n, patch_size, latent_dim]."""
        counts = np.array([len(part) for part in patches])
        ids = [np.array([LETTER_IDS[char] for char in text], np.uint8) for text in texts]
        return cls(
            patches=torch.cat(patches),
            starts=np.cumsum(counts) - counts,
            counts=counts,
            speakers=np.array(speakers, np.int32),
            text_ids=np.concatenate(ids),
            text_starts=np.concatenate([[0], np.cumsum([len(part) for part in ids])]),
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
            chunks=[chunk for part in parts for chunk in part.chunks],
        )

    def save(self, path: Path) -> None:
        arrays = {
            name: torch.from_numpy(getattr(self, name))
            for name in ("starts", "counts", "speakers", "text_ids", "text_starts")
        }
        partial = path.with_suffix(".partial")
        torch.save({"patches": self.patches.cpu(), "chunks": self.chunks, **arrays}, partial)
        partial.rename(path)

    @classmethod
    def load(cls, path: Path) -> LatentCorpus:
        """On the CPU."""
        content = torch.load(path, weights_only=True)
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
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    replicas = Replicas.from_environment()
    replicas.join(args.device)
    vae = load_vae(args.vae, args.device).eval()
    use_fast_layers(vae)
    done = set(torch.load(args.out, weights_only=True, mmap=True)["chunks"]) if args.out.exists() else set()
    paths = [path for path in sorted(args.audio.glob("*.npz")) if path.name not in done]
    if paths:
        _add(args.out, paths, vae, replicas)
    replicas.end()


def _add(out: Path, paths: list[Path], vae: AudioVAE, replicas: Replicas) -> None:
    """Encodes chunks and puts them after those in `out`."""
    own = paths[replicas.rank :: replicas.count]
    parts = [out.with_name(f"{out.name}.{rank}") for rank in range(replicas.count)]
    parts[replicas.rank].unlink(missing_ok=True)  # of a process that was cut off
    encoded = [_encode(vae, path) for path in tqdm(own, unit="chunk", disable=not replicas.is_first)]
    if encoded:
        LatentCorpus.together(encoded).save(parts[replicas.rank])
    replicas.wait()
    if replicas.is_first:
        present = [part for part in parts if part.exists()]
        corpus = LatentCorpus.together([LatentCorpus.load(part) for part in (out, *present) if part.exists()])
        corpus.save(out)
        for part in present:
            part.unlink()
        print(f"{len(corpus)} utterances, {len(corpus.patches) * 0.16 / 3600:.1f} h")


def _encode(vae: AudioVAE, path: Path) -> LatentCorpus:
    chunk = AudioChunk.load(path)
    encoded = encode_utterances(vae, chunk.utterances(), patch_size=4)
    patches = torch.cat(encoded).cpu().split([len(part) for part in encoded])  # one copy from the device
    corpus = LatentCorpus.build(list(patches), chunk.speakers.tolist(), chunk.texts)
    return dataclasses.replace(corpus, chunks=[path.name])


if __name__ == "__main__":
    main()
