"""What becomes of speech that its listener ends while it is told of its packets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.stream.context_speech import ContextSpeech
from realtime_tts.speech.encoders import Encoders
from realtime_tts.speech.speaker import Piece, Speaker
from realtime_tts.text.planner import Segment

RATE_HZ = 16_000
SEGMENT = Segment(0, "hello.", 0, 6, ())
PIECE = Piece(SEGMENT, b"\0\0" * (RATE_HZ * 160 // 1000), 160.0, done=False)


class ReadySpeaker:
    """All of its pieces are there: nothing that its reader does has to wait."""

    sample_rate_hz = RATE_HZ

    def __init__(self, *pieces: Piece) -> None:
        self._pieces = list(pieces)

    def close(self) -> None:
        self._pieces.clear()

    def __aiter__(self) -> ReadySpeaker:
        return self

    async def __anext__(self) -> Piece:
        if not self._pieces:
            raise StopAsyncIteration
        return self._pieces.pop(0)


@dataclass
class ClosingListener:
    """Closes the speech as soon as it hears of it."""

    speech: ContextSpeech | None = None
    calls: list[str] = field(default_factory=list)

    def is_ahead(self, context_id: str) -> bool:
        return False

    def speech_packets(self, context_id: str, packets: Packets | None, piece: Piece) -> None:
        self.calls.append("packets")
        assert self.speech is not None
        self.speech.close()

    def speech_finished(self, context_id: str, packets: list[Packets]) -> None:
        self.calls.append("finished")

    def speech_failed(self, context_id: str, error: RealtimeTTSError) -> None:
        self.calls.append(f"failed: {error.__cause__!r}")


@pytest.mark.parametrize("fmt", [AudioFormat(), AudioFormat(codec="pcm_s16le", sample_rate=RATE_HZ)])
@pytest.mark.parametrize("num_pieces", [1, 2])
async def test_speech_that_is_closed_while_its_packets_are_told_says_nothing_more(
    fmt: AudioFormat, num_pieces: int
) -> None:
    """A client whose queue runs over fails its context in that very call: it is no fault of ours."""
    encoders, listener = Encoders(1), ClosingListener()
    speaker = cast("Speaker", ReadySpeaker(*[PIECE] * num_pieces))
    listener.speech = ContextSpeech("c", speaker, encoders, fmt, cast("Any", listener))
    task = listener.speech._task
    assert task is not None
    await asyncio.wait([task], timeout=20)
    assert task.cancelled()
    assert listener.calls == ["packets"]
    encoders.close()
