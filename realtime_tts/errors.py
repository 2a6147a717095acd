"""Hierarchy of all errors that realtime-tts raises deliberately.

RealtimeTTSError
├── InvalidRequest                 the caller can correct it
│   ├── InvalidMessage             not JSON, not an object, an unknown type, a field of the wrong shape
│   ├── VoiceNotFound
│   ├── ModelNotFound
│   ├── ConsentNotFound            a speaker's recorded consent
│   ├── DictionaryNotFound         a stored pronunciation dictionary
│   ├── VoiceExists                the name is taken by another voice
│   ├── AdapterNotFound
│   ├── AdapterExists              one of this name is loaded
│   ├── AdapterError               an adapter's files that are incomplete, damaged or of another model
│   ├── TextTooLong
│   ├── RequestTooLarge            would not fit into the KV cache even alone
│   ├── UnsupportedAudioFormat
│   ├── UnsupportedLanguage
│   ├── BadLexicon                 an entry of a pronunciation lexicon that cannot be used
│   ├── BadSSML                    markup that is malformed or has invalid values
│   ├── ContextClosed              text after `end` or after the context's terminal event
│   ├── AudioDecodeError           a reference or prompt recording that cannot be decoded
│   │   └── RecordingUnsuitable    … or has no usable speech: TooShort, Silent, TooQuiet, Clipped, WithoutSpeech
│   └── ConfigError                a flag, environment variable or config file entry
├── Unauthorized
├── Forbidden                      an origin that is not allowed
├── SessionNotFound                nothing to resume
│   └── ResumeGap                  resumed too late: messages that the client lacks are gone
├── LimitExceeded                  a quota of this key or session
│   ├── TooManyContexts
│   ├── TooManySessions
│   ├── TooManyVoices
│   ├── TooManyAdapters
│   ├── RateLimited                more characters than a key may have in a minute
│   └── TooManyErrors              the socket is closed after it
├── SlowConsumer                   the peer reads more slowly than real time
├── Overloaded
├── Draining                       the server is shutting down
├── CheckpointError                a model directory that is incomplete, damaged or of another architecture
├── EngineError
│   ├── EngineStartError
│   ├── EngineClosed               used after `close`, or closed while it was speaking
│   ├── EngineLost                 the worker died or hung; its requests can be sent again
│   ├── EngineOutOfMemory
│   └── NumericalError             NaN or infinity in one stream
├── WireError                      a damaged frame between gateway and worker
└── InternalError

Each class has a stable `code` for clients, an HTTP status, and `retryable`: whether a retry can succeed. `field` names
the input at fault, if there is one.
"""

from __future__ import annotations


class RealtimeTTSError(Exception):
    """Base class of all errors.

    Args:
        message: one sentence for people; it never contains a user's text or audio.
        field: dotted name of the input at fault, e.g. ``audio.sample_rate``.
    """

    code: str = "internal_error"
    http_status: int = 500
    retryable: bool = False
    retry_after_s: float | None = None  # seconds, if known
    context_id: str | None = None  # context of the message at fault, if known
    delay_s: float = 0.0  # delay of the answer, seconds, for too many refusals; see `server/admission/refusal_delay.py`

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidRequest(RealtimeTTSError):
    code, http_status = "invalid_request", 400


class InvalidMessage(InvalidRequest):
    code = "invalid_message"


class VoiceNotFound(InvalidRequest):
    code, http_status = "voice_not_found", 404


class ConsentNotFound(InvalidRequest):
    code, http_status = "consent_not_found", 404


class DictionaryNotFound(InvalidRequest):
    code, http_status = "dictionary_not_found", 404


class ModelNotFound(InvalidRequest):
    code, http_status = "model_not_found", 404


class VoiceExists(InvalidRequest):
    code, http_status = "voice_exists", 409


class AdapterNotFound(InvalidRequest):
    code, http_status = "adapter_not_found", 404


class AdapterExists(InvalidRequest):
    code, http_status = "adapter_exists", 409


class AdapterError(InvalidRequest):
    code, http_status = "adapter_error", 422


class TextTooLong(InvalidRequest):
    code, http_status = "text_too_long", 413


class RequestTooLarge(InvalidRequest):
    code, http_status = "request_too_large", 413


class UnsupportedAudioFormat(InvalidRequest):
    code = "unsupported_audio_format"


class UnsupportedLanguage(InvalidRequest):
    code = "unsupported_language"


class BadLexicon(InvalidRequest):
    code = "bad_lexicon"


class BadSSML(InvalidRequest):
    code = "bad_ssml"


class ContextClosed(InvalidRequest):
    code, http_status = "context_closed", 409


class AudioDecodeError(InvalidRequest):
    code = "audio_decode_error"


class RecordingUnsuitable(AudioDecodeError):
    code, http_status = "recording_unsuitable", 422


class RecordingTooShort(RecordingUnsuitable):
    code = "recording_too_short"


class RecordingSilent(RecordingUnsuitable):
    code = "recording_silent"


class RecordingTooQuiet(RecordingUnsuitable):
    code = "recording_too_quiet"


class RecordingClipped(RecordingUnsuitable):
    code = "recording_clipped"


class RecordingWithoutSpeech(RecordingUnsuitable):
    code = "recording_without_speech"


class ConfigError(InvalidRequest):
    code = "config_error"


class Unauthorized(RealtimeTTSError):
    code, http_status = "unauthorized", 401


class Forbidden(RealtimeTTSError):
    code, http_status = "forbidden", 403


class SessionNotFound(RealtimeTTSError):
    code, http_status = "session_not_found", 404


class ResumeGap(SessionNotFound):
    code, http_status, retryable = "resume_gap", 410, True


class LimitExceeded(RealtimeTTSError):
    code, http_status = "limit_exceeded", 429


class TooManyContexts(LimitExceeded):
    code = "too_many_contexts"


class TooManySessions(LimitExceeded):
    code, retryable = "too_many_sessions", True


class TooManyVoices(LimitExceeded):
    code, http_status = "too_many_voices", 409


class TooManyAdapters(LimitExceeded):
    code, http_status = "too_many_adapters", 409


class RateLimited(LimitExceeded):
    """Error of the character limit. `retry_after_s`: seconds until the same request can pass."""

    code, retryable = "rate_limited", True

    def __init__(self, message: str, *, field: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, field=field)
        self.retry_after_s = retry_after_s


class TooManyErrors(LimitExceeded):
    code = "too_many_errors"


class SlowConsumer(RealtimeTTSError):
    code, http_status = "slow_consumer", 408


class Overloaded(RealtimeTTSError):
    code, http_status, retryable, retry_after_s = "overloaded", 503, True, 1.0


class Draining(RealtimeTTSError):
    code, http_status, retryable = "draining", 503, True


class CheckpointError(RealtimeTTSError):
    code = "checkpoint_error"


class EngineError(RealtimeTTSError):
    code = "engine_error"


class EngineStartError(EngineError):
    code = "engine_start_error"


class EngineClosed(EngineError):
    code = "engine_closed"


class EngineLost(EngineError):
    code, http_status, retryable = "engine_lost", 503, True


class EngineOutOfMemory(EngineError):
    code, http_status, retryable = "engine_out_of_memory", 503, True


class NumericalError(EngineError):
    code = "numerical_error"


class WireError(RealtimeTTSError):
    code = "wire_error"


class InternalError(RealtimeTTSError):
    code = "internal_error"


def error_classes() -> dict[str, type[RealtimeTTSError]]:
    """Return all error classes by `code`; a subclass has precedence over a parent with the same code."""
    found: dict[str, type[RealtimeTTSError]] = {}
    pending: list[type[RealtimeTTSError]] = [RealtimeTTSError]
    while pending:
        cls = pending.pop(0)
        found[cls.code] = cls
        pending.extend(cls.__subclasses__())
    return found


def error_from_code(code: str, message: str) -> RealtimeTTSError:
    """Return an error that was received from another process; an unknown code becomes `InternalError`."""
    return error_classes().get(code, InternalError)(message)
