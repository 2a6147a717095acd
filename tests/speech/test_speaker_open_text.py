"""`Speaker` with segments that grow while they wait or are spoken."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable

import pytest
from client_harness import MakeClient, until
from context_settings import context_settings
from processes import worker_pids

from realtime_tts.contract import frames
from realtime_tts.errors import EngineLost, InvalidRequest
from realtime_tts.speech.speaker import Piece, Speaker
from realtime_tts.speech.text_source import TextSource, speak_text
from realtime_tts.text.planner import PlannerFactory, Segment
from realtime_tts.workers.client import EngineClient

SETTINGS = context_settings(mode="live")
BEGIN, MORE, WHOLE = "one two three", "one two three four five", "one two three four five six."


def segment(index: int, text: str, final: bool = False) -> Segment:
    return Segment(index, text, 0, len(text), (), final)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What of texts goes to the engine."""
    found: list[tuple[str, bool]] = []
    submit, extend = EngineClient.submit, EngineClient.extend

    def submitted(self: EngineClient, request: frames.Generate):  # type: ignore[no-untyped-def]
        found.append((request.text, request.final))
        return submit(self, request)

    def extended(self: EngineClient, request_id: str, text: str, final: bool) -> None:
        found.append((text, final))
        extend(self, request_id, text, final)

    monkeypatch.setattr(EngineClient, "submit", submitted)
    monkeypatch.setattr(EngineClient, "extend", extended)
    return found


async def collect(speaker: Speaker) -> list[Piece]:
    return [piece async for piece in speaker]


async def test_a_segment_grows_while_it_is_spoken(make_client: MakeClient, sent: list[tuple[str, bool]]) -> None:
    speaker = Speaker(await make_client(), "context", SETTINGS, paced=False)
    speaker.add(segment(0, BEGIN))
    first = await anext(speaker)
    assert (first.segment.text, first.done) == (BEGIN, False)
    reading = asyncio.ensure_future(anext(speaker))
    await asyncio.sleep(0)  # it waits for the next piece, which is made of the longer text
    speaker.extend(segment(0, MORE))
    assert (await reading).segment.text == MORE
    speaker.extend(segment(0, WHOLE, final=True))
    speaker.end()
    rest = await collect(speaker)
    assert [piece.done for piece in rest] == [False] * 5 + [True]
    assert {piece.segment.text for piece in rest} == {WHOLE}
    assert sent == [(BEGIN, False), (MORE, False), (WHOLE, True)]
    speaker.close()


async def test_a_segment_that_waits_is_submitted_as_it_has_become(
    make_client: MakeClient, sent: list[tuple[str, bool]]
) -> None:
    speaker = Speaker(await make_client(), "context", SETTINGS, paced=False)
    for index in range(2):
        speaker.add(segment(index, "four", final=True))
    speaker.add(segment(2, BEGIN))
    speaker.extend(segment(2, MORE))
    assert sent == [("four", True)] * 2
    speaker.extend(segment(2, WHOLE, final=True))
    speaker.end()
    pieces = await collect(speaker)
    assert sent[2:] == [(WHOLE, True)]
    assert sum(len(piece.pcm) for piece in pieces if piece.segment.index == 2) == 7 * 5120
    speaker.close()


async def test_what_is_over_is_not_extended(make_client: MakeClient, sent: list[tuple[str, bool]]) -> None:
    speaker = Speaker(await make_client(), "context", SETTINGS)
    speaker.add(segment(0, "four", final=True))
    speaker.extend(segment(1, WHOLE))
    speaker.end()
    await collect(speaker)
    speaker.extend(segment(0, "four more"))
    speaker.close()
    speaker.extend(segment(0, "four more"))
    assert sent == [("four", True)]


async def test_closing_while_a_segment_is_open_ends_its_reader(make_client: MakeClient) -> None:
    client = await make_client()
    speaker = Speaker(client, "context", SETTINGS, paced=False)
    speaker.add(segment(0, BEGIN))
    reading = asyncio.ensure_future(collect(speaker))
    await until(lambda: bool(client.stats) and client.stats[0].awaiting_text == 1)
    assert speaker.num_streams
    speaker.close()
    speaker.extend(segment(0, WHOLE, final=True))
    await asyncio.wait_for(reading, 20)
    await until(lambda: client.stats[0].contexts == 0 and client.stats[0].awaiting_text == 0)


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (lambda client, speaker: os.kill(worker_pids(client)[0], signal.SIGKILL), EngineLost),
        (lambda client, speaker: speaker.extend(segment(0, "another text")), InvalidRequest),
    ],
    ids=["worker killed", "refused by the engine"],
)
async def test_what_befalls_an_open_segment_is_told_after_the_audio_before_it(
    make_client: MakeClient, harm: Callable[[EngineClient, Speaker], None], error: type[Exception]
) -> None:
    client = await make_client()
    speaker = Speaker(client, "context", SETTINGS, paced=False)
    speaker.add(segment(0, BEGIN))
    assert (await anext(speaker)).pcm
    harm(client, speaker)
    with pytest.raises(error):
        await collect(speaker)
    speaker.extend(segment(0, WHOLE, final=True))
    speaker.close()


async def test_a_stream_of_text_is_spoken_from_its_first_words_on(
    make_client: MakeClient, sent: list[tuple[str, bool]]
) -> None:
    heard = asyncio.Event()

    async def written() -> AsyncIterator[str]:
        for piece in ("One two ", "three four ", "five six"):
            yield piece
            await asyncio.sleep(0.001)
        await heard.wait()  # the sentence goes on when it has begun to sound
        yield " seven eight."

    speaker = Speaker(await make_client(), "context", SETTINGS, paced=False)
    planner = PlannerFactory(None, 70, None).make("en", live=True)
    feeding = asyncio.create_task(speak_text(TextSource(written()), planner, speaker))
    first = await asyncio.wait_for(anext(speaker), 10)
    assert not first.segment.final
    heard.set()
    *_, last = await collect(speaker)
    await feeding
    assert (last.segment.index, last.segment.text, last.done) == (0, "One two three four five six seven eight.", True)
    texts = [text for text, _ in sent]
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert [final for _, final in sent] == [False] * (len(sent) - 1) + [True]
    assert last.audio_ms == pytest.approx(160 * 10)
    speaker.close()
