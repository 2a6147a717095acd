"""Ends that are put right by the place in the text, in the engine: of the starter voice, and with made-up readings."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness
from voices import STARTER_DIRECTORY, VOICES

from benchmarks.sentences import held_out
from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.end_detector import FAULTS, LAST_CHAR_S, MAX_END_S
from realtime_tts.engine.runtime.outputs import TextReading
from realtime_tts.model.checkpoint import LoadedModel, load_model

PATCH_S = 0.16  # of the starter voice
TEXT = "we took a wrong turn."
CLEAN = dict.fromkeys(FAULTS, 0)


@functools.cache
def starter() -> LoadedModel:
    return load_model(STARTER_DIRECTORY)


def speak(loaded: LoadedModel, policy: dict[str, Any] | None = None) -> tuple[frames.Done, EngineHarness]:
    harness = EngineHarness(loaded, policy, max_positions=512)
    harness.say("x", TEXT, max_patches=None)
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    harness.assert_nothing_leaked()
    return done, harness


@functools.cache
def undisturbed() -> tuple[frames.Done, EngineHarness]:
    return speak(starter())


def corrections(message: frames.Done | frames.Stats) -> dict[str, int]:
    return {name: getattr(message, name) for name in CLEAN}


def let_stop(monkeypatch: pytest.MonkeyPatch, loaded: LoadedModel, when: Callable[[int], bool]) -> None:
    """The stop head's word in each step, instead of its own."""
    steps = iter(range(10_000))
    flags = lambda hidden: torch.full((len(hidden),), when(next(steps)))  # noqa: E731
    monkeypatch.setattr(loaded.model, "stop_flags", flags)


def test_as_the_starter_voice_speaks_nothing_is_put_right() -> None:
    done, harness = undisturbed()
    without, plain = speak(starter(), {"text_head": None})
    assert np.array_equal(harness.pcm("x"), plain.pcm("x"))
    assert (done.finish_reason, corrections(done)) == (without.finish_reason, corrections(without)) == ("stop", CLEAN)


def test_a_stop_that_never_comes_is_put_at_the_end_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    right, plain = undisturbed()
    let_stop(monkeypatch, starter(), lambda step: False)
    done, harness = speak(starter())
    assert done.finish_reason == "stop"
    # what the voice says beyond its end may sound like speech until the cut
    assert corrections(done) == CLEAN | {"ends_cut": 1, "babbles": done.babbles}
    assert 0 < done.num_patches - right.num_patches <= 9
    assert np.array_equal(harness.pcm("x")[: right.num_samples], plain.pcm("x"))
    assert corrections(harness.engine.stats()) == corrections(done)
    done, _ = speak(starter(), {"text_head": None})  # what it is without: the length guard
    assert (done.finish_reason, done.num_patches) == ("length", len(TEXT) + 10)


def test_a_stop_that_comes_at_once_takes_no_words_away(monkeypatch: pytest.MonkeyPatch) -> None:
    right, plain = undisturbed()
    let_stop(monkeypatch, starter(), lambda number: number in (3, right.num_patches - 1))
    done, harness = speak(starter())
    assert corrections(done) == CLEAN | {"ends_continued": 1}
    assert np.array_equal(harness.pcm("x"), plain.pcm("x"))
    let_stop(monkeypatch, starter(), lambda number: number in (3, right.num_patches - 1))
    done, _ = speak(starter(), {"text_head": None})
    assert done.num_patches == 4


def test_a_stop_that_always_comes_waits_for_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    right, plain = undisturbed()
    let_stop(monkeypatch, starter(), lambda number: True)
    done, harness = speak(starter())
    assert right.num_patches - 5 <= done.num_patches <= right.num_patches
    assert np.array_equal(harness.pcm("x"), plain.pcm("x")[: done.num_samples])


def read(
    monkeypatch: pytest.MonkeyPatch, harness: EngineHarness, track: Callable[[int], TextReading], stops: bool = False
) -> None:
    """Let the text head of a random model read what it shall, patch by patch; its stop head never stops of itself."""
    runner, result_of = harness.engine.runner, harness.engine.runner.result

    def made_up(*step: Any) -> Any:
        result = result_of(*step)
        segments = harness.engine._segments
        spoken = [said._replace(text=track(len(segments[said.name].patches))) for said in result.audio]
        flags = {name: flag._replace(stop=stops) for name, flag in result.flags.items()}
        return dataclasses.replace(result, flags=flags, audio=spoken)

    monkeypatch.setattr(runner, "result", made_up)


def random_voice(loaded: LoadedModel, **limits: Any) -> EngineHarness:
    """An engine for which a patch of a random model is as long as one of a real one."""
    return EngineHarness(loaded, {"text_head": TextHead(0, 0)}, patch_s=PATCH_S, **limits)


def used_up(patch: int) -> TextReading:
    """Through five letters, and then somewhere else."""
    return TextReading(min(4.0, 2.0 * patch), 1.0 if patch < 3 else 0.1)


def test_a_cut_goes_to_silence_without_a_click(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, plain = random_voice(tiny), EngineHarness(tiny)
    read(monkeypatch, harness, used_up)
    monkeypatch.setattr(tiny.model, "stop_flags", lambda hidden: torch.zeros(len(hidden), dtype=torch.bool))
    for one in (harness, plain):
        one.say("x", "hello", max_patches=20)
        one.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert corrections(done) == CLEAN | {"ends_cut": 1, "babbles": 1}  # a random model is never silent
    assert done.num_patches == 7
    heard, expected = harness.pcm("x"), plain.pcm("x")[: done.num_samples]
    last = tiny.config.patch_samples
    assert np.array_equal(heard[:-last], expected[:-last])
    steps = np.abs(np.diff(heard))
    assert steps[-last - 1 :].max() <= 1.01 * np.abs(np.diff(expected)).max()  # no larger than in any other patch
    assert heard[-1] == pytest.approx(0.0, abs=1e-6)
    assert np.abs(heard[-last:]).max() > 0


def test_the_next_segment_continues_from_the_text_and_not_from_what_is_behind_it(
    tiny_first: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = random_voice(tiny_first)
    read(monkeypatch, harness, used_up)
    harness.say("a", "hello", context="c", max_patches=20)
    harness.say("b", "hello", context="c", max_patches=20)
    harness.engine.step()
    first = harness.engine._segments["a"]
    while not isinstance(harness.sent[-1], frames.Done):
        harness.engine.step()
    harness.engine.step()
    prompt = harness.engine._segments["b"].input.features
    assert len(prompt) < len(first.patches) == 7
    assert np.array_equal(prompt, np.stack(first.patches[: len(prompt)]))
    harness.run()


def test_what_was_left_out_and_what_was_said_again_is_counted(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = random_voice(tiny)
    track = [0.0, 20.0, 22.0, 24.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0]
    read(monkeypatch, harness, lambda patch: TextReading(track[min(patch, len(track) - 1)], 1.0))
    for name in ("x", "y"):
        harness.say(name, "theweatherisnicetodayandwewalk", max_patches=12)
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "length"
    assert corrections(done) == CLEAN | {"skips": 1, "repeats": 1}
    assert corrections(harness.engine.stats()) == CLEAN | {"skips": 2, "repeats": 2}


def test_a_text_that_may_still_grow_is_not_used_up(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = random_voice(tiny, look_ahead_chars=0, begin_chars=1)
    read(monkeypatch, harness, used_up)
    harness.say("x", "hello", final=False, max_patches=40)
    for _ in range(20):
        harness.engine.step()
    num_open = len(harness.engine._segments["x"].patches)
    assert num_open > 10
    harness.engine.post(frames.Extend("x", "hello", final=True))
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert (done.num_patches, done.ends_cut) == (num_open + 4, 1)


def speak_all(texts: list[str]) -> list[frames.Done]:
    """Each in each voice."""
    harness = EngineHarness(starter(), num_blocks=2048, max_positions=512)
    names = [f"{voice} {text}" for voice in VOICES for text in texts]
    for seed, name in enumerate(names):
        voice, text = name.split(" ", 1)
        harness.say(name, text, voice=voice, seed=seed, max_patches=None)
    harness.run(10_000)
    ends = [harness.end(name) for name in names]
    return [end for end in ends if isinstance(end, frames.Done)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_many_sentences_none_is_put_right_and_none_babbles_if_the_stop_head_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = held_out(20)
    right = speak_all(texts)
    assert len(right) == len(texts) * len(VOICES)
    assert all(corrections(done) == CLEAN for done in right)
    let_stop(monkeypatch, starter(), lambda step: False)
    cut = speak_all(texts)
    later = [done.num_patches - other.num_patches for done, other in zip(cut, right, strict=True)]
    assert sum(done.finish_reason == "stop" and done.ends_cut for done in cut) >= 0.96 * len(right)
    # At the end of a text, wherever the head of a voice looks then. The last tenth: a head that is some letters short
    # of the end when the voice falls silent gets there later.
    limit = math.ceil((MAX_END_S + LAST_CHAR_S) / PATCH_S)
    assert sorted(later)[int(0.9 * len(later))] <= limit
