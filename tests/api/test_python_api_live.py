"""`AsyncTTS` while the text is still being written: from its first words on, or clause by clause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fake_worker import fake_worker_command

from realtime_tts import AsyncTTS
from realtime_tts.errors import InvalidRequest
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec

BEGIN = ("Let me see ", "if there is ", "a quiet room ", "with a view")
REST = (" of the garden ", "for you. And then so.")
TEXT = "".join(BEGIN + REST)
LONG = " ".join([TEXT] * 9)  # more segments than the engine takes at one time


@pytest_asyncio.fixture
async def tts() -> AsyncIterator[AsyncTTS]:
    """Worker with a model that measures which word it speaks."""
    command = fake_worker_command(patch_delay_s=0.002, text_lag_ms=100)
    async with AsyncTTS(workers=[WorkerSpec(command=command)]) as tts:
        yield tts
        assert tts._client.num_requests == 0, "a request outlived its iteration"


class Writer:
    """Half a sentence, and its rest when the half is heard, or after a while without playback."""

    def __init__(self, wait_s: float = 10.0) -> None:
        self.heard = asyncio.Event()
        self.events: list[str] = []
        self._wait_s = wait_s

    async def __aiter__(self) -> AsyncIterator[str]:
        for piece in BEGIN:
            yield piece
            await asyncio.sleep(0.001)
        try:
            await asyncio.wait_for(self.heard.wait(), self._wait_s)
            self.events.append("heard")
        except TimeoutError:
            self.events.append("not heard")
        for piece in REST:
            yield piece


async def test_a_stream_is_heard_before_its_sentence_has_ended(tts: AsyncTTS) -> None:
    writer, words, sizes = Writer(), [], []
    async for chunk in tts.generate_timed(writer):
        writer.heard.set()
        words += chunk.words
        sizes.append(chunk.samples.size)
    assert writer.events == ["heard"]
    assert " ".join(word.text for word in words) == TEXT
    assert all(word.text == TEXT[word.start : word.end] for word in words)
    starts = [word.start_ms for word in words]
    assert starts == sorted(starts)
    # Two segments, four characters a patch: none is lost where the text grew, and none is said twice.
    # (One patch more if this machine stood still for so long that the stream was taken for one that had stalled.)
    num_samples = sum(2560 * -(-len(part) // 4) for part in (TEXT[:-13], TEXT[-12:]))
    assert sum(sizes) in (num_samples, num_samples + 2560)


async def test_by_clauses_nothing_is_heard_of_half_a_sentence(tts: AsyncTTS) -> None:
    writer = Writer(wait_s=0.2)
    async for _ in tts.generate(writer, mode="clause"):
        writer.heard.set()
    assert writer.events == ["not heard"]


async def test_a_stream_that_ends_in_mid_clause_is_said_to_its_end(tts: AsyncTTS) -> None:
    async def half() -> AsyncIterator[str]:
        for piece in BEGIN:
            yield piece
            await asyncio.sleep(0.001)

    words = [word async for chunk in tts.generate_timed(half()) for word in chunk.words]
    assert " ".join(word.text for word in words) == "".join(BEGIN)


async def test_leaving_while_a_segment_is_open_cancels_it(tts: AsyncTTS) -> None:
    chunks = tts.generate(Writer())
    assert (await anext(chunks)).size
    await chunks.aclose()
    assert tts._client.num_requests == 0


@pytest.mark.parametrize("text", [LONG, list(LONG), (LONG[:99], LONG[99:])], ids=["str", "list", "tuple"])
async def test_a_text_that_is_whole_is_spoken_whole(tts: AsyncTTS, monkeypatch: pytest.MonkeyPatch, text: Any) -> None:
    monkeypatch.setattr(EngineClient, "extend", None)  # nothing is to call it
    num_samples = 0
    async for chunk in tts.generate(text, mode="live"):
        num_samples += chunk.size
    assert num_samples == 9 * sum(2560 * -(-len(part) // 4) for part in (TEXT[:-13], TEXT[-12:]))


async def test_an_unknown_mode_is_refused(tts: AsyncTTS) -> None:
    with pytest.raises(InvalidRequest, match="mode must be one of live, clause, got 'auto'"):
        await anext(tts.generate("Hello.", mode="auto"))
