"""A segment in the engine: its message, its state in the scheduler, and its patches so far."""

from __future__ import annotations

import collections
import copy
import dataclasses
import hashlib

import numpy as np

from realtime_tts.contract import frames
from realtime_tts.contract.speech_params import SPEECH_PARAMS
from realtime_tts.engine.adapters import AdapterStore, EngineAdapter
from realtime_tts.engine.continuity import Continuity
from realtime_tts.engine.core.request import Request
from realtime_tts.engine.core.text_supply import TextSupply
from realtime_tts.engine.end_detector import EndDetector
from realtime_tts.engine.openings import OpeningPlace
from realtime_tts.engine.proofreader import Finding
from realtime_tts.engine.runtime.noise import noise_key
from realtime_tts.engine.text_track import TextTrack
from realtime_tts.engine.voices import Conditioning, EngineVoice, EngineVoiceCache
from realtime_tts.errors import InvalidRequest
from realtime_tts.model.adapted import NO_ADAPTER
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.sequence import Array, Patches, Sequence, length_guard

_WIDE_CHARS = 3
_FADE_S = 0.03
_ONSET_WINDOW_S = 0.005
_LEAD_IN_S = 0.01
_BRACKETS = str.maketrans("()（）", "    ")


@dataclasses.dataclass(slots=True)
class EngineSegment:
    """A segment between its `Generate` and its terminal message. The engine and the runner share it.

    adapter: LoRA adapter for the segment; None: the model without changes.
    message: as received. text: all text known so far. read_text: part of it in the input. request: the scheduler's
    state. opening: place among the openings or drafts in memory; None: not taken from there and not kept.
    alone: voice and instructions, as surroundings of a context's first segment.
    conditioning, input: set when the segment's turn in its context has come, since it continues from the previous
    audio. The input is laid out again when it takes in more text. first_context: `Sequence.context` of the first input.
    patches: those made so far, [patch_size, latent_dim].
    track: the speech's place in the text; end_detector: decides the end by that place, and finds faults.
    unsent: the last patches, which are kept back to be cut if a fault is found in them. num_mends: times they were.
    """

    message: frames.Generate
    text: str
    voice: EngineVoice
    request: Request
    alone: Conditioning
    cfg: float
    flow_steps: int
    noise_key: int
    end_detector: EndDetector
    adapter: EngineAdapter | None = None
    conditioning: Conditioning | None = None
    read_text: str = ""
    input: Sequence = dataclasses.field(init=False)
    first_context: Patches = dataclasses.field(init=False)
    patches: list[Patches] = dataclasses.field(default_factory=list)
    num_samples: int = 0
    opening: OpeningPlace | None = None
    track: TextTrack = dataclasses.field(default_factory=TextTrack)
    unsent: collections.deque[frames.Audio] = dataclasses.field(default_factory=collections.deque)
    num_mends: int = 0

    @property
    def adapter_index(self) -> int:
        """Index of the adapter for the segment's rows; `NO_ADAPTER` without one."""
        return NO_ADAPTER if self.adapter is None else self.adapter.index

    @property
    def num_sent(self) -> int:
        """Number of patches that were sent."""
        return len(self.patches) - len(self.unsent)

    @property
    def unsent_s(self) -> float:
        """Duration for the listener of the patches kept back, in seconds."""
        return len(self.unsent) * self.end_detector.patch_s / self.message.speed

    def cut(self, finding: Finding, num_patches: int) -> EngineSegment:
        """Return the segment with its first `num_patches` only, of which all are sent that are, and with other noise
        for the next ones. It is another object: results of a step that was launched before belong to this one."""
        cut = copy.copy(self)
        for _ in range(len(self.patches) - num_patches):
            dropped = cut.unsent.pop()
            cut.num_samples -= len(dropped.payload) // (4 if self.message.encoding == "f32le" else 2)
        del cut.patches[num_patches:]
        cut.track.rewind(num_patches)
        cut.end_detector.mend(finding, num_patches)
        cut.noise_key = noise_key(self.noise_key, 1)
        cut.num_mends += 1
        return cut

    @property
    def begins_context(self) -> bool:
        """True if the next patch is the first that the listener hears."""
        return self.message.segment == 0 and not self.patches


@dataclasses.dataclass(frozen=True, slots=True)
class TextSize:
    """Size of a text. num_chars: as in `spoken_chars`. min_prefill, max_patches: as in `Request`."""

    num_tokens: int
    num_chars: int
    min_prefill: int
    max_patches: int


def text_size(
    message: frames.Generate, text: str, loaded: LoadedModel, conditioning: Conditioning, continuity: Continuity
) -> TextSize:
    """Return the size of a message's text as far as it is known."""
    num_tokens = len(loaded.tokenizer.encode(text))
    return TextSize(
        num_tokens,
        spoken_chars(text) if num_tokens else 0,
        continuity.num_positions(conditioning, text),
        _length_guard(message, loaded, num_tokens, len(text)),
    )


def spoken_chars(text: str) -> int:
    """Return the length in characters of average duration: a Chinese, Japanese or Korean one counts as three."""
    if text.isascii():
        return len(text)
    return sum(_WIDE_CHARS if character >= "\u2e80" else 1 for character in text)


def spoken_position(text: str, position: float) -> float:
    """Convert a place within the text, a fractional index, to characters of average duration."""
    if text.isascii():
        return position
    whole = int(position)
    return spoken_chars(text[:whole]) + (position - whole) * spoken_chars(text[whole : whole + 1])


def make_segment(
    message: frames.Generate,
    loaded: LoadedModel,
    voices: EngineVoiceCache,
    adapters: AdapterStore,
    continuity: Continuity,
    patch_s: float,
) -> EngineSegment | None:
    """Check a message and limit its length. Return None if nothing in its text can be spoken.

    Raises:
        VoiceNotFound, AdapterNotFound, InvalidRequest.
    """
    instructions = _instructions(message, loaded)
    if message.encoding not in ("s16le", "f32le"):
        raise InvalidRequest("encoding must be s16le or f32le", field="encoding")
    params = {"steps": message.steps, "cfg": message.cfg, "speed": message.speed, "instructions": message.instructions}
    for name, value in params.items():
        if value is not None:
            SPEECH_PARAMS[name].check(name, value)
    default_flow_steps = loaded.policy.default_steps
    flow_steps = default_flow_steps if message.steps is None else message.steps
    voice, adapter = voices.get(message.voice, message.tenant), adapters.get(message.adapter)
    alone = _with_instructions(voice.conditioning, instructions)
    size = text_size(message, message.text, loaded, alone, continuity)
    if size.num_tokens == 0 and message.final:
        return None
    request = Request(
        message.request_id,
        message.context_id,
        min_prefill=size.min_prefill,
        max_patches=size.max_patches,
        priority=message.priority,
        paced=message.paced,
        speed=message.speed,
        tenant=message.tenant,
        work=max(1.0, flow_steps / default_flow_steps),
        own_flow_steps=0 if flow_steps == default_flow_steps else flow_steps,
        max_positions=0 if message.final else _longest(message, loaded, size),
        is_draft=message.draft,
        supply=TextSupply(size.num_chars, message.final),
    )
    return EngineSegment(
        message,
        message.text,
        voice,
        request,
        alone,
        cfg=loaded.policy.default_cfg if message.cfg is None else message.cfg,
        flow_steps=flow_steps,
        noise_key=noise_key(message.seed, message.segment),
        end_detector=EndDetector(loaded.policy.text_head.reach if loaded.policy.text_head else 1.0, patch_s),
        adapter=adapter,
    )


def _longest(message: frames.Generate, loaded: LoadedModel, size: TextSize) -> int:
    """Return the positions of an open text at its maximum length, if a character of the rest is at most one token.

    A character without a token of its own is up to four, its bytes. Text with many of them outgrows this, and more is
    reserved then.
    """
    growth = max(0, loaded.policy.max_segment_chars - len(message.text))
    max_patches = _length_guard(message, loaded, size.num_tokens + growth, len(message.text) + growth)
    return size.min_prefill + growth + max_patches - 1


def _length_guard(message: frames.Generate, loaded: LoadedModel, num_tokens: int, num_chars: int) -> int:
    limit = message.max_patches if message.max_patches is not None else loaded.config.max_length
    return length_guard(num_tokens, num_chars, loaded.policy.max_patches_per_char, limit)


def _instructions(message: frames.Generate, loaded: LoadedModel) -> str:
    """Return the voice design as the model reads it, "(an old man, slow)" before the text; "" without."""
    if not message.instructions or not message.instructions.strip():
        return ""
    if not loaded.supports_instructions:
        raise InvalidRequest("this model takes no instructions", field="instructions")
    return "(" + " ".join(message.instructions.translate(_BRACKETS).split()) + ")"


def _with_instructions(voice: Conditioning, instructions: str) -> Conditioning:
    """Return the surroundings of a text with instructions. After a prompt the model speaks them aloud, so with
    instructions a voice is its reference alone, or its prompt's recording as a reference."""
    if not instructions or voice.prompt is None:
        return dataclasses.replace(voice, instructions=instructions)
    reference = voice.prompt if voice.reference is None else voice.reference
    return dataclasses.replace(voice, reference=reference, prompt=None, prompt_text="", instructions=instructions)


def content_of(source: Sequence, end: int) -> list[bytes]:
    """Return the content of each position before `end`, for the prefix cache: a token's bytes or a patch's hash."""
    content = [b"t" + token.to_bytes(4, "big") for token in source.token_ids[:end]]
    for position, patch in zip(source.audio_index, source.features, strict=True):
        if position >= end:
            break
        content[position] = b"a" + hashlib.blake2b(np.ascontiguousarray(patch).tobytes(), digest_size=16).digest()
    return content


def faded_out(pcm: Array, sample_rate: int) -> Array:
    """Return samples with a fast fade to silence from their beginning, without a click."""
    fade = np.zeros(pcm.size, np.float32)
    num_audible = min(pcm.size, round(_FADE_S * sample_rate))
    fade[:num_audible] = np.linspace(1.0, 0.0, num_audible, dtype=np.float32)
    return (pcm * fade).astype(pcm.dtype)


def from_onset(pcm: Array, sample_rate: int, onset_db: float) -> Array:
    """Return the first patch of a speech, cut to begin shortly before it is louder than `onset_db`, and faded in. At
    least half of it is kept, so that the listener has audio until the next patch."""
    window, lead_in = round(_ONSET_WINDOW_S * sample_rate), round(_LEAD_IN_S * sample_rate)
    full_scale = 1.0 if pcm.dtype.kind == "f" else 32768.0
    windows = pcm[: pcm.size // window * window].reshape(-1, window) / full_scale
    loud = np.flatnonzero(np.mean(np.square(windows), axis=1) > 10 ** (onset_db / 10))
    onset = int(loud[0]) * window if loud.size else pcm.size
    start = min(onset - lead_in, pcm.size // 2)
    if start <= 0:
        return pcm
    fade = np.ones(pcm.size - start, np.float32)
    fade[:lead_in] = np.linspace(0.0, 1.0, fade[:lead_in].size, dtype=np.float32)
    return (pcm[start:] * fade).astype(pcm.dtype)
