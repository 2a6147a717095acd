"""Hold and release through the gateway: random holds of a listener lose no word, and stop inside none."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import realtime_tts_client as client
from gateway_harness import GatewayHarness

TEXT = (
    "Sure, let me check that for you. Your order left our warehouse this morning, and it should be with you by Tuesday "
    "afternoon; the driver calls you before, as you asked. Is there anything else, or shall I read you the address?"
)
NUM_HOLDS = 50
STEP_MS = (60, 900)  # what is heard between two holds


@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["whole", "live"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_words_heard_in_all_are_the_text(
    make_gateway: Callable[..., GatewayHarness], seed: int, live: bool
) -> None:
    gateway, rng = make_gateway(), random.Random(seed)
    heard: list[tuple[float, float]] = []  # stretches of the context's audio, in the order in which they were heard
    async with client.connect(gateway.url, audio=client.AudioFormat("pcm_s16le", sample_rate=8000)) as session:
        pieces = (piece + " " for piece in TEXT.split(" "))
        context = session.speak(pieces if live else TEXT, playback="manual")
        begin_ms, taken_ms, num_holds = 0.0, 0.0, 0
        while num_holds < NUM_HOLDS:
            played_ms = begin_ms + rng.uniform(*STEP_MS)
            while taken_ms < played_ms and (packet := await anext(context, None)) is not None:
                taken_ms = packet.start_ms + packet.duration_ms
                session.played(context, min(played_ms, taken_ms))
            if taken_ms < played_ms:
                break  # heard to its end
            held = await context.hold()
            num_holds += 1
            while taken_ms < held.played_ms:  # the rest of the word
                packet = await anext(context)
                taken_ms = packet.start_ms + packet.duration_ms
            assert held.played_ms >= played_ms - 0.001
            assert held.text == TEXT[: held.chars]
            heard.append((begin_ms, held.played_ms))
            begin_ms = await context.release(clause_after_ms=rng.choice([0.0, 1e6]))
            assert begin_ms <= held.played_ms
            if (packet := await anext(context, None)) is None:
                break  # it was held at its end
            assert packet.start_ms <= begin_ms < packet.start_ms + packet.duration_ms
            taken_ms = packet.start_ms + packet.duration_ms
            session.played(context, begin_ms)
        async for packet in context:
            taken_ms = packet.start_ms + packet.duration_ms
            session.played(context, taken_ms)
        heard.append((begin_ms, taken_ms))
        words = context.words
    assert num_holds >= 10
    assert [word.text for word in words] == TEXT.split()
    for _, end_ms in heard[:-1]:
        assert not any(word.start_ms + 0.6 < end_ms < word.end_ms - 0.6 for word in words), "stopped inside a word"
    for word in words:
        word_end_ms = min(word.end_ms, taken_ms)  # the end of a word is an estimate until its audio ends
        assert any(begin_ms - 0.6 <= word.start_ms and word_end_ms <= end_ms + 0.6 for begin_ms, end_ms in heard), (
            word,
            heard,
        )
