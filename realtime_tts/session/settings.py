"""Settings of a session and of its contexts: defaults, overrides, bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.errors import InvalidRequest
from realtime_tts.session.messages import Limits, SpeechParams

MAX_INSTRUCTION_CHARS = 500
MAX_SEED = 2**53 - 1  # the largest integer that every JSON reader keeps exact


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What the server allows and prefers.

    Attributes:
        audio, params: where the client leaves them open.
        max_steps, max_cfg: bounds of what a client may ask for.
        max_contexts: open at one time.
        max_lead_s: audio is sent at most so far ahead of playback.
        keepalive_s: longest silence while a context is open.
        resume_window_s: how long a lost connection is waited for; 0 switches resuming off.
        retain_s, retain_max_bytes: what is kept of sent messages for a resume.
        slow_consumer_s: how long the socket may refuse bytes.
        max_queued_s: audio of one context that waits to be sent; beyond it the context fails, since the engine
            should have parked it long before.
    """

    model: str = ""
    audio: AudioFormat = field(default_factory=AudioFormat)
    params: SpeechParams = field(default_factory=SpeechParams)
    max_steps: int = 64
    max_cfg: float = 10.0
    max_contexts: int = 16
    max_text_chars: int = 20_000
    max_id_chars: int = 128
    max_message_bytes: int = 64 * 1024
    max_consecutive_errors: int = 20
    max_lead_s: float = 3.0
    keepalive_s: float = 3.0
    idle_timeout_s: float = 300.0
    resume_window_s: float = 10.0
    retain_s: float = 30.0
    retain_max_bytes: int = 4 * 1024 * 1024
    slow_consumer_s: float = 10.0
    max_queued_s: float = 120.0

    @property
    def limits(self) -> Limits:
        return Limits(
            max_contexts=self.max_contexts,
            max_text_chars=self.max_text_chars,
            max_message_bytes=self.max_message_bytes,
            max_lead_s=self.max_lead_s,
            keepalive_s=self.keepalive_s,
            idle_timeout_s=self.idle_timeout_s,
            resume_window_s=self.resume_window_s,
        )


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """All choices made: what one context is spoken with. None: the model's own default."""

    voice: str
    audio: AudioFormat
    seed: int
    cfg: float | None = None
    steps: int | None = None
    language: str | None = None
    instructions: str | None = None


def merge_params(over: SpeechParams, under: SpeechParams) -> SpeechParams:
    """`over` where it says something, else `under`."""
    return SpeechParams(
        cfg=under.cfg if over.cfg is None else over.cfg,
        steps=under.steps if over.steps is None else over.steps,
        seed=under.seed if over.seed is None else over.seed,
        language=under.language if over.language is None else over.language,
        instructions=under.instructions if over.instructions is None else over.instructions,
    )


def check_params(params: SpeechParams, config: SessionConfig) -> None:
    """Raises:
    InvalidRequest: a value out of bounds; `field` names it.
    """
    if params.cfg is not None and not (math.isfinite(params.cfg) and 0.0 <= params.cfg <= config.max_cfg):
        raise InvalidRequest(f"cfg must be within 0 and {config.max_cfg:g}", field="params.cfg")
    if params.steps is not None and not 2 <= params.steps <= config.max_steps:
        raise InvalidRequest(f"steps must be within 2 and {config.max_steps}", field="params.steps")
    if params.seed is not None and not 0 <= params.seed <= MAX_SEED:
        raise InvalidRequest(f"seed must be within 0 and {MAX_SEED}", field="params.seed")
    if params.instructions is not None and len(params.instructions) > MAX_INSTRUCTION_CHARS:
        raise InvalidRequest(f"instructions may have {MAX_INSTRUCTION_CHARS} characters", field="params.instructions")
