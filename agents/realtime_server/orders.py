"""Orders of a session's core: what its connection is to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from realtime_tts_client import AudioFormat

from realtime_server.ear import Samples
from realtime_server.events import Fields


@dataclass(frozen=True)
class Transcribe:
    """Order: recognise a recording, then call `transcribed` or `not_transcribed`."""

    item_id: str
    samples: Samples
    language: str | None


@dataclass(frozen=True)
class Generate:
    """Order: let the language model write, and speak it if `audio` is given; then call `finish` or `fail`."""

    response_id: str
    messages: list[Any]
    options: Fields  # of chat completions
    audio: AudioFormat | None
    voice: str | None
    speed: float


@dataclass(frozen=True)
class Judge:
    """Order: ask whether a turn is over, then call `judged` with the pause."""

    samples: Samples
    pause: int


@dataclass(frozen=True)
class BeginEarly:
    """Order: recognise a turn that may be over, and begin the answer of `early_answer`, unheard. `discard` ends it."""

    item_id: str
    samples: Samples
    language: str | None


Order = Transcribe | BeginEarly | Generate | Judge | Literal["hold", "release", "stop", "discard"]
