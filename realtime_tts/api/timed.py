"""Chunks of speech with the words heard in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from realtime_tts.session.alignment import WordAligner
from realtime_tts.session.messages import TimedWord
from realtime_tts.speech.speaker import Piece

__all__ = ["Chunk", "TimedChunk", "TimedWord", "samples_of", "with_words"]

Chunk: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TimedChunk:
    """Samples, [num_samples] in −1…1, and words whose sound begins in them or shortly after.

    Each word comes once, in order, no later than the chunk in which it begins; of a text that is spoken live, no later
    than its end has been written. Its `text` is exactly the caller's text from `start` to `end` (in characters, all
    pieces of a stream joined); `start_ms` and `end_ms` count from the first sample of the first chunk. An end is an
    estimate when its word comes: if the next word begins before it, the word ends there. A word's
    `measured` tells whether the model itself said when it speaks it, or whether its times are estimated from its
    spelling.
    """

    samples: Chunk
    words: tuple[TimedWord, ...]


def samples_of(piece: Piece) -> Chunk:
    """Return the samples of a piece in f32le; empty where it ends a segment."""
    return np.frombuffer(piece.pcm, dtype="<f4")


async def with_words(
    pieces: AsyncIterator[Piece], sample_rate_hz: int, speed: float
) -> AsyncGenerator[TimedChunk, None]:
    """Join words to a speaker's pieces, f32le.

    A chunk is pending until the next piece has come. Only then is it known whether it is the last of its segment, which
    gets all remaining words.
    """
    aligner = WordAligner(speed)
    pending, end_ms = np.zeros(0, np.float32), 0.0
    async for piece in pieces:
        aligner.put_segment(piece.segment)
        aligner.progress(piece.segment.index, piece.audio_ms, piece.done, piece.reached)
        if pending.size:
            yield TimedChunk(pending, tuple(aligner.commit_until(end_ms)))
        pending = samples_of(piece)
        end_ms += 1000 * pending.size / sample_rate_hz
    if pending.size:
        yield TimedChunk(pending, tuple(aligner.commit_until(end_ms)))
