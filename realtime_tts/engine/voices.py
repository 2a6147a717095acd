"""Voices a worker knows: those of the checkpoint, and recordings that were added."""

from __future__ import annotations

import dataclasses

import numpy as np
import soxr
import torch

from realtime_tts.errors import AudioDecodeError, InvalidRequest, VoiceNotFound
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.sequence import Patches
from realtime_tts.workers import frames

MAX_RECORDING_S = 60.0
MIN_RECORDING_S = 0.1
_MAX_HASHES = 4096  # remembered per voice for its removal


@dataclasses.dataclass(slots=True)
class Voice:
    """What goes before a text so that it is spoken in this voice.

    prefix_ids: trusted tokens, such as a speaker token. reference: patches of an isolated reference. prompt,
    prompt_text: speech that is continued from. hashes: KV blocks that hold something of it, for its removal.
    """

    voice_id: str
    tenant: str = ""
    prefix_ids: tuple[int, ...] = ()
    reference: Patches | None = None
    prompt: Patches | None = None
    prompt_text: str = ""
    is_added: bool = False
    hashes: dict[bytes, None] = dataclasses.field(default_factory=dict)

    def note_hashes(self, hashes: list[bytes]) -> None:
        """Remember what an added voice leaves in the prefix cache; the oldest are gone from there, too."""
        if self.is_added:
            self.hashes.update(dict.fromkeys(hashes))
            for old in list(self.hashes)[: max(0, len(self.hashes) - _MAX_HASHES)]:
                del self.hashes[old]


ZERO_SHOT = Voice("")


class VoiceStore:
    """Named voices. Not thread-safe: belongs to the engine's thread; `encode_voice` is what runs elsewhere."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._voices = {
            name: Voice(name, prefix_ids=tuple(loaded.tokenizer.encode_trusted(policy.text_prefix)))
            for name, policy in loaded.policy.voices.items()
        }

    def get(self, voice_id: str | None, tenant: str) -> Voice:
        """None is a voice at random. Raises VoiceNotFound: unknown, or another tenant's."""
        if voice_id is None:
            return ZERO_SHOT
        voice = self._voices.get(voice_id)
        if voice is None or voice.tenant not in ("", tenant):
            raise VoiceNotFound(f"there is no voice {voice_id!r}", field="voice")
        return voice

    def add(self, voice: Voice) -> None:
        """Raises InvalidRequest: the id is taken by a voice of the checkpoint."""
        taken = self._voices.get(voice.voice_id)
        if taken is not None and not taken.is_added:
            raise InvalidRequest(f"the voice id {voice.voice_id!r} is taken", field="voice_id")
        self._voices[voice.voice_id] = voice

    def remove(self, voice_id: str) -> Voice | None:
        """Forget an added voice; None if there is none of this id."""
        voice = self._voices.get(voice_id)
        return self._voices.pop(voice_id) if voice is not None and voice.is_added else None


@torch.inference_mode()
def encode_voice(loaded: LoadedModel, message: frames.AddVoice) -> Voice:
    """A recording as patches. Slow (it runs the VAE's encoder); call it off the step loop.

    Raises:
        AudioDecodeError: empty, too short or too long. InvalidRequest: the model cannot use it as it is asked to.
    """
    config = loaded.config
    if message.prompt_text is None and not (message.as_reference and config.supports_reference):
        raise InvalidRequest("this model needs the text of the recording, to continue from it", field="prompt_text")
    reference_pcm = message.payload[: message.prompt_offset] if message.prompt_offset else message.payload
    prompt_pcm = message.payload[message.prompt_offset :]
    voice = Voice(message.voice_id, message.tenant, is_added=True)
    if message.as_reference and config.supports_reference:
        samples = _samples(reference_pcm, message.sample_rate, config.encode_rate_hz)
        voice.reference = loaded.model.encode_recording(samples).numpy()
    if message.prompt_text is not None:
        samples = _samples(prompt_pcm, message.sample_rate, config.encode_rate_hz)
        voice.prompt = loaded.model.encode_recording(samples, pad="left").numpy()
        voice.prompt_text = message.prompt_text
    return voice


def _samples(pcm_s16le: bytes, from_hz: int, to_hz: int) -> torch.Tensor:
    if not 8_000 <= from_hz <= 192_000 or len(pcm_s16le) % 2:
        raise AudioDecodeError("a recording must be s16le at 8 to 192 kHz", field="sample_rate")
    pcm = np.frombuffer(pcm_s16le, dtype="<i2").astype(np.float32) / 32768.0
    if not MIN_RECORDING_S <= pcm.size / from_hz <= MAX_RECORDING_S:
        raise AudioDecodeError(f"a recording must last {MIN_RECORDING_S} to {MAX_RECORDING_S:.0f} s")
    return torch.from_numpy(soxr.resample(pcm, from_hz, to_hz))
