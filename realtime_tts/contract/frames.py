"""Frames between the gateway and an engine worker, over a unix socket. Pure: bytes in, messages out.

One frame: total length u32, header length u32 (both big-endian, total counts everything after itself), a msgpack
map (the header: `type` and the message's fields), then the payload (raw little-endian PCM, mono, or float32 latents;
may be empty).
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from typing import Any, ClassVar, TypeVar

import msgpack

from realtime_tts.errors import WireError

MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_RECORDING_S = 60.0  # longest recording for a voice
_LENGTHS = struct.Struct(">II")


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Base class of all messages; `payload` is the part after the header."""

    type: ClassVar[str] = ""
    payload: bytes = dataclasses.field(default=b"", kw_only=True)


# ---- gateway → worker --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Start(Message):
    """First message of the supervisor. The worker loads its engine and answers with `Ready` or `Failed`."""

    type: ClassVar[str] = "start"
    options: dict[str, Any]  # fields of contract.engine_options.EngineOptions
    clients_path: str  # unix socket at which the worker accepts clients


@dataclasses.dataclass(frozen=True, slots=True)
class Generate(Message):
    """Speak one segment. Requests of one `context_id` run in order and keep one voice and prosody."""

    type: ClassVar[str] = "generate"
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
    max_chars: int | None = None  # longest that an open text may become; None: the policy's `max_segment_chars`


@dataclasses.dataclass(frozen=True, slots=True)
class Extend(Message):
    """More of an open text; sent any number of times. The worker decides when to use it. The request fails if the new
    text does not begin with the known one, or is too long. Unknown request ids are ignored."""

    type: ClassVar[str] = "extend"
    request_id: str
    text: str  # normalised; the whole text so far
    final: bool  # True: the text is complete


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel(Message):
    """Request to end one request now. Answered by `Done(finish_reason="cancelled")`; unknown ids are ignored."""

    type: ClassVar[str] = "cancel"
    request_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class CloseContext(Message):
    """Request to cancel what runs in this context and to release what its continuity needs. Never answered."""

    type: ClassVar[str] = "close_context"
    context_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Playback(Message):
    """Playback position of a context, ms. Until the next one the worker extrapolates in real time, unless `paused`. A
    pause at a large negative position stops generation until the next one."""

    type: ClassVar[str] = "playback"
    context_id: str
    played_ms: float
    paused: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SetPriority(Message):
    type: ClassVar[str] = "set_priority"
    context_id: str
    priority: int


@dataclasses.dataclass(frozen=True, slots=True)
class EncodeVoice(Message):
    """Request to make latents of recordings: a reference, a prompt (speech to continue from), or both, in this order.
    The payload is s16le mono at `sample_rate` Hz, each recording at most `MAX_RECORDING_S` long. The worker keeps none
    of it. Answered by `VoiceEncoded` or `VoiceFailed`, unless `RemoveVoice` comes first."""

    type: ClassVar[str] = "encode_voice"
    voice_id: str
    sample_rate: int
    num_reference_bytes: int = 0  # the reference's part of the payload; the rest is the prompt


@dataclasses.dataclass(frozen=True, slots=True)
class AddVoice(Message):
    """Request to add a voice by its latents (payload as in `VoiceEncoded`), usable from the next frame on. Answered
    only on failure, by `VoiceFailed`."""

    type: ClassVar[str] = "add_voice"
    voice_id: str
    num_reference_patches: int
    num_prompt_patches: int
    patch_size: int
    latent_dim: int
    prompt_text: str | None = None  # text of the prompt
    tenant: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class RemoveVoice(Message):
    """Request to remove a voice and its cached data, or to stop its encoding. Never answered; unknown ids are
    ignored."""

    type: ClassVar[str] = "remove_voice"
    voice_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class AddAdapter(Message):
    """Request to load an adapter. Answered by `AdapterAdded`, after which it can be used, or by `AdapterFailed`, unless
    `RemoveAdapter` comes first."""

    type: ClassVar[str] = "add_adapter"
    name: str
    directory: str  # path on the worker's machine


@dataclasses.dataclass(frozen=True, slots=True)
class RemoveAdapter(Message):
    """Request to unload an adapter, or to stop loading it; requests that use it fail with `adapter_not_found`. Never
    answered; unknown names are ignored. Without `everywhere` it is unloaded when its last client removes it."""

    type: ClassVar[str] = "remove_adapter"
    name: str
    everywhere: bool = False  # also for other clients


@dataclasses.dataclass(frozen=True, slots=True)
class Drain(Message):
    """Request to accept no new context, finish what runs, then exit with status 0."""

    type: ClassVar[str] = "drain"


# ---- worker → gateway --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Ready(Message):
    """Sent once, when the model is loaded and warm."""

    type: ClassVar[str] = "ready"
    model: str
    device: str
    dtype: str
    backend: str
    sample_rate: int  # of the PCM sent by the worker, Hz
    patch_samples: int
    voices: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # id, description, language
    default_voice: str | None = None
    policy: dict[str, Any] = dataclasses.field(default_factory=dict)  # contract.policy.ServingPolicy as a map
    max_streams: int = 0
    text_timing: str = "estimated"  # "measured": Audio has text positions
    text_lag_ms: float = 0.0
    takes_instructions: bool = False  # voice design, in words
    fp8: str = "off"  # part of the model with 8-bit matrix products: off or flow
    guidance_from: float = 1.0  # flow time from which on guidance applies; flow time runs from 1 (noise) to 0
    guidance_to: float = 0.0
    load_s: float = 0.0
    warmup_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Audio(Message):
    """New samples of one request, never cumulative. `sequence` counts from 0 without gaps.

    text_position: the character of `Generate.text` spoken `Ready.text_lag_ms` before these samples end, as a fraction:
    2.5 is the middle of the third. It never decreases; interpolate linearly for other times. text_mass: the share,
    0…1, of the reading head's attention on the text; it falls once all of the text has been spoken. Both are None if
    the worker does not measure them (`Ready.text_timing`).
    """

    type: ClassVar[str] = "audio"
    request_id: str
    sequence: int
    text_position: float | None = None
    text_mass: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Done(Message):
    """Terminal message of a request that has not `Failed`. finish_reason: stop | length | cancelled."""

    type: ClassVar[str] = "done"
    request_id: str
    finish_reason: str
    num_patches: int = 0
    num_samples: int = 0
    prefill_positions: int = 0
    cached_positions: int = 0
    queue_ms: float = 0.0
    first_audio_ms: float = 0.0
    extensions: int = 0  # times its input was rebuilt because more of its text had come
    extended_positions: int = 0  # positions prefilled for these
    text_waits: int = 0  # times its speech had to stop because text was missing
    text_wait_ms: float = 0.0  # time without audio for its listener because of that
    ends_cut: int = 0  # 1: ended because its text was used up, without a signal of the stop head
    ends_continued: int = 0  # 1: continued although the stop head signalled an end with words left
    babbles: int = 0  # 1: sound continued after the end of the text
    skips: int = 0  # stretches of the text that were skipped
    repeats: int = 0  # stretches of the text that were repeated


@dataclasses.dataclass(frozen=True, slots=True)
class Failed(Message):
    type: ClassVar[str] = "failed"
    request_id: str
    code: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceEncoded(Message):
    """Latents of a voice. Payload: float32 little-endian [num_patches, patch_size, latent_dim], first the reference's
    patches, then the prompt's."""

    type: ClassVar[str] = "voice_encoded"
    voice_id: str
    num_reference_patches: int
    num_prompt_patches: int
    patch_size: int
    latent_dim: int


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceFailed(Message):
    """Answer for a recording that cannot be encoded, or a voice that cannot be added."""

    type: ClassVar[str] = "voice_failed"
    voice_id: str
    code: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterAdded(Message):
    type: ClassVar[str] = "adapter_added"
    name: str
    rank: int
    digest: str  # hash of its content


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterFailed(Message):
    """Answer for an adapter that cannot be loaded."""

    type: ClassVar[str] = "adapter_failed"
    name: str
    code: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stats(Message):
    """Heartbeat, sent every 0.5 s and on request boundaries. A worker with `running` > 0 whose `num_steps` does not
    change for 5 s counts as hung."""

    type: ClassVar[str] = "stats"
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
    extensions: int = 0  # as in `Done`, summed over all requests
    extended_positions: int = 0
    extension_ms: float = 0.0  # share of `busy_ms`, estimated from the positions
    # Measured duration of a step: a fixed part, a part for each stream, a part for each position.
    fixed_ms: float = 5.0
    stream_ms: float = 0.5
    position_ms: float = 0.02
    text_waits: int = 0
    ends_cut: int = 0
    ends_continued: int = 0
    babbles: int = 0
    skips: int = 0
    repeats: int = 0
    num_clients: int = 0  # gateways that are connected to it
    leaving: bool = False  # it ends once its contexts are closed, and takes no new ones
    rss_bytes: int = 0
    kept_bytes: int = 0  # anonymous memory right after free memory was returned; 0: unknown


@dataclasses.dataclass(frozen=True, slots=True)
class Load(Message):
    """Number of contexts of other clients that have work here; sent when it has changed, at most every few ms."""

    type: ClassVar[str] = "load"
    others: int


@dataclasses.dataclass(frozen=True, slots=True)
class Prefixes(Message):
    """Changes of the input prefixes in the KV cache; all of them for a new client.

    held: number of cached positions by `prefix_keys`. lost: keys whose cached positions are gone.
    """

    type: ClassVar[str] = "prefixes"
    held: dict[bytes, int] = dataclasses.field(default_factory=dict)
    lost: list[bytes] = dataclasses.field(default_factory=list)


def prefix_keys(request: Generate) -> tuple[bytes, ...]:
    """Return keys of this request's input prefixes that other requests may share: of its voice, then of its voice and
    instructions. Empty if none is shared."""
    shared = (request.tenant, request.adapter or "", request.voice or "")
    keys: tuple[tuple[str, ...], ...] = (shared,) if request.voice else ()
    if request.instructions:
        keys += ((*shared, request.instructions),)
    return tuple(hashlib.blake2b(msgpack.packb(key), digest_size=8).digest() for key in keys)


M = TypeVar("M", bound=Message)
_TYPES: dict[str, type[Message]] = {cls.type: cls for cls in Message.__subclasses__()}
_HEADERS = {
    cls: tuple(field.name for field in dataclasses.fields(cls) if field.name != "payload") for cls in _TYPES.values()
}
_PACKER = msgpack.Packer()


def encode(message: Message) -> bytes:
    """Return one message as one frame."""
    header = {"type": message.type}
    for name in _HEADERS[type(message)]:
        header[name] = getattr(message, name)
    packed: bytes = _PACKER.pack(header)
    return _LENGTHS.pack(4 + len(packed) + len(message.payload), len(packed)) + packed + message.payload


def encode_audio(message: Audio, request_id: str) -> tuple[bytes, bytes]:
    """Encode a message, as `encode` does, under this id, in two pieces to be sent one after the other. Separate because
    audio is by far the most frequent message."""
    packed = _PACKER.pack(
        {
            "type": Audio.type,
            "request_id": request_id,
            "sequence": message.sequence,
            "text_position": message.text_position,
            "text_mass": message.text_mass,
        }
    )
    return _LENGTHS.pack(4 + len(packed) + len(message.payload), len(packed)) + packed, message.payload


class Decoder:
    """Incremental decoder: `feed` any split of the byte stream, get whole messages.

    Raises:
        WireError: a length out of bounds, a header that is not a map, an unknown type or wrong fields. The connection
            cannot be used afterwards.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()  # beginning of an incomplete frame
        self._num_wanted = 0  # bytes needed at least for the next frame
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> list[Message]:
        if not self._rest:
            return self._take(data)
        self._rest += data
        if len(self._rest) < self._num_wanted:
            return []
        whole, self._rest = bytes(self._rest), bytearray()
        return self._take(whole)

    def _take(self, data: bytes) -> list[Message]:
        """Return the complete messages at the front of the data; keep the rest."""
        messages: list[Message] = []
        start = 0
        while len(data) - start >= _LENGTHS.size:
            total, header_length = _LENGTHS.unpack_from(data, start)
            if total > self._max_frame_bytes or header_length + 4 > total:
                raise WireError(f"frame of {total} bytes with a header of {header_length} bytes")
            end = start + 4 + total
            if len(data) < end:
                break
            header_end = start + _LENGTHS.size + header_length
            messages.append(_message(data[start + _LENGTHS.size : header_end], data[header_end:end]))
            start = end
        self._rest = bytearray(data[start:])
        self._num_wanted = end - start if len(self._rest) >= _LENGTHS.size else _LENGTHS.size
        return messages


def _message(header: bytes, payload: bytes) -> Message:
    try:
        fields = msgpack.unpackb(header)
        cls = _TYPES[fields.pop("type")]
        return cls(payload=payload, **fields)
    except Exception as error:
        raise WireError(f"frame cannot be understood: {type(error).__name__}") from error
