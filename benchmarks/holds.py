"""Where speech stops after `hold`, and how it goes on: through a server, by the audio and not by the words it reports.

    python -m benchmarks.holds --json holds.json

A listener plays sentences of the starter voice, orders holds at random moments, and releases them at the next word or
at the clause. Whole and live text take turns. Times are positions of the listener's playback, so the machine's speed
does not count. A forced alignment of the audio says where words end.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import realtime_tts_client as client
from tqdm import tqdm

from benchmarks.recognition import Aligner
from benchmarks.sentences import evaluation_sentences
from realtime_tts.bench.report import figure, table, write_json
from realtime_tts.bench.server_process import running_server
from training.speech_metrics import jumps_at

RATE_HZ = 16_000
STEP_MS = (300.0, 1500.0)  # what is heard before a hold
LEAD_MS = 1000.0  # what a listener has ahead of playback, as in real time
FADE_MS = 8.0  # of the browser client's player
INSIDE_MS = 80.0  # from both ends of an aligned word; 95 % of measured word times are that exact
ROUNDED_MS = 0.6  # what times of words and of packets may differ by
Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class Hold:
    """A hold, in ms of the context's audio. goes_on_ms: where it was released. is_inside: it stopped inside a word as
    reported by then, or behind the end of the word in which it was ordered."""

    ordered_ms: float
    stopped_ms: float
    goes_on_ms: float
    is_inside: bool


@dataclasses.dataclass
class Speech:
    """A text as it was spoken and held. pcm: int16, each sample once."""

    text: str
    pcm: Array
    holds: list[Hold]
    ends_ms: list[float]  # of its words, as reported


async def _pieces(text: str) -> AsyncIterator[str]:
    for piece in text.split(" "):
        yield piece + " "
        await asyncio.sleep(0.01)


async def listen(session: client.Session, text: str, live: bool, rng: random.Random) -> Speech:
    """Have a text spoken, hold it at random, and hear it to its end."""
    context = session.speak(_pieces(text) if live else text, playback="manual")
    packets: dict[float, bytes] = {}
    speech = Speech(text, np.zeros(0, np.int16), [], [])
    begin_ms = taken_ms = 0.0

    async def take_until(end_ms: float) -> bool:
        nonlocal taken_ms
        while taken_ms < end_ms - 0.01:
            packet = await anext(context, None)
            if packet is None:
                return False
            packets.setdefault(packet.start_ms, packet.payload)
            taken_ms = packet.start_ms + packet.duration_ms
            session.played(context, min(end_ms, taken_ms))
        return True

    while await take_until(ordered_ms := begin_ms + rng.uniform(*STEP_MS)):
        session.played(context, ordered_ms)
        while context.done is None and context.queued_ms < LEAD_MS:  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0.005)
        held = await context.hold()
        stopped_ms, is_inside = held.played_ms, _is_inside(context.words, ordered_ms, held)
        await take_until(stopped_ms)
        goes_on_ms = await context.release(clause_after_ms=rng.choice([0.0, 1e6]))
        speech.holds.append(Hold(ordered_ms, stopped_ms, goes_on_ms, is_inside))
        if goes_on_ms < stopped_ms:  # hear the clause again, without another hold in it
            taken_ms = goes_on_ms
            await take_until(stopped_ms)
        begin_ms = stopped_ms
    speech.ends_ms = [word.end_ms for word in context.words]
    speech.pcm = np.concatenate([np.frombuffer(packets[start], "<i2") for start in sorted(packets)])
    return speech


def _is_inside(words: Sequence[client.Word], ordered_ms: float, held: client.Spoken) -> bool:
    """Return `Hold.is_inside`. The end of the last word is an estimate that may lie behind the audio."""
    stopped_ms = held.played_ms
    inside = [word for word in words if word.start_ms + ROUNDED_MS < stopped_ms < word.end_ms - ROUNDED_MS]
    ends_ms = (word.end_ms for word in words if word.start_ms < ordered_ms < word.end_ms)
    is_whole = inside == words[-1:] and held.chars >= words[-1].end
    return bool(inside and not is_whole) or stopped_ms > next(ends_ms, ordered_ms) + ROUNDED_MS


def word_times_ms(speech: Speech, aligner: Aligner) -> list[tuple[float, float]] | None:
    """Return starts and ends of the words by forced alignment, or None if they are not found."""
    words = re.findall(r"[a-z']+", speech.text)
    found = aligner.word_times_s(words, speech.pcm.astype(np.float32) / 32768, RATE_HZ)
    return None if found is None else [(1000 * start, 1000 * end) for start, end in found]


def _samples(position_ms: float) -> int:
    return round(position_ms * RATE_HZ / 1000)


def edge_jump(pcm: Array, hold: Hold) -> float:
    """Return the larger jump over local RMS at the two edges of a pause, both faded as the browser client does."""
    num_faded = _samples(FADE_MS)
    before = pcm[max(0, _samples(hold.stopped_ms) - RATE_HZ // 10) : _samples(hold.stopped_ms)].astype(np.float64)
    after = pcm[_samples(hold.goes_on_ms) :][: RATE_HZ // 10].astype(np.float64)
    before[-num_faded:] *= np.linspace(1, 0, len(before[-num_faded:]))
    after[:num_faded] *= np.linspace(0, 1, len(after[:num_faded]))
    joined = np.concatenate([before, np.zeros(RATE_HZ // 10), after])
    jumps = jumps_at(joined, [len(before), len(before) + RATE_HZ // 10])
    return float(jumps.max(initial=0.0))


def measure(url: str, num_holds: int, seed: int = 0) -> dict[str, float]:
    """Return the figures of at least so many holds of aligned sentences."""
    rng, aligner = random.Random(seed), Aligner()
    texts = [text for text in evaluation_sentences() if len(text) > 40]
    heard: list[tuple[Speech, list[tuple[float, float]]]] = []  # with the times of its words
    num_lost = 0

    async def run() -> None:
        nonlocal num_lost
        audio = client.AudioFormat("pcm_s16le", sample_rate=RATE_HZ)
        async with client.connect(url, audio=audio) as session:
            with tqdm(total=num_holds) as progress:
                for number, text in enumerate(texts):
                    speech = await listen(session, text, live=number % 2 == 1, rng=rng)
                    if (times := word_times_ms(speech, aligner)) is None:
                        num_lost += 1
                        continue
                    heard.append((speech, times))
                    progress.update(len(speech.holds))
                    if progress.n >= num_holds:
                        return

    asyncio.run(run())
    held = [(hold, times) for speech, times in heard for hold in speech.holds]
    silences_ms = [hold.stopped_ms - hold.ordered_ms for hold, _ in held]
    inside_ms = [_depth_ms(times, hold.stopped_ms) for hold, times in held]
    told_inside_ms = [_depth_ms(times, end_ms) for speech, times in heard for end_ms in speech.ends_ms[:-1]]
    off_ms = [said - end for speech, times in heard for said, (_, end) in zip(speech.ends_ms, times, strict=True)]
    return {
        "holds": len(held),
        "sentences_not_aligned": num_lost,
        "silence_p50_ms": float(np.percentile(silences_ms, 50)),
        "silence_p95_ms": float(np.percentile(silences_ms, 95)),
        "silence_max_ms": max(silences_ms),
        "inside_reported_word": sum(hold.is_inside for hold, _ in held),
        "at_word_end": float(np.mean([depth <= INSIDE_MS for depth in inside_ms])),
        "reported_ends_at_word_end": float(np.mean([depth <= INSIDE_MS for depth in told_inside_ms])),
        "inside_p95_ms": float(np.percentile(inside_ms, 95)),
        "jump_max": max(edge_jump(speech.pcm, hold) for speech, _ in heard for hold in speech.holds),
        "word_end_p50_ms": float(np.percentile(np.abs(off_ms), 50)),
        "word_end_p95_ms": float(np.percentile(np.abs(off_ms), 95)),
        "word_end_median_ms": float(np.median(off_ms)),
    }


def _depth_ms(times: Sequence[tuple[float, float]], position_ms: float) -> float:
    """Return how far inside a word a position is: the distance to its nearer end, or 0 between words."""
    return max(0.0, max(min(position_ms - start, end - position_ms) for start, end in times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with running_server() as server:
        figures = measure(server.url.replace("http", "ws"), arguments.holds, arguments.seed)
    print(table(["figure", "value"], [[name, figure(value)] for name, value in figures.items()]))
    if arguments.json:
        write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
