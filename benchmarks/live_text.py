"""Time to first packet of a reply that an LLM is still writing, in live mode and in clause mode.

    python -m benchmarks.live_text --rates 20 60 --json live_text.json

Tokens are sent over a WebSocket at a steady rate. Measured are the time from the first token to the first packet, and
the gaps that a player without a buffer would have heard after it. The text has caused a gap if the text that the engine
requires for that place was not written when the late packet had to be begun. Both modes take turns at each text, so
that what else runs on the machine meets both. A turn is cut off when all of its text is written and two seconds more
are heard.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm
from websockets.asyncio.client import ClientConnection

from benchmarks.devices import written_s
from benchmarks.sentences import REPLIES
from realtime_tts.bench.native_stream import open_stream
from realtime_tts.bench.native_stream import speak as speak_on
from realtime_tts.bench.report import figure, table, write_json
from realtime_tts.bench.server_process import running_server
from realtime_tts.bench.streams import Heard, gaps
from realtime_tts.bench.texts import tokens

MODES = ("live", "clause")
RATES = (5, 10, 20, 60, 200)  # tokens a second
MAKING_S = 0.15  # from received text to a packet made from it
AUDIBLE_MS = 60.0  # a gap that a listener may notice
LISTEN_S = 2.0  # after the last token
Turns = Mapping[tuple[float, str], Sequence[Heard]]  # by rate and mode


async def speak(socket: ClientConnection, name: str, text: str, mode: str, rate: float) -> Heard:
    """Write one reply and listen to it.

    Raises:
        RuntimeError: it failed.
    """
    heard = await speak_on(
        socket,
        name,
        text,
        token_gap_s=1 / rate,
        cancel_after_s=len(tokens(text)) / rate + LISTEN_S,
        params={"mode": mode, "seed": 0},
    )
    if heard.error:
        raise RuntimeError(heard.error)
    return heard


async def measure(url: str, rates: list[float], num_texts: int) -> Turns:
    """Speak each text at each rate in both modes, which take turns at being first."""
    turns: dict[tuple[float, str], list[Heard]] = defaultdict(list)
    async with await open_stream(url) as socket:
        await speak(socket, "warm", REPLIES[0], "live", 60)
        for rate in rates:
            for number in tqdm(range(num_texts), f"{rate:g} tokens/s"):
                for mode in MODES if number % 2 else reversed(MODES):
                    text = REPLIES[number % len(REPLIES)]
                    turns[rate, mode].append(await speak(socket, f"{rate:g}-{number}-{mode}", text, mode, rate))
    return turns


def gaps_ms(turn: Heard) -> tuple[float, float]:
    """Return a turn's longest gap that is ours, and the duration of all that are the text's."""
    ours, texts = [0.0], [0.0]
    for began_s, length_s, begins_s in gaps(turn.chunks, 0.0):
        is_texts = written_s(turn, begins_s) > began_s + length_s - MAKING_S
        (texts if is_texts else ours).append(1000 * length_s)
    return max(ours), sum(texts)


def summary(turns: Turns) -> list[dict[str, Any]]:
    """A row for each rate and mode."""
    rows = []
    for (rate, mode), heard in turns.items():
        firsts_ms = [1000 * turn.first_s for turn in heard]
        ours_ms, waits_ms = zip(*map(gaps_ms, heard), strict=True)
        rows.append(
            {
                "rate": rate,
                "mode": mode,
                "turns": len(heard),
                "first_packet_ms_p50": float(np.median(firsts_ms)),
                "first_packet_ms_max": max(firsts_ms),
                "turns_with_audible_gaps": sum(gap_ms > AUDIBLE_MS for gap_ms in ours_ms),
                "longest_gap_ms": max(ours_ms),
                "text_wait_ms_p50": float(np.median(waits_ms)),
                "text_wait_ms_max": max(waits_ms),
            }
        )
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """Return the table; gaps are those that the text did not cause, waits those that it did."""
    header = ["tokens/s", "mode", "turns", "first packet p50 ms", "max", "turns with gaps", "longest ms"]
    cells = [[value if isinstance(value, str) else figure(value) for value in row.values()] for row in rows]
    return table([*header, "waits p50 ms", "max"], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES), help="tokens a second")
    parser.add_argument("--texts", type=int, default=len(REPLIES), help=f"at each rate (default {len(REPLIES)})")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags for the server; last")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    with running_server(*arguments.serve) as server:
        turns = asyncio.run(measure(server.stream_url, arguments.rates, arguments.texts))
    rows = summary(turns)
    print(report(rows))
    if arguments.json:
        write_json(arguments.json, rows)


if __name__ == "__main__":
    main()
