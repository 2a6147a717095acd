"""Voices of a worker: those of the checkpoint, and those that were added as latents.

Encoding a recording is slow and runs off the step loop, on one worker. Adding a voice is fast and runs in the order of
the frames, on every worker. A request that follows its voice on the socket therefore always finds it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from realtime_tts.audio.samples import resampled
from realtime_tts.contract import frames
from realtime_tts.errors import AudioDecodeError, InvalidRequest, VoiceExists, VoiceNotFound
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.config import ModelConfig
from realtime_tts.model.sequence import Patches

MIN_RECORDING_S = 0.1
_MAX_HASHES = 4096  # kept per voice for its removal


@dataclasses.dataclass(frozen=True, slots=True)
class Conditioning:
    """Parts of an input conditioning its text, independent of the text's length.

    prefix_ids: trusted tokens, such as a speaker token. reference: patches of an isolated reference. prompt,
    prompt_text: speech that is continued from. instructions: read as the text's beginning.
    """

    prefix_ids: tuple[int, ...] = ()
    reference: Patches | None = None
    prompt: Patches | None = None
    prompt_text: str = ""
    instructions: str = ""


@dataclasses.dataclass(slots=True)
class EngineVoice:
    """A voice: the conditioning that makes the model speak in it.

    hashes: KV blocks with content of the voice, for its removal.
    is_removed: running requests may end with it, but nothing of them stays in the prefix cache.
    """

    voice_id: str
    tenant: str = ""
    conditioning: Conditioning = Conditioning()
    is_added: bool = False
    is_removed: bool = False
    hashes: dict[bytes, None] = dataclasses.field(default_factory=dict)

    def note_hashes(self, hashes: list[bytes]) -> None:
        """Record an added voice's blocks in the prefix cache. Only the last used are kept: the cache evicts others."""
        if self.is_added:
            for used in hashes:
                self.hashes.pop(used, None)
                self.hashes[used] = None
            for old in list(self.hashes)[: max(0, len(self.hashes) - _MAX_HASHES)]:
                del self.hashes[old]


ZERO_SHOT = EngineVoice("")


class EngineVoiceCache:
    """Named voices. Not thread-safe: belongs to the engine's thread; only `encode_voice` runs elsewhere."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._config = loaded.config
        self._voices = {
            name: EngineVoice(name, "", Conditioning(tuple(loaded.tokenizer.encode_trusted(policy.text_prefix))))
            for name, policy in loaded.policy.voices.items()
        }

    def get(self, voice_id: str | None, tenant: str) -> EngineVoice:
        """Return a voice; for None a random one (zero-shot). Raises VoiceNotFound: unknown, or of another tenant."""
        if voice_id is None:
            return ZERO_SHOT
        voice = self._voices.get(voice_id)
        if voice is None or (voice.is_added and voice.tenant != tenant):
            raise VoiceNotFound(f"there is no voice {voice_id!r}", field="voice")
        return voice

    def add(self, message: frames.AddVoice) -> None:
        """Add a voice from its latents.

        Raises:
            VoiceExists: the id is taken, by any tenant. InvalidRequest: the latents do not fit this model.
        """
        if message.voice_id in self._voices:
            raise VoiceExists(f"the voice id {message.voice_id!r} is taken", field="voice_id")
        self._voices[message.voice_id] = voice_from_latents(self._config, message)

    def remove(self, voice_id: str) -> EngineVoice | None:
        """Remove an added voice and return it; None if there is no added voice with this id."""
        voice = self._voices.get(voice_id)
        if voice is None or not voice.is_added:
            return None
        voice.is_removed = True
        return self._voices.pop(voice_id)


def voice_from_latents(config: ModelConfig, message: frames.AddVoice) -> EngineVoice:
    """Return a voice from its message.

    Raises:
        InvalidRequest: latents of a wrong shape or length, not finite, or of no use to this model.
    """
    num_reference, num_prompt = message.num_reference_patches, message.num_prompt_patches
    shape, limit = (config.patch_size, config.latent_dim), _max_patches(config)
    num_bytes = 4 * (num_reference + num_prompt) * config.patch_size * config.latent_dim
    rules = {
        f"patches must be shaped {list(shape)}": (message.patch_size, message.latent_dim) == shape,
        f"a recording has 1 to {limit} patches": max(num_reference, num_prompt) in range(1, limit + 1)
        and min(num_reference, num_prompt) >= 0,
        "the payload must be the patches that the header counts": len(message.payload) == num_bytes,
        "this model does not support an isolated reference": num_reference == 0 or config.supports_reference,
        "a prompt needs both its latents and its text": (num_prompt > 0) == (message.prompt_text is not None),
    }
    for rule, holds in rules.items():
        if not holds:
            raise InvalidRequest(rule, field="voice")
    patches: Patches = np.frombuffer(message.payload, "<f4").astype(np.float32).reshape(-1, *shape)
    if not np.isfinite(patches).all():
        raise InvalidRequest("latents must be finite", field="voice")
    conditioning = Conditioning(
        reference=patches[:num_reference] if num_reference else None,
        prompt=patches[num_reference:] if num_prompt else None,
        prompt_text=message.prompt_text or "",
    )
    return EngineVoice(message.voice_id, message.tenant, conditioning, is_added=True)


@torch.inference_mode()
def encode_voice(loaded: LoadedModel, message: frames.EncodeVoice) -> frames.VoiceEncoded:
    """Return recordings as latents. Slow (it runs the VAE's encoder); call it off the step loop.

    Raises:
        AudioDecodeError: empty, too short or too long. InvalidRequest: the model cannot use it as requested.
    """
    config, num_bytes = loaded.config, message.num_reference_bytes
    reference_pcm, prompt_pcm = message.payload[:num_bytes], message.payload[num_bytes:]
    if not message.payload:
        raise AudioDecodeError("a voice needs a recording")
    if not prompt_pcm and not config.supports_reference:
        raise InvalidRequest("this model needs the text of the recording, to continue from it", field="prompt_text")
    reference = prompt = torch.zeros(0, config.patch_size, config.latent_dim)
    if reference_pcm and config.supports_reference:
        samples = _samples(reference_pcm, message.sample_rate, config.encode_rate_hz)
        reference = loaded.model.encode_recording(samples)
    if prompt_pcm:
        samples = _samples(prompt_pcm, message.sample_rate, config.encode_rate_hz)
        prompt = loaded.model.encode_recording(samples, pad="left")
    return frames.VoiceEncoded(
        message.voice_id,
        len(reference),
        len(prompt),
        config.patch_size,
        config.latent_dim,
        payload=torch.cat((reference, prompt)).numpy().astype("<f4").tobytes(),
    )


def _max_patches(config: ModelConfig) -> int:
    """Return the patches of the longest recording; resampling may round up."""
    return int(frames.MAX_RECORDING_S * config.encode_rate_hz) // config.patch_encode_samples + 1


def _samples(pcm_s16le: bytes, from_hz: int, to_hz: int) -> torch.Tensor:
    if not 8_000 <= from_hz <= 192_000 or len(pcm_s16le) % 2:
        raise AudioDecodeError("a recording must be s16le at 8 to 192 kHz", field="sample_rate")
    pcm = np.frombuffer(pcm_s16le, dtype="<i2").astype(np.float32) / 32768.0
    if not MIN_RECORDING_S <= pcm.size / from_hz <= frames.MAX_RECORDING_S:
        raise AudioDecodeError(f"a recording must last {MIN_RECORDING_S} to {frames.MAX_RECORDING_S:.0f} s")
    return torch.from_numpy(resampled(pcm, from_hz, to_hz))
