"""Voice agent in rooms of a LiveKit server: time to first audio, time to silence, accuracy of the history.

    LIVEKIT_SERVER=… SERVER_PYTHON=.venv/bin/python .venv-agents/bin/python -m benchmarks.agent_rooms --turns 100

Starts everything on this machine: the LiveKit server, `realtime-tts serve` with the starter voice, a worker with the
scripted model at 20 tokens a second, and callers. Each turn is asked for by a typed message and interrupted by another
at a random moment. What is heard is compared with the same speech fetched straight from the server, so the runs whose
history is judged speak by clauses with a fixed seed; the others speak live.

--beside-a-tone: a second LiveKit server, agent and gateway whose worker makes a tone at once, in place of a model; each
turn of ours is followed by one of the tone's. The difference is what speaking costs, whatever else runs on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from realtime_tts_client import AudioFormat, connect

from benchmarks.agent_worker import AgentWorker
from benchmarks.livekit_room import Caller, LiveKitServer, calling, free_port, running_livekit, wait_for_http
from benchmarks.sound_match import decimated, find, last_sounds

ROOT = Path(__file__).resolve().parents[1]
SEED = 7
MEMORY_AFTER = 10  # turns, after which memory should not grow
STORIES = (
    "Once there was a man who lived in a small house near the sea. Every morning he went down to the water, and "
    "every evening he came home with a basket full of fish.",
    "The old house at the end of the road was empty for many years, and nobody knew why. One day a young woman "
    "came with a key, opened the door, and never went away again.",
    "Please remember to bring a warm coat and a good pair of shoes. We leave early in the morning, and the way over "
    "the hill is long, but the view from the top is the best in the country.",
)


TONE = "command tone, " * 20  # what the tests' worker gives a tone for
TONE_OPTIONS = {"text_lag_ms": 80.0, "chars_per_patch": 2.5, "patch_delay_s": 0.01}


Known = dict[str, tuple[np.ndarray[Any, Any], list[float]]]  # for a text: samples, ends of words


@dataclass
class Stack:
    """Processes of a conversation, and its measurements."""

    title: str
    livekit: LiveKitServer
    worker: AgentWorker
    speech_url: str
    stories: Sequence[str]
    known: Known
    processes: dict[str, int]  # by name
    figures: Figures = field(default_factory=lambda: Figures())


@dataclass
class Figures:
    """Milliseconds, one of each turn that has it."""

    to_text: list[float] = field(default_factory=list)  # first token → first text at the plugin
    to_packet: list[float] = field(default_factory=list)  # → first audio from the server
    to_output: list[float] = field(default_factory=list)  # → first frame into the room
    to_ear: list[float] = field(default_factory=list)  # → first audible sample at the caller
    token_to_ear: list[float] = field(default_factory=list)
    to_silence: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # longest of each turn
    words_off: list[int] = field(default_factory=list)  # history − heard, in words
    num_resurrected: int = 0  # turns with old speech heard after an interruption
    num_turns: int = 0
    memory_mib: list[float] = field(default_factory=list)  # of the agent's processes


async def converse(stacks: Sequence[Stack], room: str, options: argparse.Namespace) -> None:
    """One room's turns, of each stack in turn."""
    chance = random.Random(f"{room} {options.seed}")
    async with contextlib.AsyncExitStack() as exits:
        callers = [await exits.enter_async_context(calling(stack.livekit, room)) for stack in stacks]
        for caller in callers:
            await caller.agent_is_here()
        await asyncio.sleep(1.0)
        for _ in range(options.turns):
            after_s = chance.uniform(0.4, 3.5)
            for stack, caller in zip(stacks, callers, strict=True):
                story = chance.choice(stack.stories)
                await turn(caller, stack.worker, room, story, after_s, stack.figures, stack.known)
                await asyncio.sleep(chance.uniform(0.2, 0.6))


async def turn(
    caller: Caller, worker: AgentWorker, room: str, story: str, after_s: float, figures: Figures, known: Known
) -> None:
    asked_at = time.time()
    await caller.type(f"say {story}")
    audible_at = await caller.until_audible(asked_at)
    await asyncio.sleep(after_s)
    await caller.type("/stop")
    interrupted = await worker.until("interrupting", room, asked_at, times=2)
    said_at = (await worker.until("agent", room, interrupted["at"], state="listening"))["at"]
    last = await caller.until_silent(asked_at, for_s=1.0)
    said = [one for one in worker.events("said", room, interrupted["at"]) if one["role"] == "assistant"]
    assert said, f"the agent was silent in {room} at {said_at}"
    figures.num_turns += 1
    figures.memory_mib.append(worker.resident_bytes() / 2**20)
    note_latency(figures, worker, room, asked_at, audible_at, said[0]["metrics"])
    if caller.hearing.audible(interrupted["at"] - 0.03, interrupted["at"] + 0.03):  # not in a pause
        figures.to_silence.append(1000 * (last + 0.01 - interrupted["at"]))
    figures.num_resurrected += last > interrupted["at"] + 0.5
    figures.gaps.append(longest_gap_ms(worker, room, asked_at))
    if story in known:
        spoken, ends_s = known[story]
        position_s, fit = find(last_sounds(caller.hearing.samples(asked_at, last + 0.02)), spoken)
        if fit > 0.7:
            num_heard = sum(end <= position_s for end in ends_s)
            figures.words_off.append(len(said[0]["text"].split()) - num_heard)


def note_latency(
    figures: Figures, worker: AgentWorker, room: str, asked_at: float, audible_at: float, metrics: dict[str, Any]
) -> None:
    token_at = worker.events("first_token", room, asked_at)[0]["token_at"]
    to_text = 1000 * max(0.0, metrics["llm_node_ttfs"] - metrics["llm_node_ttft"])
    to_packet = 1000 * metrics["tts_node_ttfb"]
    to_output = 1000 * (metrics["started_speaking_at"] - token_at) - to_text - to_packet
    figures.to_text.append(to_text)
    figures.to_packet.append(to_packet)
    figures.to_output.append(to_output)
    figures.to_ear.append(1000 * (audible_at - metrics["started_speaking_at"]))
    figures.token_to_ear.append(1000 * (audible_at - token_at))


def longest_gap_ms(worker: AgentWorker, room: str, since: float) -> float:
    """Return the longest gap between consecutive stretches of playback, from the agent's journal."""
    played = worker.events("played", room, since)
    ends = [one["began_at"] + one["duration_s"] for one in played]
    gaps = [1000 * (after["began_at"] - end) for end, after in zip(ends, played[1:], strict=False)]
    return max(gaps, default=0.0)


async def known_speech(speech_url: str) -> Known:
    audio, found = AudioFormat("pcm_s16le", sample_rate=24_000), {}
    params = {"seed": SEED, "mode": "clause"}
    async with connect(speech_url, audio=audio, params=params, playback="consumed") as session:
        for story in STORIES:
            context = session.speak(story)
            samples = np.concatenate([chunk async for chunk in context.pcm("int16")])
            found[story] = decimated(samples, 24_000), [word.end_ms / 1000 for word in context.words]
    return found


@contextlib.contextmanager
def running_speech(pids: dict[str, int] | None = None) -> Iterator[str]:
    """Address of a server with the starter voice."""
    port = free_port()
    python = os.environ.get("SERVER_PYTHON", ".venv/bin/python")
    command = [python, "-m", "realtime_tts", "serve", "--port", str(port), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for_http(f"http://127.0.0.1:{port}/readyz", process)
            if pids is not None:
                pids["speech server"] = process.pid
            yield f"ws://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@contextlib.contextmanager
def running_tone() -> Iterator[str]:
    """Address of a server whose worker makes a tone."""
    python = os.environ.get("SERVER_PYTHON", ".venv/bin/python")
    command = [python, str(ROOT / "tests/support/serve_fake.py"), "{}", json.dumps(TONE_OPTIONS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            assert process.stdout is not None
            yield str(json.loads(process.stdout.readline())["url"]).replace("http", "ws", 1)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    p50, p95 = np.percentile(values, [50, 95])
    return f"p50 {p50:6.0f}   p95 {p95:6.0f}   max {max(values):6.0f}   of {len(values)}"


def report(title: str, figures: Figures) -> None:
    print(f"\n{title}: {figures.num_turns} turns")
    rows = {
        "first token → text at the plugin, ms": figures.to_text,
        "  → first audio from the server": figures.to_packet,
        "  → into the room": figures.to_output,
        "  → audible at the caller": figures.to_ear,
        "first token → audible": figures.token_to_ear,
        "interruption → silence": figures.to_silence,
        "longest gap of a turn": figures.gaps,
    }
    for name, values in rows.items():
        print(f"  {name:40} {spread(values)}")
    print(f"  turns with a gap above 60 ms: {sum(gap > 60 for gap in figures.gaps)}")
    print(f"  old speech after an interruption: {figures.num_resurrected}")
    if len(figures.memory_mib) > MEMORY_AFTER:
        after, last = figures.memory_mib[MEMORY_AFTER - 1], figures.memory_mib[-1]
        print(f"  the agent's memory after {MEMORY_AFTER} turns {after:.1f} MiB, after the last {last:.1f}")
    if figures.words_off:
        counts = {off: figures.words_off.count(off) for off in sorted(set(figures.words_off))}
        print(f"  words in the history − words heard: {counts}")


def cpu_s(processes: dict[str, int]) -> dict[str, float]:
    """Return the processor time, s, of each process with its children, and of this process."""
    spent = {}
    for name, pid in {**processes, "callers": os.getpid()}.items():
        family = [psutil.Process(pid)]
        family += [] if name == "callers" else family[0].children(recursive=True)
        spent[name] = sum(sum(member.cpu_times()[:2]) for member in family)
    return spent


async def run(options: argparse.Namespace) -> list[Figures]:
    flags = ["--mode", options.mode, "--history", options.history]
    flags += ["--seed", str(SEED)] if options.mode == "clause" else []
    with contextlib.ExitStack() as exits:

        def start(title: str, speech_url: str, stories: Sequence[str], known: Known, pids: dict[str, int]) -> Stack:
            livekit = exits.enter_context(running_livekit(os.environ["LIVEKIT_SERVER"], pids))
            directory = Path(exits.enter_context(tempfile.TemporaryDirectory()))
            worker = exits.enter_context(AgentWorker(livekit.environment(), speech_url, directory, *flags))
            pids["agent"] = worker.process.pid
            return Stack(title, livekit, worker, speech_url, stories, known, pids)

        pids: dict[str, int] = {}
        speech_url = exits.enter_context(running_speech(pids))
        known = await known_speech(speech_url) if options.mode == "clause" else {}
        stacks = [start("ours", speech_url, STORIES, known, pids)]
        if options.beside_a_tone:
            stacks.append(start("a tone", exits.enter_context(running_tone()), [TONE], {}, {}))
        rooms = [f"room-{index}" for index in range(options.rooms)]
        began, before_s = time.monotonic(), cpu_s(pids)
        await asyncio.gather(*(converse(stacks, room, options) for room in rooms))
        lasted_s, spent_s = time.monotonic() - began, cpu_s(pids)
    for stack in stacks:
        title = f"{stack.title}, {options.mode}, {options.rooms} room(s), history as {options.history}"
        report(title, stack.figures)
    shares = {name: spent_s[name] - before_s[name] for name in spent_s}
    print("  cores used: " + ", ".join(f"{name} {share / lasted_s:.2f}" for name, share in shares.items()), end="")
    print(f", of {psutil.cpu_count()}")
    return [stack.figures for stack in stacks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=100, help="in each room")
    parser.add_argument("--rooms", type=int, default=1, help="at once")
    parser.add_argument("--mode", choices=["live", "clause"], default="live", help="clause: judge the history, too")
    parser.add_argument("--history", choices=["heard", "shown"], default="heard", help="whose account the agent keeps")
    parser.add_argument("--seed", type=int, default=0, help="of the texts and moments")
    parser.add_argument("--beside-a-tone", action="store_true", help="each turn also with a tone in place of speech")
    parser.add_argument("--json", help="a file for all figures")
    options = parser.parse_args()
    if "LIVEKIT_SERVER" not in os.environ:
        sys.exit("set LIVEKIT_SERVER to the path of livekit-server")
    figures = asyncio.run(run(options))
    if options.json:
        Path(options.json).write_text(json.dumps([one.__dict__ for one in figures]), encoding="utf-8")


if __name__ == "__main__":
    main()
