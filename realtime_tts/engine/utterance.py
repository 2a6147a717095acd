"""A segment on its way through the engine: its message, what the scheduler knows of it, and what was made of it."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from realtime_tts.engine.continuity import Continuity
from realtime_tts.engine.core.request import Request
from realtime_tts.engine.text_track import TextTrack
from realtime_tts.engine.voices import Voice, VoiceStore
from realtime_tts.errors import InvalidRequest
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.sequence import Patches, Sequence, length_guard
from realtime_tts.workers import frames
from realtime_tts.workers.policy import MAX_CFG, MAX_INSTRUCTION_CHARS, MAX_STEPS, MIN_STEPS

_BRACKETS = str.maketrans("()（）", "    ")


@dataclasses.dataclass(slots=True)
class Utterance:
    """A segment between its `Generate` and its terminal message; the engine and the runner share it.

    message: as it came over the wire. request: what the scheduler knows. input: set when its turn in its context has
    come, for it continues from what was spoken before. patches: those made so far, [patch_size, latent_dim]. track: how
    far they have come in the text.
    """

    message: frames.Generate
    voice: Voice
    request: Request
    instructions: str
    cfg: float
    steps: int
    input: Sequence = dataclasses.field(init=False)
    patches: list[Patches] = dataclasses.field(default_factory=list)
    num_samples: int = 0
    track: TextTrack = dataclasses.field(default_factory=TextTrack)


def make_utterance(
    message: frames.Generate, loaded: LoadedModel, voices: VoiceStore, continuity: Continuity
) -> Utterance | None:
    """Check a message and bound its length; None if nothing in its text can be spoken.

    Raises:
        VoiceNotFound, InvalidRequest.
    """
    instructions = _instructions(message, loaded)
    if message.encoding not in ("s16le", "f32le"):
        raise InvalidRequest("encoding must be s16le or f32le", field="encoding")
    if message.steps is not None and not MIN_STEPS <= message.steps <= MAX_STEPS:
        raise InvalidRequest(f"steps must be {MIN_STEPS} to {MAX_STEPS}", field="steps")
    if message.cfg is not None and not 0.0 <= message.cfg <= MAX_CFG:
        raise InvalidRequest(f"cfg must be 0 to {MAX_CFG:g}", field="cfg")
    voice = voices.get(message.voice, message.tenant)
    num_tokens = len(loaded.tokenizer.encode(message.text))
    if num_tokens == 0:
        return None
    limit = message.max_patches if message.max_patches is not None else loaded.config.max_length
    request = Request(
        message.request_id,
        message.context_id,
        min_prefill=continuity.first_input(message.text, voice, instructions).num_positions,
        max_patches=length_guard(num_tokens, len(message.text), loaded.policy.max_patches_per_char, limit),
        priority=message.priority,
        paced=message.paced,
        tenant=message.tenant,
    )
    return Utterance(
        message,
        voice,
        request,
        instructions,
        cfg=loaded.policy.default_cfg if message.cfg is None else message.cfg,
        steps=loaded.policy.default_steps if message.steps is None else message.steps,
    )


def _instructions(message: frames.Generate, loaded: LoadedModel) -> str:
    """Voice design as the model reads it, "(an old man, slow)" before the text; "" without."""
    if not message.instructions or not message.instructions.strip():
        return ""
    if not loaded.supports_instructions:
        raise InvalidRequest("this model takes no instructions", field="instructions")
    if len(message.instructions) > MAX_INSTRUCTION_CHARS:
        raise InvalidRequest(f"instructions may have {MAX_INSTRUCTION_CHARS} characters", field="instructions")
    return "(" + " ".join(message.instructions.translate(_BRACKETS).split()) + ")"


def content_of(source: Sequence) -> list[bytes]:
    """What each position holds, for the prefix cache: a token's bytes, or a hash of a patch."""
    content = [b"t" + token.to_bytes(4, "big") for token in source.token_ids]
    for position, patch in zip(source.audio_index, source.features, strict=True):
        content[position] = b"a" + hashlib.blake2b(np.ascontiguousarray(patch).tobytes(), digest_size=16).digest()
    return content


def encode_pcm(pcm: np.ndarray[Any, np.dtype[np.float32]], encoding: str) -> bytes:
    """[samples] float32 in −1…1 → little-endian bytes."""
    if encoding == "f32le":
        return bytes(pcm.astype("<f4").tobytes())
    return bytes((np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes())
