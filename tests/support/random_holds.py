"""A listener that holds and releases a context at random."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import realtime_tts_client as client

NUM_HOLDS = 50
STEP_MS = (60, 900)  # what is heard between two holds
Stretch = tuple[float, float]


async def taken_or_held(
    following: asyncio.Future[client.Packet | None], context: client.Context, taken_ms: float
) -> bool:
    """Wait for the next packet; False once all audio up to where the context is held was taken."""
    while not following.done():
        assert context.held_ms is not None
        if taken_ms >= context.held_ms:
            return False
        await asyncio.sleep(0.001)
    return True


async def hear_with_holds(session: client.Session, context: client.Context, rng: random.Random) -> list[Stretch]:
    """Hear a context, with holds. Return the stretches of its audio in the order in which they were heard; no hold was
    inside a word, and the last stretch ends with the audio."""
    heard: list[Stretch] = []
    begin_ms, taken_ms = 0.0, 0.0
    while len(heard) < NUM_HOLDS:
        played_ms = begin_ms + rng.uniform(*STEP_MS)
        while taken_ms < played_ms and (packet := await anext(context, None)) is not None:
            taken_ms = packet.start_ms + packet.duration_ms
            session.played(context, min(played_ms, taken_ms))
        if taken_ms < played_ms:
            break  # heard to its end
        held = await context.hold()
        words = list(context.words)  # as they are told by now: the ends of the last ones may be corrected later
        following = asyncio.ensure_future(anext(context, None))
        while await taken_or_held(following, context, taken_ms):  # the rest of the word, or of the speech
            packet = await following
            assert packet is not None, "iteration pauses while it is held"
            taken_ms = packet.start_ms + packet.duration_ms
            following = asyncio.ensure_future(anext(context, None))
        assert held.played_ms >= played_ms - 0.001
        assert held.text == context.text[: held.chars]
        for word in words:
            is_inside = word.start_ms + 0.6 < held.played_ms < word.end_ms - 0.6
            # The end of the last word is an estimate, and may lie behind the audio.
            assert not is_inside or (word == words[-1] and held.chars >= word.end), "stopped inside a word"
        heard.append((begin_ms, held.played_ms))
        begin_ms = await context.release(clause_after_ms=rng.choice([0.0, 1e6]))
        assert begin_ms <= held.played_ms
        if (packet := await following) is None:
            break  # it was held at its end
        assert packet.start_ms <= begin_ms < packet.start_ms + packet.duration_ms
        taken_ms = packet.start_ms + packet.duration_ms
        session.played(context, begin_ms)
    async for packet in context:
        taken_ms = packet.start_ms + packet.duration_ms
        session.played(context, taken_ms)
    return [*heard, (begin_ms, taken_ms)]


def assert_heard(words: Sequence[client.Word], heard: list[Stretch]) -> None:
    """Check that each word was heard whole in one stretch."""
    taken_ms = heard[-1][1]
    for (first_ms, end_ms), (begin_ms, last_ms) in itertools.pairwise(heard.copy()):
        if begin_ms >= end_ms - 0.6:  # it went on where it was held: one stretch for a word whose end was corrected
            heard.append((first_ms, last_ms))
    for word in words:
        word_end_ms = min(word.end_ms, taken_ms)  # the end of a word is an estimate until its audio ends
        assert any(begin_ms - 0.6 <= word.start_ms and word_end_ms <= end_ms + 0.6 for begin_ms, end_ms in heard), (
            word,
            heard,
        )
