"""Client of a realtime-tts server: text deltas in, speech packets or samples out as they are generated.

async with connect("ws://localhost:8000") as session:
    async for packet in session.speak("Hello there."):
        ...
"""

from realtime_tts_client.api import connect, synthesize
from realtime_tts_client.context import Context
from realtime_tts_client.errors import (
    AdapterNotFound,
    BadLexicon,
    BadSSML,
    ConnectionFailed,
    ConnectionLost,
    ContextClosed,
    Draining,
    EngineError,
    EngineLost,
    EngineOutOfMemory,
    Forbidden,
    InvalidMessage,
    InvalidRequest,
    LimitExceeded,
    MissingDependency,
    NumericalError,
    Overloaded,
    ProtocolError,
    RateLimited,
    RealtimeTTSError,
    RequestTooLarge,
    ResumeGap,
    ServerError,
    SessionClosed,
    SessionNotFound,
    SlowConsumer,
    TextTooLong,
    TooManyContexts,
    TooManyErrors,
    TooManySessions,
    Unauthorized,
    UnsupportedAudioFormat,
    UnsupportedLanguage,
    VoiceNotFound,
)
from realtime_tts_client.session import Session
from realtime_tts_client.types import AudioFormat, Done, Packet, Spoken, Word
from realtime_tts_client.voices import OwnVoice

__version__ = "0.1.0"

__all__ = [
    "AdapterNotFound",
    "AudioFormat",
    "BadLexicon",
    "BadSSML",
    "ConnectionFailed",
    "ConnectionLost",
    "Context",
    "ContextClosed",
    "Done",
    "Draining",
    "EngineError",
    "EngineLost",
    "EngineOutOfMemory",
    "Forbidden",
    "InvalidMessage",
    "InvalidRequest",
    "LimitExceeded",
    "MissingDependency",
    "NumericalError",
    "Overloaded",
    "OwnVoice",
    "Packet",
    "ProtocolError",
    "RateLimited",
    "RealtimeTTSError",
    "RequestTooLarge",
    "ResumeGap",
    "ServerError",
    "Session",
    "SessionClosed",
    "SessionNotFound",
    "SlowConsumer",
    "Spoken",
    "TextTooLong",
    "TooManyContexts",
    "TooManyErrors",
    "TooManySessions",
    "Unauthorized",
    "UnsupportedAudioFormat",
    "UnsupportedLanguage",
    "VoiceNotFound",
    "Word",
    "connect",
    "synthesize",
]
