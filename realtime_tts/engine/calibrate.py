"""Finds the attention head that follows the spoken character.

The checkpoint speaks a few sentences in its own voices, and every head of its base LM is scored by its attention
(`head_choice`). The result belongs to the checkpoint: it is stored in its serving.json, or in a cache of the user's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Sequence as AnySequence
from pathlib import Path

import numpy as np
import torch

from realtime_tts.contract.files import cache_directory, write_whole
from realtime_tts.contract.location import local_directory
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.continuity import Continuity
from realtime_tts.engine.head_choice import HeadScore, SpokenSentence, choose_head, score_heads
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.engine.segment import spoken_chars
from realtime_tts.engine.setup import choose_device
from realtime_tts.engine.voices import EngineVoiceCache
from realtime_tts.errors import CheckpointError
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.generate import Noise, OfflineRunner, Stream, decode, streams_of
from realtime_tts.model.sequence import Sequence, length_guard
from realtime_tts.model.text_head import AllHeadsProbe, TextSpans

logger = logging.getLogger(__name__)

START_BUDGET_S = 20.0  # at a worker's start; on slower devices `realtime-tts calibrate` is run once by hand
NUM_SENTENCES = 12
# By language: short sentences with pauses.
SENTENCES: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "calibration_texts.json").read_text(encoding="utf-8")
)
_TYPICAL_PATCHES = 30
_VERSION = 2  # of the choice's method; results of older versions are computed again


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """head: None if none qualifies. scores: of all heads, best agreement first."""

    head: TextHead | None
    scores: list[HeadScore]
    num_sentences: int


def calibrate(loaded: LoadedModel, budget_s: float | None = None) -> Calibration | None:
    """Speak sentences in the checkpoint's own languages and score all heads. Return None if that would take longer than
    `budget_s` seconds."""
    spoken = _speak(loaded, sentences_of(loaded.policy.languages), budget_s)
    if spoken is None:
        return None
    scores = score_heads(spoken)
    return Calibration(choose_head(scores), scores, len(spoken))


def sentences_of(languages: AnySequence[str]) -> tuple[str, ...]:
    """Return sentences for a checkpoint's languages (BCP 47 tags), in turn from those known here, or English if none
    is known or given."""
    codes = [language.lower().replace("_", "-").split("-")[0] for language in languages]
    known = list(dict.fromkeys(code for code in codes if code in SENTENCES)) or ["en"]
    return tuple(SENTENCES[known[n % len(known)]][n] for n in range(NUM_SENTENCES))


@torch.inference_mode()
def _speak(loaded: LoadedModel, sentences: AnySequence[str], budget_s: float | None) -> list[SpokenSentence] | None:
    """Speak all sentences in one batch. Return those that ended by the stop head, or None if over the budget."""
    sources = [_lay_out(loaded, text, number) for number, text in enumerate(sentences)]
    limits = [_limit(loaded, text, source) for text, source in zip(sentences, sources, strict=True)]
    noises = [_noise(loaded, seed) for seed in range(len(sentences))]
    streams, num_blocks = streams_of(sources, noises, limits, loaded.policy.default_cfg)
    runner = OfflineRunner(loaded.model, num_blocks, flow_steps=loaded.policy.default_steps)
    readings: list[list[np.ndarray]] = [[] for _ in streams]
    times_s = [time.monotonic()]
    while running := [number for number, stream in enumerate(streams) if stream.goes_on]:
        for number, reading in zip(running, _step(runner, [streams[number] for number in running]), strict=True):
            readings[number].append(reading)
        times_s.append(time.monotonic())
        if budget_s is not None and _expected_s(times_s) > budget_s:
            return None
    spoken = zip(sentences, streams, readings, strict=True)
    return [_heard(loaded, text, stream, np.stack(made)) for text, stream, made in spoken if stream.has_stopped]


def _expected_s(times_s: AnySequence[float]) -> float:
    """Return the expected total time in seconds. The first step is not representative: it prefills and warms up."""
    so_far_s, num_more = times_s[-1] - times_s[0], max(0, _TYPICAL_PATCHES - len(times_s) + 1)
    steps = len(times_s) - 2
    return so_far_s + num_more * (times_s[-1] - times_s[1]) / steps if steps > 0 else so_far_s


def _lay_out(loaded: LoadedModel, text: str, number: int) -> Sequence:
    """Lay out a sentence in one of the checkpoint's voices, in rotation, or without a voice if it has none."""
    names: list[str | None] = [*loaded.policy.voices] or [None]
    voice = EngineVoiceCache(loaded).get(names[number % len(names)], "")
    return Continuity(loaded).lay_out(voice.conditioning, text)


def _limit(loaded: LoadedModel, text: str, source: Sequence) -> int:
    room = loaded.config.max_length - source.num_positions
    per_char = loaded.policy.max_patches_per_char
    num_chars = spoken_chars(text) if per_char is None else len(text)
    return length_guard(len(source.spoken_chars), num_chars, per_char or 1.0, room)


def _noise(loaded: LoadedModel, seed: int) -> Noise:
    key, config = torch.tensor([noise_key(seed)]), loaded.config
    return lambda index: patch_noise(key, torch.tensor([index]), config.patch_size, config.latent_dim)[0]


def _step(runner: OfflineRunner, streams: AnySequence[Stream]) -> np.ndarray:
    """Make one patch for each stream. Return [S, layers, heads, 3]: index, spread and mass."""
    device = runner.device
    spoken = TextSpans(
        torch.tensor(np.cumsum([stream.num_new for stream in streams]) - 1, device=device),
        torch.tensor([stream.input.spoken_start for stream in streams], device=device),
        torch.tensor([len(stream.input.spoken_chars) for stream in streams], device=device),
    )
    probe = AllHeadsProbe(spoken)
    runner.step(streams, probe)
    return torch.stack(probe.readings, dim=1).cpu().numpy()


def _heard(loaded: LoadedModel, text: str, stream: Stream, readings: np.ndarray) -> SpokenSentence:
    pcm = decode(loaded.model, torch.stack(stream.patches).float().cpu().numpy()).numpy()
    index, spread, mass = np.moveaxis(readings, -1, 0)
    return SpokenSentence(text, stream.input.spoken_chars, index, spread, mass, pcm, loaded.config.sample_rate)


# ---- storage of the result ------------------------------------------------------------------------------------


def with_text_head(loaded: LoadedModel) -> LoadedModel:
    """Return the checkpoint with its text head: from its serving.json, from the cache, or by a calibration now."""
    policy = loaded.policy
    if policy.text_head is not None:
        return loaded
    cache = cache_path(loaded.path)
    found = read_cache(cache)
    if found is None:
        try:
            result = calibrate(loaded, START_BUDGET_S)
        except Exception:  # a checkpoint whose calibration fails can still be served
            logger.exception("no text head was found, word times are estimated")
            return loaded
        if result is None:
            logger.warning("this device is too slow to find a text head at the start: see `realtime-tts calibrate`")
            return loaded
        found = (result.head,)
        write_cache(cache, result.head)
        logger.info("text head: %s", result.head or "none qualifies, word times are estimated")
    return dataclasses.replace(loaded, policy=dataclasses.replace(policy, text_head=found[0]))


def cache_path(checkpoint: Path) -> Path:
    """Return the cache file for a checkpoint. It changes with the checkpoint's files and with the method's version."""
    digest = hashlib.blake2b(str(_VERSION).encode(), digest_size=16)
    for file in sorted(checkpoint.iterdir()):
        if file.suffix in (".json", ".safetensors", ".bin", ".pth") and file.exists():  # a link may lead nowhere
            stat = file.stat()  # follows the links of the hub's cache
            digest.update(f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return cache_directory("text-heads") / f"{digest.hexdigest()}.json"


def read_cache(path: Path) -> tuple[TextHead | None] | None:
    """Return a cached result as (head,), where head None means that none qualifies; None if nothing is readable."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))["text_head"]
        return (None if raw is None else TextHead.from_map(raw),)
    except (OSError, ValueError, TypeError, KeyError, CheckpointError):
        return None


def write_cache(path: Path, head: TextHead | None) -> None:
    """Store a result. If it cannot be written, the next start calibrates again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"text_head": dataclasses.asdict(head) if head else None}).encode())


def write_serving(checkpoint: Path, head: TextHead) -> None:
    """Write a text head into a checkpoint's serving.json and keep its other fields.

    Raises:
        CheckpointError: the file cannot be read or written.
    """
    path = checkpoint / "serving.json"
    try:
        raw, mode = {}, 0o666
        if path.exists():
            raw, mode = json.loads(path.read_text(encoding="utf-8")), path.stat().st_mode & 0o777
        raw["text_head"] = dataclasses.asdict(head)
        write_whole(path, (json.dumps(raw, indent=1, ensure_ascii=False) + "\n").encode(), mode=mode)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"serving.json cannot be written: {error}") from error


def calibrate_and_keep(model: str, device: str, write: bool) -> dict[str, object]:
    """Calibrate a checkpoint and store the result; return the head, or None, and the scores of all heads, as for JSON.

    Args:
        write: also put the head into the checkpoint's serving.json.

    Raises:
        CheckpointError: there is no such checkpoint, or its serving.json cannot be written. ConfigError: the device.
    """
    if write and local_directory(model) is None:
        raise CheckpointError("--write needs a checkpoint directory")
    loaded = load_model(model, choose_device(device))
    result = calibrate(loaded)
    assert result is not None, "without a budget there is a result"
    if write and result.head is not None:
        write_serving(loaded.path, result.head)
    write_cache(cache_path(loaded.path), result.head)
    scores = [{**dataclasses.asdict(score), "qualifies": score.qualifies} for score in result.scores]
    head = dataclasses.asdict(result.head) if result.head else None
    return {"model": loaded.name, "text_head": head, "num_sentences": result.num_sentences, "scores": scores}
