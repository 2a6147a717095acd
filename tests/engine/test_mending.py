"""Speech that is cut before a fault and said again, in the engine: with made-up readings, and of the starter voice."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from engine_harness import EngineHarness

from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.runtime.outputs import TextReading
from realtime_tts.model.checkpoint import LoadedModel

TEXT = "theweatherisnicetodayandwewalkalongtheriveruntilnight"
NUM_PATCHES = 20
PACE = 2.4  # characters a patch


def reading_engine(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, faulty: dict[int, float], num_times: int, **limits: Any
) -> EngineHarness:
    """An engine whose text head reads a steady pace; in the first `num_times` takes other places from some patches on.

    faulty: by patch, characters by which the places are off from there on.
    """
    harness = EngineHarness(loaded, {"text_head": TextHead(0, 0)}, patch_s=0.16, **{"max_mends": 2, **limits})
    harness.engine.output._head_follows = True
    runner, result_of = harness.engine.runner, harness.engine.runner.result

    def made_up(*step: Any) -> Any:
        result = result_of(*step)
        spoken = []
        for said in result.audio:
            segment = harness.engine._segments[said.name]
            number, offset = len(segment.patches), 0.0
            if segment.num_mends < num_times:
                offset = next((off for first, off in sorted(faulty.items(), reverse=True) if number >= first), 0.0)
            spoken.append(said._replace(text=TextReading(max(0.0, PACE * number + offset), 1.0)))
        flags = {name: flag._replace(stop=False) for name, flag in result.flags.items()}
        return dataclasses.replace(result, flags=flags, audio=spoken)

    monkeypatch.setattr(runner, "result", made_up)
    return harness


def speak(harness: EngineHarness, **fields: Any) -> frames.Done:
    harness.say("x", TEXT, max_patches=NUM_PATCHES, **fields)
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    harness.assert_nothing_leaked()
    assert not harness.engine.output._keeping
    return done


def positions(harness: EngineHarness) -> list[float]:
    return [message.text_position or 0.0 for message in harness.sent if isinstance(message, frames.Audio)]


def faults(done: frames.Done | frames.Stats) -> dict[str, int]:
    names = [f"{kind}{end}" for kind in ("skips", "repeats", "stuck") for end in ("", "_mended")]
    return {name: getattr(done, name) for name in names if getattr(done, name)}


SKIP = {12: 16.0}
REPEAT = {12: -12.0}


@pytest.mark.parametrize(("fault", "name"), [(SKIP, "skips"), (REPEAT, "repeats")])
def test_a_fault_is_cut_and_said_again_before_it_is_sent(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, fault: dict[int, float], name: str
) -> None:
    harness = reading_engine(tiny, monkeypatch, fault, 1)
    done = speak(harness)
    assert faults(done) == faults(harness.engine.stats()) == {f"{name}_mended": 1}
    assert positions(harness) == pytest.approx([PACE * number for number in range(NUM_PATCHES)])
    plain = reading_engine(tiny, monkeypatch, {}, 0)
    speak(plain)
    num_same = 10 * tiny.config.patch_samples  # the cut is one patch before the fault at least
    heard, right = harness.pcm("x"), plain.pcm("x")
    assert (done.num_samples, heard.size) == (right.size, right.size)
    assert np.array_equal(heard[:num_same], right[:num_same])
    assert not np.array_equal(heard[-num_same:], right[-num_same:])  # other noise


def test_what_is_said_again_goes_on_without_a_seam(exact: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same noise, a mend changes nothing."""
    monkeypatch.setattr("realtime_tts.engine.segment.noise_key", lambda key, segment=0: key)
    harness, plain = (reading_engine(exact, monkeypatch, fault, 1) for fault in (SKIP, {}))
    done = speak(harness)
    speak(plain)
    assert faults(done) == {"skips_mended": 1}
    assert np.abs(harness.pcm("x") - plain.pcm("x")).max() < 1e-5


def test_a_fault_that_comes_again_each_time_is_heard_after_two_tries(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults(speak(reading_engine(tiny, monkeypatch, SKIP, 2))) == {"skips_mended": 1}
    harness = reading_engine(tiny, monkeypatch, SKIP, 3)
    assert faults(speak(harness)) == {"skips": 1}
    assert max(np.diff(positions(harness))) > 12


def test_a_fault_that_was_sent_is_left_as_it_is(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that is at the end of what was sent has nothing to hear while speech is said again."""
    harness = reading_engine(tiny, monkeypatch, SKIP, 1)
    run = harness.engine.step

    def slowly() -> bool:
        harness.now += 0.15  # with the harness's own step, as long as a patch
        return run()

    monkeypatch.setattr(harness.engine, "step", slowly)
    assert faults(speak(harness)) == {"skips": 1}


def test_without_mends_and_without_a_listener_nothing_is_kept_back(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = reading_engine(tiny, monkeypatch, SKIP, 9, max_mends=0)
    harness.say("x", TEXT, max_patches=NUM_PATCHES)
    for number in range(1, NUM_PATCHES):
        harness.engine.step()
        assert len(positions(harness)) == number
    harness.run()
    assert faults(harness.engine.stats()) == {"skips": 1}


def test_a_head_that_has_not_followed_a_text_to_its_end_mends_nothing(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = reading_engine(tiny, monkeypatch, SKIP, 1)
    harness.engine.output._head_follows = False
    assert faults(speak(harness)) == {"skips": 1}
    assert not harness.engine.output._head_follows


def test_patches_are_kept_back_only_as_long_as_the_listener_has_others(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = reading_engine(tiny, monkeypatch, {}, 0, park_high_s=1.5, park_low_s=0.1)
    harness.say("x", TEXT, max_patches=NUM_PATCHES, paced=True)
    while harness.engine.step():
        harness.now += 0.01
    num_made = len(harness.engine._segments["x"].patches)
    assert 0 < num_made - len(positions(harness)) <= 7
    due_s = harness.engine.idle_s()  # before the context resumes
    assert due_s is not None
    harness.now += due_s + 1e-6
    harness.engine.output.send_due(harness.now)
    before = len(positions(harness))
    assert harness.engine.idle_s() == pytest.approx(0.16, abs=1e-3)  # one more patch
    harness.now += 0.161
    harness.engine.output.send_due(harness.now)
    assert len(positions(harness)) == before + 1
    assert len(harness.engine._segments["x"].patches) == num_made
    harness.run()


def test_an_opening_with_a_fault_is_forgotten(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = reading_engine(tiny, monkeypatch, SKIP, 1)
    for name in "xyz":  # the first one is noted, the second kept
        harness.say(name, TEXT, max_patches=NUM_PATCHES, openings=True, seed=3)
        harness.run()
        assert faults(harness.end(name)) == {"skips_mended": 1}  # type: ignore[arg-type]
    assert harness.engine.stats().opening_hits == 0
    assert harness.engine.stats().opening_bytes == 0


def test_a_cancelled_request_sends_nothing_more(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = reading_engine(tiny, monkeypatch, {}, 0)
    harness.say("x", TEXT, max_patches=NUM_PATCHES)
    for _ in range(12):
        harness.engine.step()
    num_sent = len(positions(harness))
    harness.engine.post(frames.Cancel("x"))
    harness.run()
    assert len(positions(harness)) == num_sent < 12
    assert not harness.engine.output._keeping


@pytest.mark.parametrize("again_s", [0.0, 0.5], ids=["where it was held", "at the clause's beginning"])
def test_a_fault_is_mended_while_the_context_is_held_or_its_session_lost(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, again_s: float
) -> None:
    """Either is a pause of the playback: what is ahead of it is made, mended and sent, and the speech goes on."""
    harness = reading_engine(tiny, monkeypatch, SKIP, 1, park_high_s=1.6, park_low_s=0.8)
    harness.say("x", TEXT, max_patches=NUM_PATCHES, paced=True)
    while len(harness.engine._segments["x"].patches if "x" in harness.engine._segments else ()) < 11:
        assert harness.engine.step()
        harness.now += 0.04
    held_s = 1.0
    assert faults(harness.engine.stats()) == {}
    harness.engine.post(frames.Playback("x", held_s * 1000, paused=True))
    segment = harness.engine._segments["x"]
    while harness.engine.step():
        harness.now += 0.04
    assert harness.engine._segments["x"].num_mends == 1
    assert harness.engine._segments["x"] is not segment
    num_sent = len(positions(harness))
    for _ in range(20):  # nothing is made or sent for a listener that hears nothing
        harness.now += 1.0
        harness.engine.step()
    assert len(positions(harness)) == num_sent
    harness.engine.post(frames.Playback("x", (held_s - again_s) * 1000))
    for _ in range(500):
        if harness.engine.is_idle:
            break
        harness.engine.step()
        harness.now += 0.04
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert faults(done) == {"skips_mended": 1}
    assert positions(harness) == pytest.approx([PACE * number for number in range(NUM_PATCHES)])
    assert harness.pcm("x").size == done.num_samples == NUM_PATCHES * tiny.config.patch_samples
    harness.assert_nothing_leaked()


@pytest.mark.parametrize("follows", [False, True], ids=["alone", "and its id is used again"])
def test_a_cancel_between_the_finding_and_the_mend_is_a_cancel(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    harness = reading_engine(tiny, monkeypatch, SKIP, 1)
    engine, scheduler = harness.engine, harness.engine.scheduler
    finish_step = scheduler.finish_step
    found: list[Any] = []

    def cancelling(*step: Any) -> Any:
        finished = finish_step(*step)
        if engine.output.faulty and not found:
            found.extend(engine.output.faulty)
            engine._handle(frames.Cancel("x"))
            if follows:
                harness.sent.clear()
                harness.say("x", TEXT, max_patches=NUM_PATCHES)
                engine._handle_messages()
        return finished

    monkeypatch.setattr(scheduler, "finish_step", cancelling)
    harness.say("x", TEXT, max_patches=NUM_PATCHES)
    harness.run()
    assert len(found) == 1
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert done.finish_reason == ("length" if follows else "cancelled")
    assert faults(done) == {"skips_mended" if follows else "skips": 1}
    assert not engine.output._keeping
    harness.assert_nothing_leaked()


def test_a_patch_without_a_reading_does_not_overtake_those_that_are_kept_back(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = reading_engine(tiny, monkeypatch, {}, 0)
    result = harness.engine.runner.result

    def without_one_reading(*step: Any) -> Any:
        made = result(*step)
        is_tenth = [len(harness.engine._segments[audio.name].patches) == 10 for audio in made.audio]
        unread = [
            audio._replace(text=TextReading(math.nan, math.nan)) if tenth else audio
            for audio, tenth in zip(made.audio, is_tenth, strict=True)
        ]
        return dataclasses.replace(made, audio=unread)

    monkeypatch.setattr(harness.engine.runner, "result", without_one_reading)
    harness.say("x", TEXT, max_patches=NUM_PATCHES)
    harness.run()
    assert [m.sequence for m in harness.sent if isinstance(m, frames.Audio)] == list(range(NUM_PATCHES))
