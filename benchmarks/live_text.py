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

from realtime_tts.bench.native_stream import HEADER, TERMINAL, open_stream
from realtime_tts.bench.server_process import running_server
from realtime_tts.bench.texts import tokens

MODES = ("live", "clause")
RATES = (5, 10, 20, 60, 200)  # tokens a second
AHEAD_CHARS = 24  # two words to begin with, or fourteen characters and the words that they lie in
MAKING_S = 0.15  # from received text to a packet made from it
AUDIBLE_S = 0.06  # a gap that a listener may notice
LISTEN_S = 2.0  # after the last token
STAGGER_S = 0.7  # between the starts of concurrent listeners
REPLIES = (
    "Sure, I can help you with that. What is the number on your order?",
    "Your table is booked for four people at half past seven, and they will keep it for fifteen minutes.",
    "Of course! Let me check that for you, it should only take a moment.",
    "The next train to the city leaves in ten minutes from platform 4, and it takes about an hour.",
    "I found three hotels near the station that have a free room tonight, the cheapest one costs $85.",
    "That is a good question, and the answer depends on how much time you have.",
    "It looks like your package left the warehouse on Monday morning and should arrive before the end of the week.",
    "Okay, I have changed your appointment to Thursday at 3:30 in the afternoon. Is there anything else?",
    "Unfortunately the doctor has no time before Friday, but I can put you on the list for an earlier day.",
    "The weather will be mostly sunny tomorrow with a light wind from the west, so you will not need an umbrella.",
    "You can pick it up at the shop on the corner, which is open until nine.",
    "Thank you for waiting. I have spoken with my colleague, and she says that the money will be back in five days.",
    "I am sorry to hear that. Could you tell me what you see on the screen right now?",
    "There are two ways to do this, and the first one is a little faster than the other.",
    "Please turn the device off, wait for about 30 seconds, and then turn it on again.",
    "Yes, you can bring a small bag with you as long as it fits under the seat in front of you.",
    "Great choice! Would you like to add a drink or something sweet to your order before I send it off?",
    "According to our notes you moved to a new address in March, so the letter may have gone to the old one.",
    "I would suggest the blue one because it is lighter and keeps the water warm for a longer time.",
    "The museum opens at ten in the morning and closes at six, except on Mondays when it is closed all day.",
    "Before we go on, let me make sure that I understood you correctly.",
    "We have received your payment of 120 dollars, and you will get a receipt by mail within the next hour.",
    "To change your password, open the settings, choose your account, and follow the steps on the screen.",
    "No problem at all. I will call you back as soon as the driver has told me where he is.",
    "The fastest way to get there is to take the second road on the left and follow the river for two miles.",
    "Well, it depends. If you leave now you will be there by noon, but the traffic is heavy at this time of day.",
    "I have added milk, bread and a dozen eggs to your list, and I put the apples at the top.",
    "Your flight has been moved to gate 22 and will leave about twenty minutes later than planned.",
    "Let us start with something simple and see how it goes, then we can always try the harder ones later on.",
    "The meeting is set for nine o'clock on Wednesday and I have sent an invitation to everybody on the team.",
    "Hello and welcome back! Shall we go on where we stopped last time or would you like to begin with a new story?",
    "If the light is still red after a minute, hold the button down until you hear a short sound.",
)


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

    @property
    def first_packet_s(self) -> float:
        return self.packets[0][0]

    def gaps(self) -> list[tuple[float, bool]]:
        """Return the underruns of a player that starts at the first packet without a buffer: seconds, and whether late
        text was the cause."""
        found: list[tuple[float, bool]] = []
        play_at_s = self.first_packet_s
        for arrived_s, begins_s in self.packets:
            late_s = arrived_s - (play_at_s + begins_s)
            if late_s > 1e-3:
                play_at_s += late_s
                found.append((late_s, self._wants_text(arrived_s, begins_s)))
        return found

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


async def measure(url: str, rates: list[float], num_texts: int, num_streams: int = 1) -> list[Turn]:
    """`num_streams` listeners at a time share the texts; all of them hear one mode while the turns go in step."""
    sockets = [await open_stream(url) for _ in range(num_streams)]
    for socket in sockets:
        await speak(socket, "warm", REPLIES[0], "live", 60)
    turns: list[Turn] = []
    with tqdm(total=len(rates) * num_texts * len(MODES)) as bar:

        async def listen(place: int, rate: float) -> None:
            await asyncio.sleep(place * STAGGER_S)
            for turn, number in enumerate(range(place, num_texts, num_streams)):
                for mode in MODES if turn % 2 else reversed(MODES):
                    text = REPLIES[number % len(REPLIES)]
                    turns.append(await speak(sockets[place], f"{rate:g}-{number}-{mode}", text, mode, rate))
                    bar.update()

        for rate in rates:
            await asyncio.gather(*(listen(place, rate) for place in range(num_streams)))
    for socket in sockets:
        await socket.close()
    return turns


def summary(turns: list[Turn]) -> list[dict[str, Any]]:
    """A row for each rate and mode."""
    rows = []
    for rate, mode in dict.fromkeys((turn.rate, turn.mode) for turn in turns):
        mine = [turn for turn in turns if (turn.rate, turn.mode) == (rate, mode)]
        firsts_ms = [1000 * turn.first_packet_s for turn in mine]
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


def print_report(rows: list[dict[str, Any]]) -> None:
    print("first packet, ms after the first token; gaps after it that the text did not cause, and waits that it did")
    print(
        f"{'tokens/s':>8} {'mode':<7} {'turns':>5} {'p50':>6} {'max':>6}   turns with gaps (longest)   waits p50 / max"
    )
    for row in rows:
        gaps = f"{row['turns_with_audible_gaps']} ({row['longest_gap_ms']:.0f} ms)"
        waits = f"{row['text_wait_ms_p50']:.0f} / {row['text_wait_ms_max']:.0f} ms"
        print(
            f"{row['rate']:8g} {row['mode']:<7} {row['turns']:5d} {row['first_packet_ms_p50']:6.0f} "
            f"{row['first_packet_ms_max']:6.0f}   {gaps:<27} {waits}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES), help="tokens a second")
    parser.add_argument("--texts", type=int, default=len(REPLIES), help=f"at each rate (default {len(REPLIES)})")
    parser.add_argument("--streams", type=int, default=1, help="listeners at the same time (default 1)")
    parser.add_argument("--url", help="of a running server's /v1/stream; without it one is started, with --serve")
    parser.add_argument(
        "--serve", nargs=argparse.REMAINDER, default=[], help="flags for the server that is started; last"
    )
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    if arguments.url:
        turns = asyncio.run(measure(arguments.url, arguments.rates, arguments.texts, arguments.streams))
    else:
        with running_server(*arguments.serve) as server:
            turns = asyncio.run(measure(server.stream_url, arguments.rates, arguments.texts, arguments.streams))
    rows = summary(turns)
    print_report(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
