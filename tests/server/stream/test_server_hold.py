"""Hold and release through the gateway: random holds of a listener lose no word, and stop inside none."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import realtime_tts_client as client
from gateway_harness import GatewayHarness
from random_holds import assert_heard, hear_with_holds

TEXT = (
    "Sure, let me check that for you. Your order left our warehouse this morning, and it should be with you by Tuesday "
    "afternoon; the driver calls you before, as you asked. Is there anything else, or shall I read you the address?"
)


@pytest.mark.parametrize("live", [False, True], ids=["whole", "live"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_words_heard_in_all_are_the_text(
    make_gateway: Callable[..., GatewayHarness], seed: int, live: bool
) -> None:
    gateway = make_gateway()
    async with client.connect(gateway.url, audio=client.AudioFormat("pcm_s16le", sample_rate=8000)) as session:
        pieces = (piece + " " for piece in TEXT.split(" "))
        context = session.speak(pieces if live else TEXT, playback="manual")
        heard = await hear_with_holds(session, context, random.Random(seed))
        assert [word.text for word in context.words] == TEXT.split()
    assert len(heard) > 10
    assert_heard(context.words, heard)
