"""Time to first packet of a reply that an LLM is still writing, in live mode and in clause mode.

    python -m benchmarks.live_text --rates 20 60 --json live_text.json

Tokens are sent over a WebSocket at a steady rate. Measured are the time from the first token to the first packet, and
the gaps that a player without a buffer would have heard after it. The text has caused a gap if less than 24 characters
were written beyond those that had been spoken, when the late packet had to be begun. Both modes take turns at each
text, so that what else runs on the machine meets both. A turn is cut off two seconds after its last token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm
from websockets.asyncio.client import ClientConnection

from benchmarks.sentences import REPLIES
from realtime_tts.bench.native_stream import HEADER, TERMINAL, open_stream
from realtime_tts.bench.report import figure, table, write_json
from realtime_tts.bench.server_process import running_server
from realtime_tts.bench.streams import gaps
from realtime_tts.bench.texts import tokens

MODES = ("live", "clause")
RATES = (5, 10, 20, 60, 200)  # tokens a second
AHEAD_CHARS = 24  # two words to begin with, or fourteen characters and the words that they lie in
MAKING_S = 0.15  # from received text to a packet made from it
AUDIBLE_S = 0.06  # a gap that a listener may notice
LISTEN_S = 2.0  # after the last token


@dataclass
class Turn:
    """One reply. Times in seconds since its first token was sent.

    written: when, and how many characters in all. packets: (arrived, begins in the audio). words: (begins in the audio,
    where it ends in the text).
    """

    text: str
    mode: str
    rate: float
    written: list[tuple[float, int]] = field(default_factory=list)
    packets: list[tuple[float, float]] = field(default_factory=list)
    words: list[tuple[float, int]] = field(default_factory=list)

    def gaps(self) -> list[tuple[float, bool]]:
        """Return the underruns of a player that starts at the first packet without a buffer: seconds, and whether late
        text was the cause."""
        found = gaps(self.packets, 0.0)
        return [(late_s, self._wants_text(due_s + late_s, begins_s)) for due_s, late_s, begins_s in found]

    def _wants_text(self, arrived_s: float, begins_s: float) -> bool:
        """Return whether too little text was written when work on a packet had to begin."""
        when = bisect_right(self.written, arrived_s - MAKING_S, key=lambda entry: entry[0])
        num_written = self.written[when - 1][1] if when else 0
        num_spoken = max((end for start_s, end in self.words if start_s < begins_s), default=0)
        return num_written < min(len(self.text), num_spoken + AHEAD_CHARS)


async def speak(socket: ClientConnection, name: str, text: str, mode: str, rate: float) -> Turn:
    """Write one reply and listen to it.

    Raises:
        RuntimeError: it failed.
    """
    turn = Turn(text, mode, rate)
    begun = time.perf_counter()
    writing = asyncio.create_task(_write(socket, name, turn, begun))
    while True:
        frame = await socket.recv()
        now = time.perf_counter() - begun
        if isinstance(frame, bytes):
            *_, pts = HEADER.unpack_from(frame)
            turn.packets.append((now, pts / 48_000))
            continue
        message = json.loads(frame)
        if message.get("context_id") != name:
            continue
        if message["type"] == "words":
            turn.words += [(word["start_ms"] / 1000, word["end"]) for word in message["words"]]
        elif message["type"] in ("error", "context.failed"):
            raise RuntimeError(f"{message['code']}: {message['message']}")
        elif message["type"] in TERMINAL:
            await writing
            return turn


async def _write(socket: ClientConnection, name: str, turn: Turn, begun: float) -> None:
    num_chars = 0
    for index, token in enumerate(tokens(turn.text)):
        await asyncio.sleep(max(0.0, begun + index / turn.rate - time.perf_counter()))
        num_chars += len(token)
        turn.written.append((time.perf_counter() - begun, num_chars))
        fields = {"context_id": name, "text": token, "params": {"mode": turn.mode, "seed": 0}}
        await socket.send(json.dumps({"type": "text", **fields}))
    await socket.send(json.dumps({"type": "end", "context_id": name}))
    await asyncio.sleep(LISTEN_S)
    await socket.send(json.dumps({"type": "cancel", "context_id": name}))


async def measure(url: str, rates: list[float], num_texts: int) -> list[Turn]:
    """Speak each text at each rate in both modes, which take turns at being first."""
    turns: list[Turn] = []
    async with await open_stream(url) as socket:
        await speak(socket, "warm", REPLIES[0], "live", 60)
        for rate in rates:
            for number in tqdm(range(num_texts), f"{rate:g} tokens/s"):
                for mode in MODES if number % 2 else reversed(MODES):
                    text = REPLIES[number % len(REPLIES)]
                    turns.append(await speak(socket, f"{rate:g}-{number}-{mode}", text, mode, rate))
    return turns


def summary(turns: list[Turn]) -> list[dict[str, Any]]:
    """A row for each rate and mode."""
    rows = []
    for rate, mode in dict.fromkeys((turn.rate, turn.mode) for turn in turns):
        mine = [turn for turn in turns if (turn.rate, turn.mode) == (rate, mode)]
        firsts_ms = [1000 * turn.packets[0][0] for turn in mine]
        own = [[gap_s for gap_s, wants_text in turn.gaps() if not wants_text] for turn in mine]
        waits_ms = [1000 * sum(gap_s for gap_s, wants_text in turn.gaps() if wants_text) for turn in mine]
        rows.append(
            {
                "rate": rate,
                "mode": mode,
                "turns": len(mine),
                "first_packet_ms_p50": float(np.median(firsts_ms)),
                "first_packet_ms_max": max(firsts_ms),
                "turns_with_audible_gaps": sum(max(gaps, default=0.0) > AUDIBLE_S for gaps in own),
                "longest_gap_ms": 1000 * max((gap_s for gaps in own for gap_s in gaps), default=0.0),
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
