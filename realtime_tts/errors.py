"""Hierarchy of all errors that realtime-tts raises deliberately.

RealtimeTTSError
├── InvalidRequest
│   ├── InvalidMessage
│   ├── VoiceNotFound
│   ├── ModelNotFound
│   ├── ConsentNotFound
│   ├── DictionaryNotFound
│   ├── VoiceExists
│   ├── AdapterNotFound
│   ├── AdapterExists
│   ├── AdapterError
│   ├── TextTooLong
│   ├── RequestTooLarge
│   ├── UnsupportedAudioFormat
│   ├── UnsupportedLanguage
│   ├── BadLexicon
│   ├── BadSSML
│   ├── ContextClosed
│   ├── AudioDecodeError
│   │   └── RecordingUnsuitable
│   └── ConfigError
├── Unauthorized
├── Forbidden
├── SessionNotFound
│   └── ResumeGap
├── LimitExceeded
│   ├── TooManyContexts
│   ├── TooManySessions
│   ├── TooManyVoices
│   ├── TooManyAdapters
│   ├── RateLimited
│   └── TooManyErrors
├── SlowConsumer
├── Overloaded
├── Draining
├── CheckpointError
├── EngineError
│   ├── EngineStartError
│   ├── EngineClosed
│   ├── EngineLost
│   ├── EngineOutOfMemory
│   └── NumericalError
├── WireError
└── InternalError

Each class has a stable `code` for clients, made from its name, an HTTP status, and `retryable`: whether a retry can
succeed. `field` names the input at fault, if there is one.
"""

from __future__ import annotations

import re

ERROR_CLASSES: dict[str, type[RealtimeTTSError]] = {}  # by `code`


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
    span: tuple[int, int] | None = None  # of that context's text, which was refused
    delay_s: float = 0.0  # delay of the answer, seconds, for too many refusals; see `server/admission/refusal_delay.py`

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    def __init_subclass__(cls) -> None:
        """Make the code from the name of the class: that of `VoiceNotFound` is ``voice_not_found``."""
        cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        ERROR_CLASSES[cls.code] = cls


class InvalidRequest(RealtimeTTSError):
    """Error that the caller can correct."""

    http_status = 400


class InvalidMessage(InvalidRequest):
    """Not JSON, not an object, an unknown type, or a field of the wrong shape."""


class VoiceNotFound(InvalidRequest):
    http_status = 404


class ConsentNotFound(InvalidRequest):
    """No recorded consent of a speaker has this id."""

    http_status = 404


class DictionaryNotFound(InvalidRequest):
    """No stored pronunciation dictionary has this id."""

    http_status = 404


class ModelNotFound(InvalidRequest):
    http_status = 404


class VoiceExists(InvalidRequest):
    """Another voice has this name."""

    http_status = 409


class AdapterNotFound(InvalidRequest):
    http_status = 404


class AdapterExists(InvalidRequest):
    """An adapter of this name is loaded."""

    http_status = 409


class AdapterError(InvalidRequest):
    """The files of an adapter are incomplete, damaged or of another model."""

    http_status = 422


class TextTooLong(InvalidRequest):
    http_status = 413


class RequestTooLarge(InvalidRequest):
    """Request that would not fit into the KV cache even alone."""

    http_status = 413


class UnsupportedAudioFormat(InvalidRequest):
    """No stream can have this audio format."""


class UnsupportedLanguage(InvalidRequest):
    """The model does not support this language."""


class BadLexicon(InvalidRequest):
    """An entry of a pronunciation lexicon cannot be used."""


class BadSSML(InvalidRequest):
    """The markup is malformed or has invalid values."""


class ContextClosed(InvalidRequest):
    """Text after `end` or after the context's terminal event."""

    http_status = 409


class AudioDecodeError(InvalidRequest):
    """A reference or prompt recording cannot be decoded."""


class RecordingUnsuitable(AudioDecodeError):
    """A reference or prompt recording has no usable speech."""

    http_status = 422


class RecordingTooShort(RecordingUnsuitable):
    """Too little speech."""


class RecordingSilent(RecordingUnsuitable):
    """No sound."""


class RecordingTooQuiet(RecordingUnsuitable):
    """Too low a level."""


class RecordingClipped(RecordingUnsuitable):
    """Too many samples at full scale."""


class RecordingWithoutSpeech(RecordingUnsuitable):
    """Sound, but no speech."""


class ConfigError(InvalidRequest):
    """Invalid flag, environment variable or entry of the config file."""


class Unauthorized(RealtimeTTSError):
    http_status = 401


class Forbidden(RealtimeTTSError):
    """Origin that is not allowed."""

    http_status = 403


class SessionNotFound(RealtimeTTSError):
    """There is no session to resume."""

    http_status = 404


class ResumeGap(SessionNotFound):
    """Resumed too late: messages that the client lacks are gone."""

    http_status, retryable = 410, True


class LimitExceeded(RealtimeTTSError):
    """Quota of a key or a session."""

    http_status = 429


class TooManyContexts(LimitExceeded):
    """Too many unfinished contexts in a session."""


class TooManySessions(LimitExceeded):
    retryable = True


class TooManyVoices(LimitExceeded):
    http_status = 409


class TooManyAdapters(LimitExceeded):
    http_status = 409


class RateLimited(LimitExceeded):
    """Error of the character limit. `retry_after_s`: seconds until the same request can pass."""

    retryable = True

    def __init__(self, message: str, *, field: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, field=field)
        self.retry_after_s = retry_after_s


class TooManyErrors(LimitExceeded):
    """Too many invalid messages in a row; the socket is closed after it."""


class SlowConsumer(RealtimeTTSError):
    """The client reads more slowly than real time."""

    http_status = 408


class Overloaded(RealtimeTTSError):
    http_status, retryable, retry_after_s = 503, True, 1.0


class Draining(RealtimeTTSError):
    """The server is shutting down."""

    http_status, retryable = 503, True


class CheckpointError(RealtimeTTSError):
    """A model directory is incomplete, damaged or of another architecture."""


class EngineError(RealtimeTTSError):
    """Failure of an engine or its worker."""


class EngineStartError(EngineError):
    """The model could not be loaded or warmed up."""


class EngineClosed(EngineError):
    """Use after `close`, or speech that `close` ended."""


class EngineLost(EngineError):
    """No worker can serve the request: it died or hung, or none has loaded the model yet. The request can be sent
    again."""

    http_status, retryable = 503, True


class EngineOutOfMemory(EngineError):
    http_status, retryable = 503, True


class NumericalError(EngineError):
    """NaN or infinity in one stream."""


class WireError(RealtimeTTSError):
    """Damaged frame between gateway and worker."""


class InternalError(RealtimeTTSError):
    """Fault of the server. Its message is logged, so it never quotes a client's input."""


def error_from_code(code: str, message: str) -> RealtimeTTSError:
    """Return an error that was received from another process; an unknown code becomes `InternalError`."""
    return ERROR_CLASSES.get(code, InternalError)(message)
