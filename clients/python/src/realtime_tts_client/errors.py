"""Error tree: all errors that the client raises on purpose.

RealtimeTTSError
├── ConnectionFailed            the server cannot be reached, or is not a realtime-tts server
├── ConnectionLost              the connection broke and could not be resumed in time
├── SessionClosed               a call on a session that is closed
├── ProtocolError               the server violated the protocol
├── MissingDependency           decoding Opus needs PyAV (`pip install av`)
└── ServerError                 an error of the server: `code`, `retryable`, `field`
    ├── InvalidRequest          this program's mistake
    │   ├── InvalidMessage  VoiceNotFound  AdapterNotFound  TextTooLong  RequestTooLarge
    │   ├── BadLexicon  BadSSML
    │   └── UnsupportedAudioFormat  UnsupportedLanguage  ContextClosed
    ├── Unauthorized  Forbidden
    ├── LimitExceeded
    │   └── TooManyContexts  TooManySessions  RateLimited  TooManyErrors
    ├── SessionNotFound  ResumeGap  SlowConsumer
    ├── Overloaded  Draining    try again later, see `retry_after_s`
    └── EngineError
        └── EngineLost  EngineOutOfMemory  NumericalError
"""

from __future__ import annotations

_BY_CODE: dict[str, type[ServerError]] = {}


class RealtimeTTSError(Exception):
    """Base of the tree.

    Attributes:
        code: stable name of the kind of error, the server's own for a `ServerError`.
        message: one sentence for a human.
        retryable: whether the same request can succeed later.
        field: dotted name of the input at fault, where there is one.
        retry_after_s: minimum delay before a retry, if the server gave one.
    """

    code: str = "client_error"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = type(self).code if code is None else code
        self.retryable = type(self).retryable if retryable is None else retryable
        self.field = field
        self.retry_after_s = retry_after_s


class ConnectionFailed(RealtimeTTSError):
    code, retryable = "connection_failed", True


class ConnectionLost(RealtimeTTSError):
    code, retryable = "connection_lost", True


class SessionClosed(RealtimeTTSError):
    code = "session_closed"


class ProtocolError(RealtimeTTSError):
    code = "protocol_error"


class MissingDependency(RealtimeTTSError):
    code = "missing_dependency"


class ServerError(RealtimeTTSError):
    code = "server_error"

    def __init_subclass__(cls) -> None:
        _BY_CODE[cls.code] = cls


class InvalidRequest(ServerError):
    code = "invalid_request"


class InvalidMessage(InvalidRequest):
    code = "invalid_message"


class VoiceNotFound(InvalidRequest):
    code = "voice_not_found"


class AdapterNotFound(InvalidRequest):
    code = "adapter_not_found"


class BadLexicon(InvalidRequest):
    code = "bad_lexicon"


class BadSSML(InvalidRequest):
    code = "bad_ssml"


class TextTooLong(InvalidRequest):
    code = "text_too_long"


class RequestTooLarge(InvalidRequest):
    code = "request_too_large"


class UnsupportedAudioFormat(InvalidRequest):
    code = "unsupported_audio_format"


class UnsupportedLanguage(InvalidRequest):
    code = "unsupported_language"


class ContextClosed(InvalidRequest):
    code = "context_closed"


class Unauthorized(ServerError):
    code = "unauthorized"


class Forbidden(ServerError):
    code = "forbidden"


class LimitExceeded(ServerError):
    code = "limit_exceeded"


class TooManyContexts(LimitExceeded):
    code = "too_many_contexts"


class TooManySessions(LimitExceeded):
    code, retryable = "too_many_sessions", True


class RateLimited(LimitExceeded):
    code, retryable = "rate_limited", True


class TooManyErrors(LimitExceeded):
    code = "too_many_errors"


class SessionNotFound(ServerError):
    code = "session_not_found"


class ResumeGap(ServerError):
    code, retryable = "resume_gap", True


class SlowConsumer(ServerError):
    code = "slow_consumer"


class Overloaded(ServerError):
    code, retryable = "overloaded", True


class Draining(ServerError):
    code, retryable = "draining", True


class EngineError(ServerError):
    code = "engine_error"


class EngineLost(EngineError):
    code, retryable = "engine_lost", True


class EngineOutOfMemory(EngineError):
    code, retryable = "engine_out_of_memory", True


class NumericalError(EngineError):
    code = "numerical_error"


_BY_STATUS: dict[int, type[ServerError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: InvalidRequest,
    429: LimitExceeded,
    503: Overloaded,
}


def error_from_code(
    code: str,
    message: str,
    *,
    retryable: bool | None = None,
    field: str | None = None,
    retry_after_s: float | None = None,
) -> ServerError:
    """Return the error for a code of the server. An unknown code becomes a plain `ServerError` with that code."""
    return _BY_CODE.get(code, ServerError)(
        message, code=code, retryable=retryable, field=field, retry_after_s=retry_after_s
    )


def error_from_status(status: int, message: str) -> RealtimeTTSError:
    """Return the error for a handshake answer without one of the server's codes (from a proxy, for example)."""
    cls = _BY_STATUS.get(status)
    if cls is None:
        return ConnectionFailed(message, retryable=status >= 500)
    return cls(message, retryable=status in (429, 503))
