"""Finds the head that tells which character is being spoken: ``python -m realtime_tts.engine.calibrate MODEL``.

The checkpoint speaks a few sentences in its own voices, and every head of its base LM is judged by what it looked at
(`head_choice`). The result belongs to the checkpoint: in its serving.json, or in a cache of the user's.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence as AnySequence
from pathlib import Path

import numpy as np
import torch

from realtime_tts.engine.calibration_texts import sentences_of
from realtime_tts.engine.head_choice import HeadScore, SpokenSentence, choose_head, score_heads
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.engine.setup import choose_device
from realtime_tts.engine.utterance import spoken_chars
from realtime_tts.errors import CheckpointError, RealtimeTTSError
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.generate import BLOCK_SIZE, OfflineRunner, Stream, decode
from realtime_tts.model.sequence import Sequence, build_sequence, length_guard
from realtime_tts.model.text_head import AllHeadsProbe, SpokenText
from realtime_tts.workers.location import local_directory
from realtime_tts.workers.policy import TextHead

logger = logging.getLogger(__name__)

START_BUDGET_S = 20.0  # when a worker starts; who is slower calibrates once by hand
_TYPICAL_PATCHES = 30
_VERSION = 2  # of the way to choose; older results are made anew


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """head: None if none qualifies. scores: of all heads, by agreement."""

    head: TextHead | None
    scores: list[HeadScore]
    num_sentences: int


def calibrate(
    loaded: LoadedModel, sentences: AnySequence[str] | None = None, budget_s: float | None = None
) -> Calibration | None:
    """Speak the sentences (in the checkpoint's own languages by default) and judge all heads; None if that would take
    longer than `budget_s`."""
    spoken = _speak(loaded, sentences or sentences_of(loaded.policy.languages), budget_s)
    if spoken is None:
        return None
    scores = score_heads(spoken)
    return Calibration(choose_head(scores), scores, len(spoken))


@torch.inference_mode()
def _speak(loaded: LoadedModel, sentences: AnySequence[str], budget_s: float | None) -> list[SpokenSentence] | None:
    """The sentences that came to an end of their own, all in one batch."""
    streams, limits, num_blocks = _streams(loaded, sentences)
    runner = OfflineRunner(loaded.model, num_blocks, steps=loaded.policy.default_steps)
    looks: list[list[np.ndarray]] = [[] for _ in streams]
    running, ended = list(range(len(streams))), []
    times_s = [time.monotonic()]
    while running:
        stops, found = _step(runner, [streams[number] for number in running])
        for number, look in zip(running, found, strict=True):
            looks[number].append(look)
        times_s.append(time.monotonic())
        if budget_s is not None and _expected_s(times_s) > budget_s:
            return None
        num_steps = len(times_s) - 1
        if num_steps > loaded.config.min_patches + 1:
            ended += [number for number, stop in zip(running, stops, strict=True) if stop]
        running = [number for number in running if number not in ended and num_steps < limits[number]]
    return [_heard(loaded, sentences[number], streams[number], np.stack(looks[number])) for number in sorted(ended)]


def _expected_s(times_s: AnySequence[float]) -> float:
    """How long all of it will take. The first step is not the measure of the others: it prefills, and warms up."""
    so_far_s, num_more = times_s[-1] - times_s[0], max(0, _TYPICAL_PATCHES - len(times_s) + 1)
    steps = len(times_s) - 2
    return so_far_s + num_more * (times_s[-1] - times_s[1]) / steps if steps > 0 else so_far_s


def _streams(loaded: LoadedModel, sentences: AnySequence[str]) -> tuple[list[Stream], list[int], int]:
    """The sentences as streams, the most patches of each, and the KV blocks of all."""
    streams: list[Stream] = []
    limits: list[int] = []
    num_blocks = 0
    for number, text in enumerate(sentences):
        source = _lay_out(loaded, text, number)
        limits.append(_limit(loaded, text, source))
        first, num_blocks = num_blocks, num_blocks - (source.num_positions + limits[-1]) // -BLOCK_SIZE
        streams.append(Stream(source, _Noise(loaded, number), range(first, num_blocks), loaded.policy.default_cfg))
    return streams, limits, num_blocks


def _lay_out(loaded: LoadedModel, text: str, number: int) -> Sequence:
    """A sentence in one of the checkpoint's voices by turns, or in one that the model makes up."""
    tokens = loaded.tokenizer.encode_located(text)
    voices = list(loaded.policy.voices.values())
    prefix = voices[number % len(voices)].text_prefix if voices else ""
    return build_sequence(
        loaded.config,
        [token.id for token in tokens],
        prefix_ids=loaded.tokenizer.encode_trusted(prefix),
        spoken_chars=[token.start for token in tokens],
    )


def _limit(loaded: LoadedModel, text: str, source: Sequence) -> int:
    room = loaded.config.max_length - source.num_positions
    per_char = loaded.policy.max_patches_per_char
    num_chars = spoken_chars(text) if per_char is None else len(text)
    return length_guard(len(source.spoken_chars), num_chars, per_char or 1.0, room)


class _Noise:
    def __init__(self, loaded: LoadedModel, seed: int) -> None:
        self._shape = loaded.config.patch_size, loaded.config.latent_dim
        self._key = torch.tensor([noise_key(seed)])

    def __call__(self, index: int) -> torch.Tensor:
        return patch_noise(self._key, torch.tensor([index]), *self._shape)[0]


def _step(runner: OfflineRunner, streams: AnySequence[Stream]) -> tuple[list[bool], np.ndarray]:
    """One patch more for each: who stops, and [S, layers, heads, 3] what was looked at: index, spread, mass."""
    device = runner.device
    spoken = SpokenText(
        torch.tensor(np.cumsum([stream.num_new for stream in streams]) - 1, device=device),
        torch.tensor([stream.input.spoken_start for stream in streams], device=device),
        torch.tensor([len(stream.input.spoken_chars) for stream in streams], device=device),
    )
    probe = AllHeadsProbe(spoken)
    stops = runner.step(streams, probe).stops.tolist()
    looks = torch.stack([torch.stack(values, dim=1) for values in (probe.index, probe.spread, probe.mass)], dim=-1)
    return stops, looks.cpu().numpy()


def _heard(loaded: LoadedModel, text: str, stream: Stream, looks: np.ndarray) -> SpokenSentence:
    pcm = decode(loaded.model, torch.stack(stream.patches).float().cpu().numpy()).numpy()
    index, spread, mass = np.moveaxis(looks, -1, 0)
    return SpokenSentence(text, stream.input.spoken_chars, index, spread, mass, pcm, loaded.config.sample_rate)


# ---- where the result is kept ------------------------------------------------------------------------------------


def with_text_head(loaded: LoadedModel, budget_s: float | None = START_BUDGET_S) -> LoadedModel:
    """The same checkpoint with its text head: as its serving.json says, as found before, or found now."""
    policy = loaded.policy
    if policy.text_head is not None:
        return loaded
    cache = cache_path(loaded.path)
    found = read_cache(cache)
    if found is None:
        try:
            result = calibrate(loaded, budget_s=budget_s)
        except Exception:  # a checkpoint that cannot be judged can still be served
            logger.exception("no text head was found, word times are estimated")
            return loaded
        if result is None:
            logger.warning("this device is too slow to look for a text head: see `realtime-tts calibrate`")
            return loaded
        found = (result.head,)
        write_cache(cache, result.head)
        logger.info("text head: %s", result.head or "none qualifies, word times are estimated")
    return dataclasses.replace(loaded, policy=dataclasses.replace(policy, text_head=found[0]))


def cache_path(checkpoint: Path) -> Path:
    """Of one state of one checkpoint; another one has another file."""
    digest = hashlib.blake2b(str(_VERSION).encode(), digest_size=16)
    for file in sorted(checkpoint.iterdir()):
        if file.suffix in (".json", ".safetensors", ".bin", ".pth"):
            stat = file.stat()  # follows the links of the hub's cache
            digest.update(f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "realtime-tts" / "text-heads" / f"{digest.hexdigest()}.json"


def read_cache(path: Path) -> tuple[TextHead | None] | None:
    """What was found before (a head, or that there is none); None if nothing was, or it cannot be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))["text_head"]
        return (None if raw is None else TextHead.from_map(raw),)
    except (OSError, ValueError, TypeError, KeyError, CheckpointError):
        return None


def write_cache(path: Path, head: TextHead | None) -> None:
    """Keep a result; where nothing can be written it is looked for again next time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            json.dump({"text_head": dataclasses.asdict(head) if head else None}, file)
        os.replace(file.name, path)


def write_serving(checkpoint: Path, head: TextHead) -> None:
    """Put a result into a checkpoint's serving.json, beside what is in it.

    Raises:
        CheckpointError: the file cannot be read or written.
    """
    path = checkpoint / "serving.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        raw["text_head"] = dataclasses.asdict(head)
        path.write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"serving.json cannot be written: {error}") from error


def main() -> None:
    """Prints JSON: the head, or null, and what speaks for each; `realtime-tts calibrate` makes a table of it."""
    parser = argparse.ArgumentParser(description="Find the head that tells which character is being spoken.")
    parser.add_argument("model", help="checkpoint directory, hub id, or starter-voice")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--write", action="store_true", help="put it into the checkpoint's serving.json")
    arguments = parser.parse_args()
    try:
        directory = local_directory(arguments.model)
        if arguments.write and directory is None:
            raise CheckpointError("--write needs a checkpoint directory")
        loaded = load_model(str(directory or arguments.model), choose_device(arguments.device))
        result = calibrate(loaded)
        if result is None:
            raise AssertionError("without a budget there is a result")
        if arguments.write and result.head is not None and directory is not None:
            write_serving(directory, result.head)
        write_cache(cache_path(loaded.path), result.head)
    except RealtimeTTSError as error:
        sys.exit(f"Error: {error.message}")
    scores = [{**dataclasses.asdict(score), "qualifies": score.qualifies} for score in result.scores]
    head = dataclasses.asdict(result.head) if result.head else None
    report = {"model": loaded.name, "text_head": head, "num_sentences": result.num_sentences, "scores": scores}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
