"""Speech of a text that is complete from the start, however long. Other requests get their turn while it is planned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from realtime_tts.speech.speaker import Speaker
from realtime_tts.text.markup import checking
from realtime_tts.text.pause_planner import PausePlanner
from realtime_tts.text.planner import Planning, Segment

# An answer's headers tell what of its text cannot be spoken, and leave with the first audio. Of a text that has such
# characters so much is planned before, in some 50 ms; it is what OpenAI takes at most.
PLANNED_AHEAD_CHARS = 4096
_PIECE_CHARS = 64  # of text to plan before others get their turn: 1 ms of work, in Chinese 2


async def check_whole(text: str, text_type: str) -> None:
    """Raises:
    BadSSML: it is meant to be SSML, and malformed.
    """
    for _ in checking(text, text_type):
        await asyncio.sleep(0)


def _work(text: str, planner: PausePlanner, now: float) -> Iterator[Planning]:
    """The work of planning a text, piece by piece: the segments do not depend on how it is divided."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield planner.pushing(text[start : start + _PIECE_CHARS], now)
    yield planner.ending(now)


async def speak_whole(
    text: str,
    planner: PausePlanner,
    speaker: Speaker,
    is_begun: asyncio.Event | None = None,
    on_segment: Callable[[Segment], None] = lambda segment: None,
) -> None:
    """Plan a text and pass its segments to a speaker, not far ahead of what the engine takes. The planner plans by
    clauses.

    With `is_begun`, the first `PLANNED_AHEAD_CHARS` are planned without waiting for the engine; then it is set.

    `on_segment` is called before each segment. What it, planning or the engine raises, the speaker's reader gets after
    the speech before it.
    """
    now = asyncio.get_running_loop().time()
    begun = is_begun or asyncio.Event()
    if is_begun is None:
        begun.set()
    try:
        for stretches in _work(text, planner, now):
            for segments in stretches:
                for segment in segments:
                    on_segment(segment)
                    speaker.add(segment)
                if segments and segments[-1].end >= PLANNED_AHEAD_CHARS:
                    begun.set()
                if begun.is_set():
                    await speaker.drain()
                await asyncio.sleep(0)  # a stretch takes a millisecond
            await asyncio.sleep(0)  # of most pieces of the text nothing is known to be a segment yet
        speaker.end()
    except Exception as error:
        speaker.end(error)
    finally:
        begun.set()
