"""Schemas of the HTTP bodies, from which clients can be generated. Responses are validated against them.

A field that a schema does not name is an error and is not dropped, so that no response has undocumented fields.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from realtime_tts.contract.speech_params import SPEECH_PARAMS
from realtime_tts.server.admission.tokens import MAX_LIMIT


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Health(_Body):
    status: Literal["ok"]
    version: str


class Device(_Body):
    worker: str = Field(description="name of its engine worker")
    device: str = Field(description="name of the device at the worker; empty until a worker was ready")
    state: Literal["starting", "serving", "leaving", "restarting", "recovering", "unloaded", "failed"] = Field(
        description="serving; starting, its first worker; leaving, replaced once its contexts are closed; "
        "restarting, a worker was lost; recovering, ready but on trial; unloaded, speech starts the next one; "
        "failed, after repeated losses"
    )
    losses: int = Field(description="workers lost since the start")


class Readiness(_Body):
    status: Literal["ready", "busy"] = Field(description="busy: the gateway is late and admits no new speech")
    workers: int = Field(description="engine workers that take new contexts")
    devices: list[Device] = Field(description="state of each worker's device")
    sessions: int = Field(description="live sessions, including those that wait for their client")
    late_ms: float = Field(description="median lateness of packets that are due, ms")


class ParamBounds(_Body):
    """Bounds, choices and default of a speech parameter, as far as it has them."""

    min: int | float | None = None
    max: int | float | None = None
    max_chars: int | None = None
    choices: list[str] | None = None
    default: int | float | str | None = None


_PARAM_FIELDS: dict[str, Any] = {
    name: (ParamBounds, Field(description=param.help)) for name, param in SPEECH_PARAMS.items()
}
Params = create_model("Params", __base__=_Body, __doc__="Bounds of a context's `params`.", **_PARAM_FIELDS)


class TextLimits(_Body):
    max_chars: int = Field(description="longest text of one context")
    letters: str | None = Field(
        description="letters in lower case that the model reads, also as capitals and with accents; null: all"
    )


class VoiceMakingOptions(_Body):
    """Options of `POST /v1/voices`: input other than recordings, and the consent that it requires."""

    instructions: bool = Field(description="a description alone makes a voice")
    consent: Literal["required", "attested", "off"] = Field(
        description="statement of the speaker that a cloned voice requires"
    )


class Model(_Body):
    id: str
    object: Literal["model"]
    created: int = Field(description="Unix time at which the model was loaded, seconds")
    owned_by: str
    sample_rate: int = Field(description="sample rate of the model's audio, Hz")
    languages: list[str] = Field(description="language codes; empty: unknown")
    default_voice: str
    default_steps: int
    default_cfg: float
    params: Params  # type: ignore[valid-type]
    text: TextLimits
    voice_making: VoiceMakingOptions
    device: str
    dtype: str
    attention_backend: str
    fp8: Literal["off", "flow"] = Field(description="part of the model that computes in 8-bit floats")
    word_timing: Literal["measured", "estimated"]


class ModelList(_Body):
    object: Literal["list"]
    data: list[Model]


class VoiceConsent(_Body):
    given_by: str = Field(description="person or key that states the consent")
    scope: str = Field(description="use to which the speaker consents")
    at: float = Field(description="seconds since 1970")


class Voice(_Body):
    id: str = Field(description="id of the voice for requests; its name is accepted too")
    name: str
    kind: Literal["model", "cloned", "designed"] = Field(description="the model's own, or added by this key")
    description: str
    language: str
    default: bool
    created_at: float | None = Field(default=None, description="creation of an added voice, Unix time in seconds")
    instructions: str | None = Field(default=None, description="description from which a designed voice was made")
    consent: VoiceConsent | None = Field(default=None, description="consent to a cloned voice")
    expires_at: float | None = Field(
        default=None, description="expiry of a temporary voice unless it is used, Unix time in seconds"
    )


class RecordingRemark(_Body):
    field: str = Field(description="field of the recording", examples=["reference"])
    code: str = Field(description="clipped, quiet, dc_offset, noisy or several_speakers")
    message: str


class NewVoice(Voice):
    warnings: list[RecordingRemark] = Field(description="audible faults of the recordings")


class VoiceChange(_Body):
    """Changes of a voice; fields that are left out stay unchanged."""

    name: str | None = Field(default=None, description="1 to 128 characters, unique among the voices of the key")
    description: str | None = None
    language: str | None = None


class VoiceList(_Body):
    voices: list[Voice]
    default_voice: str


class AdapterName(_Body):
    name: str = Field(description="name of a directory in the server's adapters_dir")


class Adapter(_Body):
    name: str = Field(description="value of `params.adapter` that selects it")
    rank: int
    digest: str = Field(description="SHA-256 of its content")


class AdapterList(_Body):
    adapters: list[Adapter]


class TokenRequest(_Body):
    """Rights of a token; the limits of its key apply too."""

    ttl_s: int = Field(600, ge=1, description="lifetime in seconds; at most the setting max_token_ttl_s")
    voices: list[str] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="allowed voices, the first being the default; absent: all voices of the key",
    )
    max_sessions: int = Field(0, ge=0, le=MAX_LIMIT, description="concurrent sessions; 0: no limit of its own")
    max_chars_per_minute: int = Field(
        0, ge=0, le=MAX_LIMIT, description="characters of text per minute; 0: no limit of its own"
    )


class Token(_Body):
    token: str = Field(description="token, sent in place of an API key")
    expires_at: int = Field(description="seconds since 1970")


class Problem(_Body):
    """Body of every error response."""

    code: str = Field(description="stable name of the error", examples=["unauthorized"])
    message: str = Field(description="description of the error for people")
    retryable: bool = Field(description="whether the same request can succeed later")
    field: str | None = Field(default=None, description="name of the invalid field, if there is one")
