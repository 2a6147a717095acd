"""The voice agent in rooms of a real LiveKit server, with the starter voice, heard by callers."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_worker import ROOT, AgentWorker
from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.plugins import realtime_tts
from livekit_room import (
    RATE_HZ,
    Caller,
    LiveKitServer,
    calling,
    livekit_server_path,
    running_livekit,
)
from realtime_tts_client import AudioFormat, Context, Word, connect
from sound_match import MATCH_RATE_HZ, decimated, find, last_sounds, loud_pieces

sys.path.insert(0, str(ROOT / "agents"))

from scripted import LoudnessVAD, ScriptedLLM, UncomprehendingSTT

pytestmark = pytest.mark.skipif(
    livekit_server_path() is None,
    reason="needs a LiveKit server: set LIVEKIT_SERVER to its path, or put livekit-server on the PATH",
)

SENTENCE = "The old house at the end of the road was empty for many years, and nobody knew why."
STORY = (
    "Once there was a man who lived in a small house near the sea. Every morning he went down to the water, "
    "and every evening he came home with a basket full of fish. One day he found a bottle in the sand."
)
SEED = 7
WITHIN_S = 0.08  # what a word's time, an Opus frame and the listener's buffer may be off


@pytest.fixture(autouse=True)
def no_leaks(no_leaked_tasks: None) -> None:
    """Counts tasks only: LiveKit's library has threads of its own, whose sockets stay open once they have begun."""


@pytest.fixture(scope="module")
def livekit() -> Iterator[LiveKitServer]:
    with running_livekit(livekit_server_path() or "") as server:
        yield server


class OneWorker:
    """The worker that is registered: were there two, LiveKit would share the rooms among them."""

    def __init__(self, livekit: LiveKitServer, speech_url: str, make_directory: Callable[[], Path]) -> None:
        self._livekit, self._speech_url, self._make_directory = livekit, speech_url, make_directory
        self._flags: tuple[str, ...] = ()
        self._worker: AgentWorker | None = None

    def with_flags(self, *flags: str) -> AgentWorker:
        """The same again if it has these flags and lives."""
        if self._worker is None or self._worker.process.poll() is not None or flags != self._flags:
            self.end()
            worker = AgentWorker(self._livekit.environment(), self._speech_url, self._make_directory(), *flags)
            self._worker, self._flags = worker.__enter__(), flags
        return self._worker

    def end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


@pytest.fixture(scope="module")
def one_worker(
    livekit: LiveKitServer, speech_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OneWorker]:
    one = OneWorker(livekit, speech_url, lambda: tmp_path_factory.mktemp("worker"))
    yield one
    one.end()


@pytest.fixture
def worker(one_worker: OneWorker) -> AgentWorker:
    return one_worker.with_flags()


@pytest.fixture
def steady_worker(one_worker: OneWorker) -> AgentWorker:
    """Makes the same samples of a text every time."""
    return one_worker.with_flags("--mode", "clause", "--seed", str(SEED))


def plain(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


async def recognised(samples: np.ndarray) -> list[str]:
    from benchmarks.recognition import Recogniser

    return plain(await asyncio.to_thread(lambda: Recogniser().transcribe(samples, RATE_HZ)))


async def ask(caller: Caller, text: str) -> float:
    """Has the agent say a text; when that was asked."""
    asked_at = time.time()
    await caller.type(f"say {text}")
    return asked_at


# ---- one room --------------------------------------------------------------------------------------------------------


async def test_speech_arrives_while_it_is_still_being_written(livekit: LiveKitServer, worker: AgentWorker) -> None:
    text = f"{SENTENCE} {SENTENCE}"  # two seconds of writing; the first words take 0.3 here
    async with calling(livekit, "one") as caller:
        await caller.agent_is_here()
        asked_at = await ask(caller, text)
        audible_at = await caller.until_audible(asked_at)
        said = await worker.until("said", "one", asked_at, role="assistant")
        first_token = await worker.until("first_token", "one", asked_at)
        await caller.until_silent(audible_at)
        written_s = len(text) / 4 / 20  # more than the scripted model takes at 20 tokens a second
        assert first_token["token_at"] < audible_at < first_token["token_at"] + written_s
        assert (said["text"], said["interrupted"]) == (text, False)
        words = worker.events("word", "one", asked_at)
        assert "".join(word["text"] for word in words) == text
        heard = await recognised(caller.hearing.samples(asked_at))
        common = len(set(heard) & set(plain(SENTENCE)))
        assert common >= 0.4 * len(set(plain(SENTENCE))), heard  # of other sentences about a fifth


async def test_speech_of_the_caller_interrupts(livekit: LiveKitServer, worker: AgentWorker) -> None:
    async with calling(livekit, "barge-in") as caller:
        await caller.agent_is_here()
        asked_at = await ask(caller, STORY)
        await caller.until_heard(asked_at, 0.8)
        noise = np.random.default_rng(1).normal(0, 4000, RATE_HZ).astype(np.int16)
        speaking = asyncio.create_task(caller.speak(np.concatenate([np.zeros(RATE_HZ // 5, np.int16), noise])))
        await worker.until("user", "barge-in", asked_at, state="speaking")
        said = await worker.until("said", "barge-in", asked_at, role="assistant")
        assert said["interrupted"]
        assert STORY.startswith(said["text"])
        assert 0 < len(said["text"]) < len(STORY)
        await speaking
        # and what was said is answered
        await worker.until("said", "barge-in", said["at"], role="user")
        answered = await worker.until("first_token", "barge-in", said["at"])
        await caller.until_audible(answered["token_at"])


async def test_an_early_answer_is_a_draft_until_the_turn_of_the_caller_has_ended(
    livekit: LiveKitServer, speech_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an agent in this process, which waits a second longer for the end of a turn than for its transcript."""
    committed: list[Context] = []
    commit = Context.commit

    async def noting(context: Context, text: str | None = None) -> None:
        committed.append(context)
        await commit(context, text)

    monkeypatch.setattr(Context, "commit", noting)
    monkeypatch.setattr("scripted.ANSWERS", ["Sure, let me look at it."])
    tts, room = realtime_tts.TTS(speech_url), rtc.Room()
    session: AgentSession[None] = AgentSession(
        stt=UncomprehendingSTT(),
        llm=ScriptedLLM(tokens_per_second=1000.0),
        vad=LoudnessVAD(),
        tts=tts,
        turn_handling={
            "turn_detection": "vad",
            "endpointing": {"min_delay": 1.5},
            "preemptive_generation": {"preemptive_tts": True},
        },
    )
    realtime_tts.draft_early_answers(session)
    noise = np.random.default_rng(1).normal(0, 4000, RATE_HZ).astype(np.int16)
    async with calling(livekit, "early") as caller:
        await room.connect(livekit.url, livekit.token("early", "agent"))
        try:
            await session.start(Agent(instructions=""), room=room)
            await caller.agent_is_here()
            begun_at = time.time()
            await caller.speak(
                np.concatenate([np.zeros(RATE_HZ // 5, np.int16), noise, np.zeros(2 * RATE_HZ, np.int16)])
            )
            await caller.until_audible(begun_at)
            [context] = committed
            while context.done is None:
                await asyncio.sleep(0.01)
            assert context.done.draft_used is not None  # it was a draft; on a busy machine it is not made in time
        finally:
            await session.aclose()
            await tts.aclose()
            await room.disconnect()


async def test_after_a_nod_it_goes_on_at_the_word_where_it_stopped(livekit: LiveKitServer, worker: AgentWorker) -> None:
    async with calling(livekit, "nod") as caller:
        await caller.agent_is_here()
        noise = np.random.default_rng(1).normal(0, 4000, RATE_HZ * 3 // 10).astype(np.int16)
        silence = np.zeros(RATE_HZ // 5, np.int16)
        nod = np.concatenate([silence, noise, silence, silence, silence])
        text = STORY[: STORY.index(", and every evening")] + "."
        while True:
            asked_at = await ask(caller, text)
            await caller.until_audible(asked_at)
            await caller.speak(nod)
            said = await worker.until("said", "nod", asked_at, role="assistant")
            nods, stretches = (worker.events(event, "nod", asked_at) for event in ("nod", "played"))
            # Else a slow machine stretched the sound, or it was not detected, or was over before the word.
            if nods and not said["interrupted"] and len(stretches) >= 2:
                break
        assert nods[0]["resumed"]
        assert said["text"] == text
        for before, after in pairwise(stretches):
            assert after["offset_s"] == pytest.approx(before["offset_s"] + before["duration_s"], abs=0.001), "discarded"
        words = worker.events("word", "nod", asked_at)
        # The end of a word may be told before it is measured: then it ends where the next one begins.
        joins_s = [
            (min(word["end_s"], following["start_s"]), following["start_s"]) for word, following in pairwise(words)
        ]
        gaps_s = [after["offset_s"] for after in stretches[1:]]  # the nod's, and on a slow machine others
        assert min(max(end - gap, gap - start) for end, start in joins_s for gap in gaps_s) <= WITHIN_S / 2


# ---- sounds that are known ------------------------------------------------------------------------------------------


async def reference(speech_url: str, text: str) -> tuple[np.ndarray, list[Word]]:
    """Speech of the steady worker, straight from the server: samples at `MATCH_RATE_HZ`, and words."""
    audio = AudioFormat("pcm_s16le", sample_rate=24_000)
    params = {"seed": SEED, "mode": "clause"}
    async with connect(speech_url, audio=audio, params=params, playback="consumed") as session:
        context = session.speak(text)
        samples = np.concatenate([chunk async for chunk in context.pcm("int16")])
        return decimated(samples, 24_000), context.words


async def test_three_rooms_at_once_hear_their_own(
    livekit: LiveKitServer, speech_url: str, steady_worker: AgentWorker
) -> None:
    texts = {
        "north": "The river runs down from the mountain to the sea.",
        "south": "My brother has seven horses and a very old dog.",
        "west": "Please close the window before the rain comes in.",
    }
    spoken = {room: (await reference(speech_url, text))[0] for room, text in texts.items()}

    async def talk(room: str, text: str) -> np.ndarray:
        async with calling(livekit, room) as caller:
            await caller.agent_is_here()
            asked_at = await ask(caller, text)
            said = await steady_worker.until("said", room, asked_at, role="assistant")
            await caller.until_silent(asked_at)
            assert (said["text"], said["interrupted"]) == (text, False)
            return caller.hearing.samples(asked_at)

    heard = dict(zip(texts, await asyncio.gather(*(talk(*item) for item in texts.items())), strict=True))
    for room in texts:
        pieces = loud_pieces(heard[room])  # most are whole, also where a busy machine leaves gaps
        fits = {other: np.mean([find(piece, spoken[other])[1] for piece in pieces]) for other in texts}
        assert max(fits, key=lambda other: fits[other]) == room, fits


async def test_the_history_is_what_was_heard(
    livekit: LiveKitServer, speech_url: str, steady_worker: AgentWorker
) -> None:
    spoken, words = await reference(speech_url, STORY)
    ends_s = [word.end_ms / 1000 for word in words]
    async with calling(livekit, "history") as caller:
        await caller.agent_is_here()
        for duration_s in (0.6, 1.1, 1.8):
            asked_at = await ask(caller, STORY)
            await caller.until_heard(asked_at, duration_s)
            await caller.type("/stop")
            interrupted = await steady_worker.until("interrupting", "history", asked_at, times=2)
            last = await caller.until_silent(asked_at)
            said = await steady_worker.until("said", "history", interrupted["at"], role="assistant")
            position_s, _ = find(last_sounds(caller.hearing.samples(asked_at, last + 0.01)), spoken)
            num_heard = len(said["text"].split())
            assert [word.text for word in words[:num_heard]] == said["text"].split()
            assert num_heard == 0 or ends_s[num_heard - 1] <= position_s + WITHIN_S, "a word that was not heard"
            assert ends_s[num_heard + 1] > position_s - WITHIN_S, "more than a word is missing"
            assert said["interrupted"]
            await asyncio.sleep(1.0)
            assert caller.hearing.audible(last + 0.001) == []  # nothing of the old turn afterwards


# ---- long conversations ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_fifty_turns_in_a_row_are_one_connection_that_neither_drifts_nor_grows(
    livekit: LiveKitServer, speech_url: str, steady_worker: AgentWorker
) -> None:
    """Every other turn is interrupted. The same text has the same words at the same times in each."""
    text = "Put the old books on the table."
    _, words = await reference(speech_url, text)
    counts = {"sessions_opened_total": 1, "sessions_resumed_total": 0}
    before = {name: metric(speech_url, name) for name in counts}
    num_bytes: list[int] = []
    async with calling(livekit, "fifty") as caller:
        await caller.agent_is_here()
        for turn in range(50):
            asked_at = await ask(caller, text)
            await caller.until_audible(asked_at)
            if turn % 2:
                await caller.until_heard(asked_at, 0.5)  # a word; of none the history would have nothing
                await caller.type("/stop")
            said = await steady_worker.until("said", "fifty", asked_at, role="assistant")
            assert said["interrupted"] == bool(turn % 2)
            assert text.startswith(said["text"]) if turn % 2 else said["text"] == text
            told = steady_worker.events("word", "fifty", asked_at)
            assert [word["text"].strip() for word in told] == [word.text for word in words[: len(told)]]
            starts_ms = [1000 * word["start_s"] for word in told]
            # The first words are told before they are measured, the earlier the faster speech is made. A drift adds up.
            assert starts_ms == pytest.approx([word.start_ms for word in words[: len(told)]], abs=200)
            assert turn % 2 or len(told) == len(words)
            num_bytes.append(steady_worker.resident_bytes())
        assert {name: metric(speech_url, name) - before[name] for name in counts} == counts
    assert max(num_bytes[-5:]) - max(num_bytes[10:15]) < 8 << 20


NUM_NODS = 100  # of each kind of text
NODDED = (
    "Sure, let me check that for you. Your order left our warehouse this morning, and it should be with you by Tuesday "
    "afternoon; the driver calls you before, as you asked. If nobody is at home, the parcel goes to a neighbour, or to "
    "the shop at the corner, where you can collect it for two weeks. You have paid for it already, so there is nothing "
    "else to do, and if one of the plates is broken, tell us within a month, and we send you a new one for nothing."
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["whole", "live"])
async def test_after_nods_the_words_heard_in_all_are_the_text(
    livekit: LiveKitServer, speech_url: str, one_worker: OneWorker, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Judged by LiveKit's own account of the audio that it has played: what a caller records is damaged by a busy
    machine."""
    steady = ("--mode", "clause", "--seed", str(SEED), "--tokens-per-second", "10000")
    worker = await asyncio.to_thread(one_worker.with_flags, *(steady if kind == "whole" else ()))
    spoken, _ = await reference(speech_url, NODDED)
    rng, room = random.Random(3), f"nods-{kind}"
    num_nods = num_turns = num_interrupted = num_gaps = num_at_edge = 0
    async with calling(livekit, room) as caller:
        await caller.agent_is_here()
        while num_nods < NUM_NODS:
            asked_at = await ask(caller, NODDED)
            await caller.until_audible(asked_at)

            def said(since: float = asked_at) -> list[dict[str, Any]]:
                return [one for one in worker.events("said", room, since) if one["role"] == "assistant"]

            while not said():
                await asyncio.sleep(rng.uniform(0.1, 1.2))
                noise = np.random.default_rng(num_nods).normal(0, 4000, RATE_HZ * rng.randrange(100, 350) // 1000)
                num_before = len(worker.events("nod", room, asked_at))
                await caller.speak(np.concatenate([noise.astype(np.int16), np.zeros(RATE_HZ // 2, np.int16)]))
                for _ in range(100):  # a sound that comes too late is none, and gets no event
                    if said() or len(worker.events("nod", room, asked_at)) > num_before:
                        break
                    await asyncio.sleep(0.02)
            await caller.until_silent(asked_at)
            turn, played = said()[0], worker.events("played", room, asked_at)
            num_turns, num_interrupted = num_turns + 1, num_interrupted + turn["interrupted"]
            num_nods += sum(one["resumed"] for one in worker.events("nod", room, asked_at))
            assert NODDED.startswith(turn["text"])
            assert turn["interrupted"] or turn["text"] == NODDED
            assert played[0]["offset_s"] == pytest.approx(0.0, abs=0.001)
            for before, after in pairwise(played):
                end_s = before["offset_s"] + before["duration_s"]
                assert after["offset_s"] == pytest.approx(end_s, abs=0.001), "discarded or repeated"
            told = worker.events("word", room, asked_at)
            # An end is an estimate when it is told: if the next word begins soon, the word ends there.
            edges_s = [word[edge] for word in told for edge in ("start_s", "end_s")]
            gaps_s = [after["offset_s"] for after in played[1:]]
            num_gaps += len(gaps_s)
            num_at_edge += sum(min(abs(edge_s - gap_s) for edge_s in edges_s) <= WITHIN_S / 2 for gap_s in gaps_s)
            played_s = played[-1]["offset_s"] + played[-1]["duration_s"]
            assert turn["interrupted"] or played_s > told[-1]["start_s"]
            if kind == "whole" and not turn["interrupted"]:
                assert played_s == pytest.approx(len(spoken) / MATCH_RATE_HZ, abs=0.05)
            await caller.speak(np.zeros(RATE_HZ, np.int16))
            if turn["interrupted"]:  # and the sound gets an answer
                await caller.until_silent(asked_at, for_s=2.0)
    with capsys.disabled():
        sys.stdout.write(
            f"\nnods, {kind} text: {num_nods} in {num_turns} turns, {num_interrupted} turns interrupted; "
            f"{num_at_edge} of {num_gaps} gaps at a word's edge\n"  # a busy machine leaves others
        )
    assert num_interrupted <= NUM_NODS // 20


@pytest.mark.slow
async def test_a_model_that_stalls_for_twenty_seconds_is_waited_for(
    livekit: LiveKitServer, speech_url: str, worker: AgentWorker
) -> None:
    first, rest = "The ship left the harbour before", "the storm came in from the west."
    async with calling(livekit, "stall") as caller:
        await caller.agent_is_here()
        opened = metric(speech_url, "sessions_opened_total")
        asked_at = await ask(caller, f"{first} {{20}} {rest}")
        audible_at = await caller.until_audible(asked_at)
        assert await caller.until_silent(asked_at, for_s=5.0) < audible_at + 10.0
        resumed_at = await caller.until_audible(audible_at + 15.0)
        assert resumed_at >= asked_at + 20.0
        said = await worker.until("said", "stall", asked_at, role="assistant")
        assert (said["text"], said["interrupted"]) == (f"{first} {rest}", False)
        heard = await recognised(caller.hearing.samples(resumed_at - 0.1))
        assert len(set(heard) & set(plain(rest))) >= 3, heard
        asked_at = await ask(caller, "And we go on.")
        await caller.until_audible(asked_at)
        assert metric(speech_url, "sessions_opened_total") == opened


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def metric(speech_url: str, name: str) -> float:
    with urllib.request.urlopen(speech_url.replace("ws", "http", 1) + "/metrics", timeout=5) as response:
        found = re.search(rf"(?m)^realtime_tts_{name} (\S+)$", response.read().decode())
    assert found is not None
    return float(found[1])


def num_sessions(speech_url: str) -> float:
    return metric(speech_url, "sessions")


async def test_an_agent_that_is_killed_frees_the_server_and_another_one_takes_over(
    livekit: LiveKitServer, speech_url: str, one_worker: OneWorker, steady_worker: AgentWorker
) -> None:
    """And that one, asked to end, lets its conversation end first."""
    async with calling(livekit, "killed") as caller:
        await caller.agent_is_here()
        asked_at = await ask(caller, STORY)
        await caller.until_audible(asked_at)
        steady_worker.kill()
        await caller.until_silent(asked_at)
    second = await asyncio.to_thread(one_worker.with_flags)
    async with calling(livekit, "again") as caller:
        await caller.agent_is_here()
        asked_at = await ask(caller, "Here I am again.")
        await second.until("said", "again", asked_at, role="assistant", text="Here I am again.")
        assert caller.hearing.audible(asked_at)
        second.ask_to_end()
        asked_at = await ask(caller, "And I am still here.")
        said = await second.until("said", "again", asked_at, role="assistant")
        assert (said["text"], said["interrupted"]) == ("And I am still here.", False)
        assert second.process.poll() is None
    await asyncio.to_thread(second.process.wait, 60)
    assert second.events("closed", "again") != []

    async def until_freed() -> None:
        while await asyncio.to_thread(num_sessions, speech_url):
            await asyncio.sleep(0.1)

    await asyncio.wait_for(until_freed(), 30)
