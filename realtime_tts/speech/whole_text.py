"""Speaks a text that is there from the start, however long; others have their turn while it is planned."""

from __future__ import annotations

import asyncio

from realtime_tts.speech.speaker import Speaker
from realtime_tts.text.markup import checking
from realtime_tts.text.pause_planner import PausePlanner


async def check_whole(text: str, text_type: str) -> None:
    """Raises:
    BadSSML: it is meant to be SSML, and malformed.
    """
    for _ in checking(text, text_type):
        await asyncio.sleep(0)


async def speak_whole(text: str, planner: PausePlanner, speaker: Speaker) -> None:
    """Hand a text's segments to a speaker, not far ahead of what the engine takes. The planner plans by clauses.

    What planning or the engine raises, the speaker's reader gets after the speech before it.
    """
    now = asyncio.get_running_loop().time()
    try:
        for stretches in (planner.pushing(text, now), planner.ending(now)):
            for segments in stretches:
                for segment in segments:
                    speaker.add(segment)
                await speaker.drain()
                await asyncio.sleep(0)  # a stretch takes a millisecond
        speaker.end()
    except Exception as error:
        speaker.end(error)
