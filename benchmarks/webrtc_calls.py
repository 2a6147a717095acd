"""Calls to the WebRTC bot: time to first audio, time to silence, accuracy of the history.

    SERVER_PYTHON=.venv/bin/python .venv-agents/bin/python -m benchmarks.webrtc_calls --turns 50
    SERVER_PYTHON=.venv/bin/python .venv-agents/bin/python -m benchmarks.webrtc_calls --page --seconds 180

Starts `realtime-tts serve` with the starter voice and the bot, whose answers are written at 20 tokens a second, each in
a process of its own, and calls over loopback. The caller is aiortc, with a player that holds two packets back, and
interrupts by voice and by the button in turn; or Chromium (`--page`), whose microphone says a word every few seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
import wave
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aioice.ice
import numpy as np
from aiohttp import web
from realtime_tts_client.decoding import Decoder

from benchmarks.agent_rooms import STORIES, running_speech, spread
from benchmarks.webrtc_caller import FRAME_S, FRAME_SAMPLES, RATE_HZ, Caller, Received, calling

sys.path.insert(0, str(Path(__file__).parents[1] / "agents"))

from conversation import History
from script import TOKENS_PER_SECOND, tokens
from webrtc_bot import OPUS, Bot

AUDIBLE = 0.003  # of full scale: above an encoder's near silence
PAUSE_S = 6.0  # of the page's caller
PAGE_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-proxy-server",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--allow-loopback-in-peer-connection",
    "--autoplay-policy=no-user-gesture-required",
)
OBSERVER = """
window.__seen = [];
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const note = (kind, detail) => __seen.push([now(), kind, detail ?? null]);
__call.addEventListener('told', ({ detail }) => note(detail.type, detail.turn ?? null));
const levels = { speech: [__call.arriving, false], voice: [__call.mine, false] };
const samples = new Float32Array(256);
setInterval(() => {
  for (const [kind, state] of Object.entries(levels)) {
    state[0].getFloatTimeDomainData(samples);
    const loud = samples.some((sample) => Math.abs(sample) > 0.003);
    if (loud && !state[1]) note(kind);
    if (loud) state[2] = now();
    state[1] = loud || (state[1] && now() - state[2] < 0.3);
  }
}, 4);
"""


@dataclass
class Figures:
    """Milliseconds, one of each turn that has it."""

    to_packet: list[float] = field(default_factory=list)  # first token → its first RTP packet at the caller
    to_ear: list[float] = field(default_factory=list)  # → first audible sample played
    token_to_ear: list[float] = field(default_factory=list)
    voice_to_silence: list[float] = field(default_factory=list)
    button_to_last_packet: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # longest of each turn
    words_off: list[int] = field(default_factory=list)  # history − heard
    num_resurrected: int = 0


def serve_bot(tts_url: str, tell: Connection) -> None:
    """Main function of the bot's process. It sends its port, then the time of each answer's first token."""
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]

    async def answer(history: History) -> AsyncIterator[str]:
        num_given = sum(line["role"] == "assistant" for line in history)
        for index, token in enumerate(tokens(STORIES[num_given % len(STORIES)])):
            if index:
                await asyncio.sleep(1 / TOKENS_PER_SECOND)
            else:
                tell.send(time.time())
            yield token

    async def run() -> None:
        runner = web.AppRunner(Bot(tts_url, answer=answer).application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        tell.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def running_bot(tts_url: str) -> Iterator[tuple[str, Connection]]:
    """Run the bot. Yield its address, and the pipe with the times of first tokens."""
    told, tell = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=serve_bot, args=(tts_url, tell))
    process.start()
    try:
        yield f"http://127.0.0.1:{told.recv()}", told
    finally:
        process.kill()
        process.join()


# ---- aiortc calls ----------------------------------------------------------------------------------------------------


async def converse(url: str, told: Connection, options: argparse.Namespace) -> Figures:
    figures, chance = Figures(), random.Random(options.seed)
    noise = np.random.default_rng(1).normal(0, 4000, RATE_HZ // 2).astype(np.int16)
    async with calling(url) as caller:
        for number in range(1, options.turns + 1):
            since = len(caller.received)
            await until(lambda turn=number: any(run["turn"] == turn for run in caller.messages("run")))
            await until(told.poll)
            token_at = told.recv() - time.time() + time.monotonic()
            await asyncio.sleep(chance.uniform(1.0, 4.0))
            by_voice = number % 2 == 0
            asked_at = time.monotonic()
            if by_voice:
                caller.microphone.say(noise)
            else:
                caller.interrupt()
            await until(lambda turn=number: len(caller.messages("heard")) >= turn)
            await asyncio.sleep(0.5)
            note(figures, caller, number, since, token_at, asked_at, by_voice)
            if not by_voice:  # and then something is said, to be answered
                caller.microphone.say(noise)
    return figures


def note(
    figures: Figures, caller: Caller, number: int, since: int, token_at: float, asked_at: float, by_voice: bool
) -> None:
    packets = [one for one in caller.received[since:] if not one.is_silence]
    played = [one for one in caller.played if one.timestamp in {packet.timestamp for packet in packets}]
    cut_at = caller.at("cut")
    figures.to_packet.append(1000 * (packets[0].at - token_at))
    audible_at = first_audible(caller, played)
    figures.to_ear.append(1000 * (audible_at - packets[0].at))
    figures.token_to_ear.append(1000 * (audible_at - token_at))
    if by_voice and caller.microphone.spoke_at is not None:
        figures.voice_to_silence.append(1000 * (cut_at - caller.microphone.spoke_at))
    else:
        figures.button_to_last_packet.append(1000 * max(0.0, packets[-1].at - asked_at))
    figures.num_resurrected += any(one.at > cut_at for one in packets)
    steps = [(b.timestamp - a.timestamp) % (1 << 32) for a, b in itertools.pairwise(packets)]
    figures.gaps.append(1000 * (max(steps, default=FRAME_SAMPLES) - FRAME_SAMPLES) / RATE_HZ)
    words = [word for told in caller.messages("words") if told["turn"] == number for word in told["words"]]
    heard_ms = len(played) * FRAME_S * 1000
    text = caller.messages("heard")[number - 1]["text"]
    figures.words_off.append(len(text.split()) - sum(word["end_ms"] <= heard_ms for word in words))


def first_audible(caller: Caller, played: list[Received]) -> float:
    """When the player has come to the first sample that can be heard."""
    decoder, position = Decoder(OPUS), 0
    for packet in played:
        samples = decoder.decode(packet.payload)
        loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
        if len(loud):
            begun_at = caller.played_at[(played[0].timestamp)]
            return begun_at + (position + int(loud[0]) + 312) / RATE_HZ
        position += len(samples)
    raise AssertionError("nothing could be heard")


async def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


def report(title: str, rows: dict[str, Sequence[float]]) -> None:
    print(f"\n{title}")
    for name, values in rows.items():
        print(f"  {name:44} {spread(values)}")


# ---- Chromium calls --------------------------------------------------------------------------------------------------


def converse_in_page(url: str, told: Connection, seconds: float, directory: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    burst = np.random.default_rng(1).normal(0, 0.2, int(0.6 * RATE_HZ))
    shape = np.sin(np.linspace(0, 6 * np.pi, len(burst))) ** 2
    samples = np.concatenate([np.zeros(int(PAUSE_S * RATE_HZ)), burst * shape, np.zeros(int(0.4 * RATE_HZ))])
    with wave.open(str(directory / "caller.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    options = Options()
    capture = f"--use-file-for-fake-audio-capture={directory / 'caller.wav'}"
    for flag in (*PAGE_FLAGS, capture, f"--user-data-dir={directory / 'profile'}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    driver: Any = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(f"{url}/?test=1")
        driver.find_element("id", "call").click()
        while not driver.execute_script("return window.__call !== undefined"):
            time.sleep(0.01)
        driver.execute_script(OBSERVER)
        time.sleep(seconds)
        seen = driver.execute_script("return __seen")
        stats = driver.execute_script(
            "return __call.receiver.getStats()"
            ".then((all) => [...all.values()].find((one) => one.type === 'inbound-rtp'))"
        )
    finally:
        driver.quit()
    token_times = []
    while told.poll():
        token_times.append(told.recv())
    token_to_ear = [
        1000 * (min(at for at, kind, _ in seen if kind == "speech" and at > token_at) - token_at)
        for token_at in token_times
        if any(kind == "speech" and at > token_at for at, kind, _ in seen) and token_at > seen[0][0]
    ]
    voice_to_silence = [
        1000 * (at - max(spoke for spoke, kind, _ in seen if kind == "voice" and spoke < at))
        for at, what, _ in seen
        if what == "cut" and any(kind == "voice" and spoke < at for spoke, kind, _ in seen)
    ]
    rows = {
        "first token → audible in the page, ms": token_to_ear,
        "voice at the microphone → silence": voice_to_silence,
    }
    report(f"Chromium, {seconds:.0f} s", rows)
    delay = 1000 * stats["jitterBufferDelay"] / stats["jitterBufferEmittedCount"]
    print(f"  jitter buffer {delay:.0f} ms on average; {stats['packetsLost']} packets lost")
    print(f"  concealed samples: {stats['concealedSamples']} of {stats['totalSamplesReceived']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="call from Chromium")
    parser.add_argument("--seconds", type=float, default=180, help="of the call from Chromium")
    options = parser.parse_args()
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    with running_speech() as tts_url, running_bot(tts_url) as (url, told):
        if options.page:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
                converse_in_page(url, told, options.seconds, Path(directory))
            return
        figures = asyncio.run(converse(url, told, options))
    rows = {
        "first token → first packet at the caller, ms": figures.to_packet,
        "  → audible sample played": figures.to_ear,
        "first token → audible": figures.token_to_ear,
        "voice → silence": figures.voice_to_silence,
        "button (silent at once) → last packet": figures.button_to_last_packet,
        "longest gap of a turn": figures.gaps,
    }
    report(f"aiortc, {len(figures.to_ear)} turns", rows)
    print(f"  turns with a gap above 60 ms: {sum(gap > 60 for gap in figures.gaps)}")
    print(f"  turns of which a packet came after the cut: {figures.num_resurrected}")
    counts = {off: figures.words_off.count(off) for off in sorted(set(figures.words_off))}
    print(f"  words in the history − words heard: {counts}")


if __name__ == "__main__":
    main()
