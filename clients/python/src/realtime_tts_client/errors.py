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

import json
import re

_SECONDS = re.compile(r"[0-9]{1,9}")
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
    """Error of the server.

    Attributes:
        http_status: status of this kind of error over HTTP; None for a kind of a later version.
    """

    code = "server_error"
    http_status: int | None = None

    def __init_subclass__(cls) -> None:
        _BY_CODE[cls.code] = cls


class InvalidRequest(ServerError):
    code, http_status = "invalid_request", 400


class InvalidMessage(InvalidRequest):
    code = "invalid_message"


class VoiceNotFound(InvalidRequest):
    code, http_status = "voice_not_found", 404


class AdapterNotFound(InvalidRequest):
    code, http_status = "adapter_not_found", 404


class BadLexicon(InvalidRequest):
    code = "bad_lexicon"


class BadSSML(InvalidRequest):
    code = "bad_ssml"


class TextTooLong(InvalidRequest):
    code, http_status = "text_too_long", 413


class RequestTooLarge(InvalidRequest):
    code, http_status = "request_too_large", 413


class UnsupportedAudioFormat(InvalidRequest):
    code = "unsupported_audio_format"


class UnsupportedLanguage(InvalidRequest):
    code = "unsupported_language"


class ContextClosed(InvalidRequest):
    code, http_status = "context_closed", 409


class Unauthorized(ServerError):
    code, http_status = "unauthorized", 401


class Forbidden(ServerError):
    code, http_status = "forbidden", 403


class LimitExceeded(ServerError):
    code, http_status = "limit_exceeded", 429


class TooManyContexts(LimitExceeded):
    code = "too_many_contexts"


class TooManySessions(LimitExceeded):
    code, retryable = "too_many_sessions", True


class RateLimited(LimitExceeded):
    code, retryable = "rate_limited", True


class TooManyErrors(LimitExceeded):
    code = "too_many_errors"


class SessionNotFound(ServerError):
    code, http_status = "session_not_found", 404


class ResumeGap(ServerError):
    code, http_status, retryable = "resume_gap", 410, True


class SlowConsumer(ServerError):
    code, http_status = "slow_consumer", 408


class Overloaded(ServerError):
    code, http_status, retryable = "overloaded", 503, True


class Draining(ServerError):
    code, http_status, retryable = "draining", 503, True


class EngineError(ServerError):
    code, http_status = "engine_error", 500


class EngineLost(EngineError):
    code, http_status, retryable = "engine_lost", 503, True


class EngineOutOfMemory(EngineError):
    code, http_status, retryable = "engine_out_of_memory", 503, True


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


def error_from_answer(status: int, body: bytes | bytearray, retry_after: str = "") -> RealtimeTTSError:
    """Return the error for an HTTP answer, of the server or of a proxy before it."""
    message = f"the server answered {status}"
    error: RealtimeTTSError
    try:
        problem = json.loads(body)
        error = error_from_code(
            str(problem["code"]),
            str(problem.get("message", message)),
            retryable=problem.get("retryable") is True,
            field=problem.get("field"),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        if status in _BY_STATUS:
            error = _BY_STATUS[status](message, retryable=status in (429, 503))
        else:
            error = ConnectionFailed(message, retryable=status >= 500)
    error.retry_after_s = float(retry_after) if _SECONDS.fullmatch(retry_after) else None
    return error
