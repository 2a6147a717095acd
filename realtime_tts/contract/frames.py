"""Frames between the gateway and an engine worker, over a unix socket. Pure: bytes in, messages out.

One frame is one msgpack map: `type` and the message's fields. `payload` has raw little-endian PCM, mono, or float32
latents.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import ClassVar, TypeVar, dataclass_transform

import msgpack

from realtime_tts.errors import WireError

MAX_FRAME_BYTES = 64 * 1024 * 1024
_RENEW_BYTES = 1024 * 1024
MAX_RECORDING_S = 60.0  # longest recording for a voice


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Base class of all messages. type: the class's name in snake case."""

    type: ClassVar[str] = ""
    payload: bytes = dataclasses.field(default=b"", kw_only=True)


M = TypeVar("M", bound=Message)
_TYPES: dict[str, type[Message]] = {}
_PACKER = msgpack.Packer()
_FIELDS: dict[type[Message], tuple[str, ...]] = {}
_PREFIXED = {"request_id", "context_id"}


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def _message(cls: type[M]) -> type[M]:
    """Define a message: a frozen dataclass with a `type` of its own."""
    cls = dataclasses.dataclass(frozen=True, slots=True)(cls)
    cls.type = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    _TYPES[cls.type], _FIELDS[cls] = cls, tuple(field.name for field in dataclasses.fields(cls))
    return cls


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextCounts(Message):
    """Counts of what happened to texts: of one request in `Done`, of all so far in `Stats`."""

    extensions: int = 0  # times an input was rebuilt because more of its text had come
    extended_positions: int = 0  # positions prefilled for these
    text_waits: int = 0  # times speech had to stop because text was missing
    ends_cut: int = 0  # segments that ended because their text was used up, without a signal of the stop head
    ends_continued: int = 0  # segments that continued although the stop head signalled an end with words left
    babbles: int = 0  # segments whose sound continued after the end of the text
    skips: int = 0  # stretches of text that were skipped
    repeats: int = 0  # stretches of text that were repeated
    stuck: int = 0  # times that sound went on without the text
    skips_mended: int = 0  # the same, found in time: the speech was cut before it was sent, and said again
    repeats_mended: int = 0
    stuck_mended: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceLatents(Message):
    """Latents of a voice. Payload: float32 little-endian [num_patches, patch_size, latent_dim], first the reference's
    patches, then the prompt's."""

    voice_id: str
    num_reference_patches: int
    num_prompt_patches: int
    patch_size: int
    latent_dim: int


# ---- gateway → worker --------------------------------------------------------------------------------------------


@_message
class Generate(Message):
    """Speak one segment. Requests of one `context_id` run in order and keep one voice and prosody."""

    request_id: str
    context_id: str
    text: str  # normalised
    adapter: str | None = None  # name of a loaded adapter
    voice: str | None = None  # a built-in voice's name, an added voice's id, or None: zero-shot
    seed: int = 0
    segment: int = 0  # number within the context; each segment has its own noise from the seed
    instructions: str | None = None  # voice design: a description of the voice
    cfg: float | None = None  # None: the model's default
    steps: int | None = None
    max_patches: int | None = None  # lowers the length guard, never raises it
    encoding: str = "s16le"  # or "f32le"
    tenant: str = ""
    priority: int = 0  # −8 … 8; smaller is more urgent: each step moves the deadline by a tenth of a second
    paced: bool = True  # stay a few seconds ahead of the context's playback; False: as fast as possible
    speed: float = 1.0  # tempo factor of later playback; playback positions are in the listener's time
    final: bool = True  # False: the text is a beginning, and `Extend` brings more of it
    openings: bool = False  # a context's first request may be sent from memory, and is kept there
    draft: bool = (
        False  # makes what the context may begin with, in idle time; ended by its first request; never answered
    )


@_message
class Extend(Message):
    """More of an open text; sent any number of times. The worker decides when to use it. The request fails if the new
    text does not begin with the known one, or is too long. Unknown request ids are ignored."""

    request_id: str
    text: str  # normalised; the whole text so far
    final: bool  # True: the text is complete


@_message
class Opening(Message):
    """Request to speak a text ahead and to keep it for all tenants' requests with `Generate.openings`. Never answered.

    texts: what a live context sends one after the other; the last one is whole.
    """

    texts: list[str]
    voice: str | None
    seed: int
    cfg: float
    steps: int


@_message
class Cancel(Message):
    """Request to end one request now. Answered by `Done(finish_reason="cancelled")`; unknown ids are ignored."""

    request_id: str


@_message
class CloseContext(Message):
    """Request to cancel what runs in this context and to release what its continuity needs. Never answered."""

    context_id: str


@_message
class Playback(Message):
    """Playback position of a context, ms. Until the next one the worker extrapolates in real time, unless `paused`. A
    pause at a large negative position stops generation until the next one."""

    context_id: str
    played_ms: float
    paused: bool = False


@_message
class SetPriority(Message):
    """Change of a context's priority; as in `Generate`."""

    context_id: str
    priority: int


@_message
class EncodeVoice(Message):
    """Request to make latents of recordings: a reference, a prompt (speech to continue from), or both, in this order.
    The payload is s16le mono at `sample_rate` Hz, each recording at most `MAX_RECORDING_S` long. The worker keeps none
    of it. Answered by `VoiceEncoded` or `VoiceFailed`, unless `RemoveVoice` comes first."""

    voice_id: str
    sample_rate: int
    num_reference_bytes: int = 0  # the reference's part of the payload; the rest is the prompt


@_message
class AddVoice(VoiceLatents):
    """Request to add a voice, usable from the next frame on. Answered only on failure, by `VoiceFailed`."""

    prompt_text: str | None = None  # text of the prompt
    tenant: str = ""


@_message
class RemoveVoice(Message):
    """Request to remove a voice and its cached data, or to stop its encoding. Never answered; unknown ids are
    ignored."""

    voice_id: str


@_message
class AddAdapter(Message):
    """Request to load an adapter. Answered by `AdapterAdded`, after which it can be used, or by `AdapterFailed`, unless
    `RemoveAdapter` comes first."""

    name: str
    directory: str  # path on the worker's machine


@_message
class RemoveAdapter(Message):
    """Request to unload an adapter, or to stop loading it; requests that use it fail with `adapter_not_found`. Never
    answered; unknown names are ignored. Without `everywhere` it is unloaded when its last client removes it."""

    name: str
    everywhere: bool = False  # also for other clients


# ---- worker → gateway --------------------------------------------------------------------------------------------


@_message
class Ready(Message):
    """Sent once, when the model is loaded and warm."""

    model: str
    device: str
    dtype: str
    backend: str
    sample_rate: int  # of the PCM sent by the worker, Hz
    patch_samples: int
    policy: dict[str, object] = dataclasses.field(default_factory=dict)  # contract.policy.ServingPolicy as a map
    max_streams: int = 0
    takes_instructions: bool = False  # voice design, in words
    fp8: str = "off"  # part of the model with 8-bit matrix products: off or flow
    load_s: float = 0.0  # time of loading and warming up
    revision: str = ""  # commit of a model on the hub


@_message
class Audio(Message):
    """New samples of one request, never cumulative. `sequence` counts from 0 without gaps.

    text_position: the character of `Generate.text` spoken `TextHead.lag_ms` before these samples end, as a fraction:
    2.5 is the middle of the third. It never decreases; interpolate linearly for other times. None if the worker does
    not measure it: the model's policy has no text head.
    """

    request_id: str
    sequence: int
    text_position: float | None = None


@_message
class Done(TextCounts):
    """Terminal message of a request that has not `Failed`. finish_reason: stop | length | cancelled."""

    request_id: str
    finish_reason: str
    num_patches: int = 0
    num_remembered: int = 0  # patches sent from memory, the first ones
    num_samples: int = 0
    prefill_positions: int = 0
    cached_positions: int = 0
    text_wait_ms: float = 0.0  # time without audio for its listener because text was missing


@_message
class Failed(Message):
    request_id: str
    code: str
    message: str


@_message
class VoiceEncoded(VoiceLatents):
    """Answer to `EncodeVoice`."""


@_message
class VoiceFailed(Message):
    """Answer for a recording that cannot be encoded, or a voice that cannot be added."""

    voice_id: str
    code: str
    message: str


@_message
class AdapterAdded(Message):
    """Answer to `AddAdapter`: the adapter can be used."""

    name: str
    rank: int
    digest: str  # hash of its content


@_message
class AdapterFailed(Message):
    """Answer for an adapter that cannot be loaded."""

    name: str
    code: str
    message: str


@_message
class Stats(TextCounts):
    """Heartbeat, sent every 0.5 s and on request boundaries; before `Ready` only while the model is downloaded. A
    worker with `running` > 0 whose `num_steps` does not change for 5 s counts as hung."""

    num_steps: int = 0
    running: int = 0
    waiting: int = 0
    parked: int = 0
    free_blocks: int = 0
    num_blocks: int = 0
    cached_blocks: int = 0
    free_slots: int = 0
    real_time_streams: int = 0  # number it can carry in real time, as measured so far; 0: unknown
    contexts: int = 0
    awaiting_text: int = 0  # neither running nor parked: they wait for text
    step_ms: float = 0.0  # mean duration of the latest steps
    busy_ms: float = 0.0  # total duration of all steps
    gap_ms: float = 0.0  # total time in which the device was idle while streams waited for it
    # Measured duration of a step: a fixed part, a part for each stream, a part for each position.
    fixed_ms: float = 5.0
    stream_ms: float = 0.5
    position_ms: float = 0.02
    opening_hits: int = 0  # contexts that began with speech from memory
    draft_hits: int = 0  # contexts that began with their draft
    opening_bytes: int = 0  # memory of openings and drafts
    num_clients: int = 0  # gateways that are connected to it
    leaving: bool = False  # it ends once its contexts are closed, and takes no new ones
    rss_bytes: int = 0
    kept_bytes: int = 0  # anonymous memory right after free memory was returned; 0: unknown


@_message
class Load(Message):
    """Number of contexts of other clients that have work here; sent when it has changed, at most every few ms."""

    others: int


@_message
class Prefixes(Message):
    """Changes of the input prefixes in the KV cache; all of them for a new client.

    cached: number of positions by `prefix_keys`. lost: keys whose cached positions are gone.
    """

    cached: dict[bytes, int] = dataclasses.field(default_factory=dict)
    lost: list[bytes] = dataclasses.field(default_factory=list)


def prefix_keys(request: Generate) -> tuple[bytes, ...]:
    """Return keys of this request's input prefixes that other requests may share: of its voice, then of its voice and
    instructions. Empty if none is shared."""
    shared = (request.tenant, request.adapter or "", request.voice or "")
    keys: tuple[tuple[str, ...], ...] = (shared,) if request.voice else ()
    if request.instructions:
        keys += ((*shared, request.instructions),)
    return tuple(hashlib.blake2b(msgpack.packb(key), digest_size=8).digest() for key in keys)


def encode(message: Message, **other: str) -> bytes:
    """Return one message as one frame, with `other` values of these fields."""
    fields = {"type": message.type}
    for name in _FIELDS[type(message)]:
        fields[name] = getattr(message, name)
    fields.update(other)
    packed: bytes = _PACKER.pack(fields)
    return packed


class Decoder:
    """Incremental decoder: `feed` any split of the byte stream, get whole messages.

    Args:
        prefix: put in front of each message's `request_id` and `context_id`.

    Raises:
        WireError: a message that is too large or no map, an unknown type or wrong fields. The connection cannot be used
            afterwards.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._renew()

    def _renew(self) -> None:
        self._unpacker, self._num_fed = msgpack.Unpacker(max_buffer_size=MAX_FRAME_BYTES), 0

    def feed(self, data: bytes) -> list[Message]:
        messages: list[Message] = []
        self._num_fed += len(data)
        num_read = 0
        try:
            self._unpacker.feed(data)
            for fields in self._unpacker:
                if self._prefix:
                    for name in _PREFIXED & fields.keys():
                        fields[name] = self._prefix + fields[name]
                messages.append(_TYPES[fields.pop("type")](**fields))
                num_read = self._unpacker.tell()
        except Exception as error:
            raise WireError(f"frame cannot be understood: {type(error).__name__}") from error
        if num_read == self._num_fed > _RENEW_BYTES:
            self._renew()  # its buffer would stay as large as the largest frame so far
        return messages
