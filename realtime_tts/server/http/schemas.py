"""Schemas of the HTTP bodies, from which clients can be generated. Responses are validated against them.

A field that a schema does not name is an error and is not dropped, so that no response has undocumented fields.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from realtime_tts.server.admission.tokens import MAX_LIMIT


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Health(_Body):
    status: Literal["ok"]
    version: str


class Device(_Body):
    worker: str = Field(description="name of its engine worker")
    device: str = Field(description="as the worker calls it; empty until one has been ready")
    state: Literal["starting", "serving", "leaving", "restarting", "recovering", "failed"] = Field(
        description="serving; starting, its first worker; leaving, to be replaced when its contexts are closed; "
        "restarting, a worker was lost; recovering, ready but not trusted yet; failed, again and again"
    )
    losses: int = Field(description="workers lost since the start")


class Readiness(_Body):
    status: Literal["ready", "busy"] = Field(description="busy: nobody new may speak now, since the gateway is late")
    workers: int = Field(description="engine workers that take new contexts")
    devices: list[Device] = Field(description="how each worker's device is")
    sessions: int = Field(description="sessions alive, those waiting for their client included")
    late_ms: float = Field(description="how late a packet leaves that is due, typically")


class StepsRange(_Body):
    min: int
    max: int
    default: int


class NumberRange(_Body):
    min: float
    max: float
    default: float


class SeedRange(_Body):
    min: int
    max: int


class Length(_Body):
    max_chars: int


class ModeChoice(_Body):
    choices: list[str]
    default: str = Field(description="of text that is still being written")


class AdapterChoice(_Body):
    choices: list[str] = Field(description="names of those that are loaded")


class Params(_Body):
    """Bounds of a context's `params`."""

    steps: StepsRange
    cfg: NumberRange
    instructions: Length
    adapter: AdapterChoice
    mode: ModeChoice
    seed: SeedRange
    speed: NumberRange
    volume: NumberRange
    sentence_pause_ms: NumberRange


class VoiceMaking(_Body):
    """Options of `POST /v1/voices`: input other than recordings, and the consent that it requires."""

    instructions: bool = Field(description="a description alone makes a voice")
    consent: Literal["required", "attested", "off"] = Field(description="what a cloned voice needs of its speaker")


class Model(_Body):
    id: str
    object: Literal["model"]
    created: int = Field(description="when it was loaded, seconds since 1970")
    owned_by: str
    sample_rate: int = Field(description="of the model's own audio, Hz")
    languages: list[str] = Field(description="codes; empty: the model does not say")
    default_voice: str
    default_steps: int
    default_cfg: float
    params: Params
    text: Length = Field(description="of one context")
    voice_making: VoiceMaking
    device: str
    dtype: str
    attention_backend: str
    fp8: Literal["off", "flow"] = Field(description="what has products of eight bits")
    guidance_from: float = Field(description="time of the flow, from 1 (noise) to 0, at which `cfg` begins to matter")
    guidance_to: float = Field(description="time at which it ends to")
    word_timing: Literal["measured", "estimated"]


class ModelList(_Body):
    object: Literal["list"]
    data: list[Model]


class VoiceConsent(_Body):
    given_by: str = Field(description="who says that the speaker agrees")
    scope: str = Field(description="to what use")
    at: float = Field(description="seconds since 1970")


class Voice(_Body):
    id: str = Field(description="what to speak with; a name will do as well")
    name: str
    kind: Literal["model", "cloned", "designed"] = Field(description="the model's own, or added by this key")
    description: str
    language: str
    default: bool
    created_at: float | None = Field(None, description="of an added voice, seconds since 1970")
    instructions: str | None = Field(None, description="what a designed voice was made by")
    consent: VoiceConsent | None = Field(None, description="of a cloned voice")
    expires_at: float | None = Field(None, description="of a voice for a while, if it is not used; seconds since 1970")


class RecordingRemark(_Body):
    field: str = Field(description="which recording", examples=["reference"])
    code: str = Field(description="clipped, quiet, dc_offset, noisy or several_speakers")
    message: str


class NewVoice(Voice):
    warnings: list[RecordingRemark] = Field(description="what will be heard of the recordings' faults")


class VoiceChange(_Body):
    """Changes of a voice; fields that are left out stay unchanged."""

    name: str | None = Field(None, description="1 to 128 characters, unique among the voices of the key")
    description: str | None = None
    language: str | None = None


class VoiceList(_Body):
    voices: list[Voice]
    default_voice: str


class AdapterName(_Body):
    name: str = Field(description="of a directory in the server's adapters_dir")


class Adapter(_Body):
    name: str = Field(description="what to speak with, as `params.adapter`")
    rank: int
    digest: str = Field(description="of its content, SHA-256")


class AdapterList(_Body):
    adapters: list[Adapter]


class TokenRequest(_Body):
    """Rights of a token; the limits of its key apply too."""

    ttl_s: int = Field(600, ge=1, description="how long one can connect with it; at most the setting max_token_ttl_s")
    voices: list[str] = Field([], max_length=64, description="the first is its default voice; empty: all of the key's")
    max_sessions: int = Field(0, ge=0, le=MAX_LIMIT, description="at one time; 0: no limit of its own")
    max_chars_per_minute: int = Field(0, ge=0, le=MAX_LIMIT, description="of text; 0: no limit of its own")


class Token(_Body):
    token: str = Field(description="goes where an API key would")
    expires_at: int = Field(description="seconds since 1970")


class Problem(_Body):
    """Body of every error response."""

    code: str = Field(description="stable name of the error", examples=["unauthorized"])
    message: str = Field(description="one sentence for a human")
    retryable: bool = Field(description="whether the same request can succeed later")
    field: str | None = Field(None, description="the input at fault, where there is one")
