"""What the Realtime server keeps of interrupted answers in its conversation, judged by the audio that it has sent."""

from __future__ import annotations

import asyncio
import base64
import random
import re
import sys
import time
from typing import Any

import numpy as np
import pytest
from realtime_tts_client.playback import PlaybackClock
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from realtime_caller import RATE_HZ, SILENCE, Caller, calling, serving, sound, until
from realtime_server.models import ScriptedModel

SENTENCES = ROOT / "training/texts/evaluation_sentences.txt"
NUM_TURNS = 36  # of each kind of barge-in
NEEDED_MS = {"hold": 500.0, "now": 96.0}  # of sound, which interrupts
TURN_DETECTION = {"type": "server_vad", "create_response": False, "interrupt_response": True}


class Listener:
    """Player of one answer: plays its audio as it comes, in real time.

    Attributes:
        item_id: the answer's, once its audio comes.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._num_events = len(caller.events)
        self._clock = PlaybackClock("realtime")
        self._pcm = bytearray()
        self.item_id = ""
        self.transcript = ""
        self.is_over = False

    def take(self) -> None:
        """Take the events that have come."""
        for event in self._caller.events[self._num_events :]:
            self._num_events += 1
            if event["type"] == "response.output_audio.delta":
                payload = base64.b64decode(event["delta"])
                self._pcm += payload
                self.item_id = event["item_id"]
                self._clock.take(len(payload) / 2 * 1000 / RATE_HZ, time.monotonic())
            elif event["type"] == "response.output_audio_transcript.delta":
                self.transcript += event["delta"]
            self.is_over = self.is_over or event["type"] == "response.done"

    @property
    def position_ms(self) -> float:
        self.take()
        return self._clock.position_ms(time.monotonic())

    @property
    def received_ms(self) -> float:
        return self._clock.taken_ms

    def samples(self) -> Any:
        return np.frombuffer(bytes(self._pcm), np.int16).astype(np.float32) / 32768


async def interrupted(
    caller: Caller, text: str, how: str, after_ms: float, needed_ms: float, rng: random.Random
) -> tuple[Listener, float, float]:
    """Have a text spoken, and interrupt it. Return the listener, and its position, ms: at least and at most.

    Args:
        needed_ms: sound of the user that interrupts.
    """
    listener = Listener(caller)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"say {text}"}]}
    await caller.send("conversation.item.create", item=item)
    await caller.send("response.create")
    await until(lambda: listener.position_ms >= after_ms or listener.is_over)
    assert not listener.is_over, "the text is too short"
    if how == "cancel":
        first_ms = listener.position_ms
        await caller.send("response.cancel")
    else:
        num_turns = len(caller.all("input_audio_buffer.committed"))
        samples, step = sound(1000), RATE_HZ // 50
        first_ms = 0.0
        for start in range(0, len(samples), step):
            if start * 1000 / RATE_HZ < needed_ms:
                first_ms = listener.position_ms
            await caller.say(samples[start : start + step])
            await asyncio.sleep(0.02)
            listener.take()
    await until(lambda: listener.position_ms >= 0 and listener.is_over)
    last_ms = listener.position_ms
    if how == "speech and truncate":
        first_ms = last_ms = int(rng.uniform(0.2, 1.0) * last_ms)
        await caller.send(
            "conversation.item.truncate", item_id=listener.item_id, content_index=0, audio_end_ms=first_ms
        )
    if how != "cancel":
        await caller.say(*[SILENCE] * 8)
        await caller.next("input_audio_buffer.committed", num_turns + 1)
    return listener, first_ms, last_ms


def num_off(num_kept: int, starts_ms: list[float], first_ms: float, last_ms: float) -> int:
    """Return by how many words a history is not true for a position between two: all its words have begun by then,
    and no word is missing but the one that is being said."""
    begun_at_least, begun_at_most = (sum(start <= at for start in starts_ms) for at in (first_ms, last_ms))
    return max(begun_at_least - 1 - num_kept, num_kept - begun_at_most, 0)


def test_a_word_off_counts() -> None:
    starts_ms = [0.0, 300.0, 600.0, 900.0]
    assert [num_off(kept, starts_ms, 650.0, 650.0) for kept in range(5)] == [2, 1, 0, 0, 1]
    assert [num_off(kept, starts_ms, 590.0, 610.0) for kept in range(5)] == [1, 0, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("barge_in", ["hold", "now"])
async def test_an_interrupted_history_is_what_was_heard(
    speech_url: str, capsys: pytest.CaptureFixture[str], barge_in: str
) -> None:
    from benchmarks.recognition import Aligner

    rng, aligner = random.Random(5), Aligner()
    lines = [line.strip() for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if len(line) > 40 and not line.startswith("#")]
    off: dict[str, list[int]] = {"speech": [], "speech and truncate": [], "cancel": []}
    parts = {"model": ScriptedModel(20.0), "barge_in": barge_in}
    async with serving(speech_url, "go on", **parts) as (url, server), calling(url, server) as caller:
        await caller.update(audio={"input": {"turn_detection": TURN_DETECTION}})
        num_retrieved = 0
        while sum(map(len, off.values())) < NUM_TURNS:
            how = list(off)[sum(map(len, off.values())) % len(off)]
            text = " ".join(rng.sample(lines, 2))
            listener, first_ms, last_ms = await interrupted(
                caller, text, how, rng.uniform(300, 2000), NEEDED_MS[barge_in], rng
            )
            await caller.send("conversation.item.retrieve", item_id=listener.item_id)
            num_retrieved += 1
            item = (await caller.next("conversation.item.retrieved", num_retrieved))["item"]
            kept = item["content"][0]["transcript"].strip()
            assert text.startswith(kept)
            words = re.findall(r"[a-z']+", listener.transcript.lower())
            times = aligner.word_times_s(words, listener.samples(), RATE_HZ)
            if times is None:
                continue
            starts_ms = [1000 * start for start, _ in times]
            off[how].append(num_off(len(re.findall(r"[a-z']+", kept)), starts_ms, first_ms, last_ms))
    shown = {how: f"{sum(one == 0 for one in found)} of {len(found)}" for how, found in off.items()}
    with capsys.disabled():
        sys.stdout.write(f"\nhistories that are what was heard, {barge_in}: {shown}\n")
    found = [one for group in off.values() for one in group]
    assert max(found) <= 1
    assert np.mean([one == 0 for one in found]) >= 0.9  # in the lab 0.95 is asked; of 36 one and a half deviations less
