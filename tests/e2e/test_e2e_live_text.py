"""Text that is spoken while it is being written: the starter voice, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from stream_client import StreamClient, open_stream
from voices import SAMPLE_RATE_HZ

from benchmarks.live_text import gaps_ms, summary
from benchmarks.recognition import Recogniser, word_error_rate
from benchmarks.sentences import REPLIES
from realtime_tts.bench.server_process import RunningServer
from realtime_tts.bench.streams import Heard
from realtime_tts.bench.texts import tokens

TOKENS_PER_S = 20
PCM = {"codec": "pcm_s16le", "sample_rate": SAMPLE_RATE_HZ, "frame_ms": 20}
SENTENCES = (
    "I will look for a quiet room with a view of the garden for you",
    "the train to the city leaves in ten minutes from the other side of the station",
)


def test_the_benchmark_tells_whose_fault_a_gap_is() -> None:
    """A packet comes 300 ms late, at a place for which 22 characters are required."""
    assert all("".join(tokens(reply)) == reply for reply in REPLIES)

    def turn(num_written: int) -> Heard:
        packets, words = [(1.0, 0.0), (1.9, 0.6)], [(0.0, 0), (0.6, 8), (1.2, 16)]
        return Heard(chunks=packets, written=[(0.0, 8), (1.1, num_written), (1.8, 100)], words=words)

    turns = [turn(21), turn(22)]
    assert [gaps_ms(one) for one in turns] == [(0.0, pytest.approx(300)), (pytest.approx(300), 0.0)]
    [row] = summary({(20.0, "live"): turns})
    assert (row["turns"], row["first_packet_ms_p50"], row["turns_with_audible_gaps"]) == (2, 1000, 1)
    assert (round(row["longest_gap_ms"]), round(row["text_wait_ms_max"])) == (300, 300)


async def write(client: StreamClient, context_id: str, tokens: Sequence[str], seed: int) -> None:
    for token in tokens:
        await client.send("text", context_id=context_id, text=token, audio=PCM, params={"seed": seed})
        await asyncio.sleep(1 / TOKENS_PER_S)


async def hear(client: StreamClient, context_id: str, until: str) -> None:
    """Read, and claim to have heard, until a message of this type."""
    while True:
        message = await client.receive(30)
        assert message["type"] not in ("context.failed", "error"), message
        if message["type"] == "audio":
            await client.send("playback", context_id=context_id, played_ms=1000 * message["pts"] / SAMPLE_RATE_HZ + 20)
        if message["type"] == until:
            return


async def speak_while_writing(client: StreamClient, context_id: str, text: str, seed: int) -> bytes:
    """The second half of a clause is written only when the first half is heard."""
    words = text.split(" ")
    tokens = [words[0], *(" " + word for word in words[1:])]
    writing = asyncio.create_task(write(client, context_id, tokens[:8], seed))
    await hear(client, context_id, until="audio")
    await writing
    writing = asyncio.create_task(write(client, context_id, tokens[8:], seed))
    await hear(client, context_id, until="words")
    await writing
    await client.send("end", context_id=context_id)
    await hear(client, context_id, until="context.done")
    return client.contexts[context_id].audio


async def test_a_sentence_is_begun_before_it_is_written_and_spoken_to_its_end(
    server: RunningServer, recogniser: Recogniser
) -> None:
    heard = []
    async with open_stream(server.stream_url) as client:
        for number, text in enumerate(SENTENCES):
            pcm = await speak_while_writing(client, f"c{number}", text, seed=number)
            heard.append(recogniser.transcribe(np.frombuffer(pcm, "<i2") / np.float32(32768), SAMPLE_RATE_HZ))
            log = client.contexts[f"c{number}"]
            assert " ".join(word["text"] for word in log.words) == text
            starts = [word["start_ms"] for word in log.words]
            assert starts == sorted(starts)
            assert starts[-1] < log.terminal["audio_ms"]  # type: ignore[index]
    assert word_error_rate(SENTENCES, heard) <= 0.2, heard


@pytest.mark.parametrize("end", [True, False], ids=["ended", "stalled"])
async def test_a_piece_that_does_not_go_on_is_spoken_as_it_is(server: RunningServer, end: bool) -> None:
    """By the end of the text, or by the server's limit for a stream that stalls."""
    text = "I will look for a quiet room with a view"
    async with open_stream(server.stream_url) as client:
        await client.send("text", context_id="c", text=text, audio=PCM)
        await hear(client, "c", until="audio")  # spoken though nothing says that it ends here
        if end:
            await client.send("end", context_id="c")
            await hear(client, "c", until="context.done")
        else:
            while not client.contexts["c"].words or client.contexts["c"].words[-1]["text"] != "view":
                await hear(client, "c", until="words")
    assert " ".join(word["text"] for word in client.contexts["c"].words) == text
