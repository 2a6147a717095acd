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
MAX_RECORDING_S = 60.0  # of one that becomes a voice
_LENGTHS = struct.Struct(">II")


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages; `payload` is what follows the header."""

    type: ClassVar[str] = ""
    payload: bytes = dataclasses.field(default=b"", kw_only=True)


# ---- gateway → worker --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Generate(Message):
    """Speak one segment. Requests of one `context_id` run in order and keep one voice and prosody."""

    type: ClassVar[str] = "generate"
    request_id: str
    context_id: str
    text: str  # normalised
    adapter: str | None = None  # a loaded one, by name
    voice: str | None = None  # a named voice, an added voice id, or None: zero-shot
    seed: int = 0
    segment: int = 0  # counts within the context; each segment draws noise of its own from the seed
    instructions: str | None = None  # voice design: how to speak, in words
    cfg: float | None = None  # None: the model's default
    steps: int | None = None
    max_patches: int | None = None  # lowers the length guard, never raises it
    encoding: str = "s16le"  # or "f32le"
    tenant: str = ""
    priority: int = 0  # −8 … 8; smaller is more urgent: each step moves the deadline by a tenth of a second
    paced: bool = True  # stay a few seconds ahead of the context's playback; False: as fast as possible
    speed: float = 1.0  # that much faster than it is made it will be played: playback is told in the listener's time
    final: bool = True  # False: this is how the text begins, `Extend` brings more of it
    max_chars: int | None = None  # the most an open text will grow to; None: the policy's `max_segment_chars`


@dataclasses.dataclass(frozen=True, slots=True)
class Extend(Message):
    """More of an open text, as often as there is more; the worker decides when its speech needs it. A text that does
    not begin with what was known, or has grown too long, is `Failed`; unknown request ids are ignored."""

    type: ClassVar[str] = "extend"
    request_id: str
    text: str  # normalised; all of it, from its beginning
    final: bool  # nothing more will come


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel(Message):
    """End a request now. Answered by `Done(finish_reason="cancelled")`; unknown ids are ignored."""

    type: ClassVar[str] = "cancel"
    request_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class CloseContext(Message):
    """Forget what continuity needs of this context and cancel what still runs in it. Never answered."""

    type: ClassVar[str] = "close_context"
    context_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Playback(Message):
    """How much of a context its listener has heard, ms. Between two of these the worker extrapolates in real time,
    unless `paused`. Paused at a large negative position it makes nothing more until the next of these."""

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
    """Make latents of recordings: a reference, speech to continue from (the prompt), or both, one after the other in
    the payload, s16le mono at `sample_rate` Hz, each of `MAX_RECORDING_S` at most. The worker keeps nothing of it.
    Answered by `VoiceEncoded` or `VoiceFailed`, unless `RemoveVoice` comes first."""

    type: ClassVar[str] = "encode_voice"
    voice_id: str
    sample_rate: int
    num_reference_bytes: int = 0  # of the payload; the rest is the prompt


@dataclasses.dataclass(frozen=True, slots=True)
class AddVoice(Message):
    """Know a voice by its latents (payload as in `VoiceEncoded`) from the next frame on. Answered only if it cannot be,
    by `VoiceFailed`."""

    type: ClassVar[str] = "add_voice"
    voice_id: str
    num_reference_patches: int
    num_prompt_patches: int
    patch_size: int
    latent_dim: int
    prompt_text: str | None = None  # what is said in the prompt
    tenant: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class RemoveVoice(Message):
    """Forget a voice and what is cached of it, or the encoding of one. Never answered; unknown ids are ignored."""

    type: ClassVar[str] = "remove_voice"
    voice_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class AddAdapter(Message):
    """Load an adapter. Answered by `AdapterAdded`, from which on it can be spoken with, or `AdapterFailed`, unless
    `RemoveAdapter` comes first."""

    type: ClassVar[str] = "add_adapter"
    name: str
    directory: str  # on the worker's machine


@dataclasses.dataclass(frozen=True, slots=True)
class RemoveAdapter(Message):
    """Unload an adapter, or stop loading it; requests that speak with it are `Failed` with `adapter_not_found`. Never
    answered; unknown names are ignored. Without `everywhere` it goes when the last client who has added it removes it.
    """

    type: ClassVar[str] = "remove_adapter"
    name: str
    everywhere: bool = False  # whoever else has added it


@dataclasses.dataclass(frozen=True, slots=True)
class Drain(Message):
    """Accept no new context, finish what runs, then exit 0."""

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
    sample_rate: int  # of the PCM it sends
    patch_samples: int
    voices: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # id, description, language
    default_voice: str | None = None
    policy: dict[str, Any] = dataclasses.field(default_factory=dict)  # workers.policy.ServingPolicy as a map
    max_streams: int = 0
    text_timing: str = "estimated"  # "measured": Audio has text positions
    text_lag_ms: float = 0.0
    takes_instructions: bool = False  # voice design, in words
    fp8: str = "off"  # what has products of eight bits: off or flow
    guidance_from: float = 1.0  # times of the flow, from 1 (noise) to 0, between which there is guidance
    guidance_to: float = 0.0
    load_s: float = 0.0
    warmup_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Audio(Message):
    """Newly made samples of one request, delta, never cumulative. `sequence` counts from 0 without gaps.

    text_position: which character of `Generate.text` is being spoken `Ready.text_lag_ms` before these samples end, as a
    fraction: 2.5 is the middle of the third; straight lines between these points give all other times. It never goes
    back. text_mass: the share, 0…1, of the reading head's attention that is on the text; it falls once all of the text
    has been spoken. Both None if the worker cannot tell (`Ready.text_timing`).
    """

    type: ClassVar[str] = "audio"
    request_id: str
    sequence: int
    text_position: float | None = None
    text_mass: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Done(Message):
    """The request's one terminal message, unless it is `Failed`. finish_reason: stop | length | cancelled."""

    type: ClassVar[str] = "done"
    request_id: str
    finish_reason: str
    num_patches: int = 0
    num_samples: int = 0
    prefill_positions: int = 0
    cached_positions: int = 0
    queue_ms: float = 0.0
    first_audio_ms: float = 0.0
    extensions: int = 0  # times its input was made anew, because more of its text had come
    extended_positions: int = 0  # prefilled by those
    text_waits: int = 0  # times it had begun to speak and could not go on for want of text
    text_wait_ms: float = 0.0  # what its listener missed by that
    ends_cut: int = 0  # 1: its text was used up, and the stop head did not say so
    ends_continued: int = 0  # 1: the stop head would have had it end with words left
    babbles: int = 0  # 1: there was sound behind the text
    skips: int = 0  # stretches of the text that were left out
    repeats: int = 0  # and that were said again


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
    """A recording that cannot be encoded, or a voice that cannot be added."""

    type: ClassVar[str] = "voice_failed"
    voice_id: str
    code: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterAdded(Message):
    type: ClassVar[str] = "adapter_added"
    name: str
    rank: int
    digest: str  # of its content


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterFailed(Message):
    """An adapter that cannot be loaded."""

    type: ClassVar[str] = "adapter_failed"
    name: str
    code: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stats(Message):
    """Heartbeat, every 0.5 s and on request boundaries. A worker with `running` > 0 whose `num_steps` stands still for
    5 s is hung."""

    type: ClassVar[str] = "stats"
    num_steps: int = 0
    running: int = 0
    waiting: int = 0
    parked: int = 0
    free_blocks: int = 0
    num_blocks: int = 0
    cached_blocks: int = 0
    free_slots: int = 0
    real_time_streams: int = 0  # as many it can carry in real time, as far as it has learned; 0: it cannot tell
    contexts: int = 0
    awaiting_text: int = 0  # neither running nor parked: their text is not there yet
    step_ms: float = 0.0  # the mean of the latest steps
    busy_ms: float = 0.0  # all steps together
    gap_ms: float = 0.0  # all times together in which the device waited for the next step, and streams for the device
    extensions: int = 0  # as in `Done`, of all requests ever
    extended_positions: int = 0
    extension_ms: float = 0.0  # of `busy_ms`, as estimated by positions
    # How long a step takes, as far as it has learned: a part that is always there, for each stream, for each position.
    fixed_ms: float = 5.0
    stream_ms: float = 0.5
    position_ms: float = 0.02
    text_waits: int = 0
    ends_cut: int = 0
    ends_continued: int = 0
    babbles: int = 0
    skips: int = 0
    repeats: int = 0
    leaving: bool = False  # it ends once the contexts that it has are closed, and wants no new ones
    rss_bytes: int = 0
    kept_bytes: int = 0  # anonymous memory right after what was free had been given back; 0: nobody can tell


@dataclasses.dataclass(frozen=True, slots=True)
class Load(Message):
    """How many contexts of other clients have work here; told when it has changed, at most every few ms."""

    type: ClassVar[str] = "load"
    others: int


@dataclasses.dataclass(frozen=True, slots=True)
class Prefixes(Message):
    """News of which beginnings of inputs lie in the KV cache; all of them for a client that has just come.

    held: positions, by `prefix_keys`. lost: keys of which so much is not there any more.
    """

    type: ClassVar[str] = "prefixes"
    held: dict[bytes, int] = dataclasses.field(default_factory=dict)
    lost: list[bytes] = dataclasses.field(default_factory=list)


def prefix_keys(request: Generate) -> tuple[bytes, ...]:
    """Names of what the inputs of this request begins with and others' may, too: that of its voice, then that of its
    voice and manner. Empty where nothing is shared."""
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
    """One message as one frame."""
    header = {"type": message.type}
    for name in _HEADERS[type(message)]:
        header[name] = getattr(message, name)
    packed: bytes = _PACKER.pack(header)
    return _LENGTHS.pack(4 + len(packed) + len(message.payload), len(packed)) + packed + message.payload


def encode_audio(message: Audio, request_id: str) -> tuple[bytes, bytes]:
    """`encode` of what there is by far the most of, under this id, in two pieces that belong behind one another."""
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
    """Incremental: `feed` any split of the byte stream, get whole messages.

    Raises:
        WireError: a length out of bounds, a header that is no map, an unknown type or wrong fields. The connection
            cannot be used after it.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()  # of a frame that has not come whole
        self._num_wanted = 0  # so long it is at least
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
        """The messages at the front; what is left is kept."""
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
