"""Openings in memory: what is sent from there, to which requests, and without an audible difference."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from engine_harness import EngineHarness, patch_duration_s
from test_live_text import add_voice, live, never_stop

from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.openings import OpeningPlace, Openings
from realtime_tts.engine.runtime.outputs import StepAudio
from realtime_tts.model.checkpoint import LoadedModel

TEXT = "theweatherisnice"
REST = "todayandwewalkalongtheriver"
HEAD = {"text_head": TextHead(1, 0)}


@pytest.fixture(autouse=True)
def small_and_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch of the random model is 1.5 ms, and its head reads anywhere, as if it skipped and repeated."""
    monkeypatch.setattr("realtime_tts.engine.voices.MIN_RECORDING_S", 0.005)
    monkeypatch.setattr("realtime_tts.engine.engine.AUDIBLE_FAULTS", ("babbles",))


def speak(harness: EngineHarness, name: str, text: str = TEXT, **fields: Any) -> int:
    """Speak a text to its end in a context of its own. Return the number of steps of the device."""
    before = harness.engine.num_steps
    harness.say(name, text, **{"openings": True, "seed": 3, **fields})
    harness.run()
    harness.engine.post(frames.CloseContext(name))
    harness.engine.step()
    return harness.engine.num_steps - before


def sent(harness: EngineHarness, name: str) -> list[frames.Message]:
    """All messages of a request, without its name and what a cache may change."""
    changed: dict[str, Any] = {"request_id": ""}
    messages = []
    for message in harness.sent:
        if getattr(message, "request_id", None) == name:
            unlike = (
                {"cached_positions": 0, "prefill_positions": 0, "num_remembered": 0}
                if isinstance(message, frames.Done)
                else {}
            )
            messages.append(dataclasses.replace(message, **changed, **unlike))
    return messages


def num_hits(harness: EngineHarness) -> int:
    return harness.engine.stats().opening_hits


def test_a_text_that_was_spoken_twice_is_sent_from_memory_without_a_step(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, HEAD)
    assert speak(harness, "first") > 0
    assert harness.engine.stats().opening_bytes == 0
    assert speak(harness, "second") > 0
    assert harness.engine.stats().opening_bytes > 0
    assert speak(harness, "third") == 0
    assert sent(harness, "third") == sent(harness, "second")
    assert num_hits(harness) == 1


def test_a_hit_is_sent_when_its_text_arrives_and_needs_no_slot(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, max_streams=1)
    speak(harness, "first")
    speak(harness, "second")
    harness.say("other", "abcdefgh", max_patches=8)
    harness.engine.step()
    harness.sent.clear()
    harness.engine._handle(frames.Generate("hit", "hit", TEXT, seed=3, steps=4, encoding="f32le", max_patches=8,
                                           openings=True))  # fmt: skip
    assert isinstance(harness.end("hit"), frames.Done)
    assert len(harness.pcm("hit")) > 0
    assert harness.engine.scheduler.num_free_slots == 0


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 4},
        {"cfg": 1.0},
        {"steps": 5},
        {"encoding": "s16le"},
        {"tenant": "b"},
        {"text": TEXT + "s"},
        {"instructions": "old"},
        {"voice": "v"},
        {"openings": False},
    ],
    ids=str,
)
def test_only_what_sounds_the_same_for_the_same_tenant_is_a_hit(tiny: LoadedModel, other: dict[str, Any]) -> None:
    harness = EngineHarness(tiny)
    add_voice(harness, "reference")
    usual = {"tenant": "a"} if "voice" not in other else {}
    speak(harness, "first", **usual)
    speak(harness, "second", **usual)
    assert speak(harness, "other", **{**usual, **other}) > 0
    assert num_hits(harness) == 0
    assert speak(harness, "third", **usual) == 0


def test_an_opening_in_a_voice_ends_with_the_voice_and_is_never_given_to_another_tenant(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    add_voice(harness, "reference")
    speak(harness, "first", voice="v")
    speak(harness, "second", voice="v")
    assert speak(harness, "third", voice="v") == 0
    speak(harness, "thief", voice="v", tenant="b")
    assert isinstance(harness.end("thief"), frames.Failed)
    harness.engine.post(frames.RemoveVoice("v"))
    harness.engine.step()
    assert harness.engine.stats().opening_bytes == 0
    add_voice(harness, "reference")
    assert speak(harness, "fourth", voice="v") > 0


def test_openings_of_no_tenant_are_for_all_but_not_the_other_way_round(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    speak(harness, "first")
    speak(harness, "second")
    assert speak(harness, "tenant", tenant="a") == 0
    speak(harness, "own", REST, tenant="a")
    speak(harness, "own again", REST, tenant="a")
    assert speak(harness, "theirs", REST) > 0
    assert speak(harness, "yours", REST, tenant="b") > 0


def test_a_text_that_goes_on_otherwise_than_in_the_shared_opening_is_not_added_to_it(exact: LoadedModel) -> None:
    harness = live(exact)
    for name in ("first", "second"):
        open_and_extend(harness, name, [TEXT, TEXT + REST])
    before = harness.engine.stats().opening_bytes
    open_and_extend(harness, "secret", [TEXT, TEXT + "secret"], tenant="a")
    assert num_hits(harness) == 1
    assert harness.engine.stats().opening_bytes == before


def test_the_next_segment_and_later_requests_of_a_context_are_what_they_are_without_memory(exact: LoadedModel) -> None:
    with_memory, without = EngineHarness(exact), EngineHarness(exact)
    for name in ("first", "second", "third"):
        for harness in (with_memory, without):
            harness.say(name, TEXT, seed=3, openings=harness is with_memory)
            harness.say(name + "/1", REST, context=name, seed=3, segment=1, openings=harness is with_memory)
            harness.run()
        for request in (name, name + "/1"):
            assert np.array_equal(with_memory.pcm(request), without.pcm(request))
    assert num_hits(with_memory) == 1


def open_and_extend(harness: EngineHarness, name: str, texts: list[str], **fields: Any) -> None:
    """Speak a text of which more comes each time that the engine has nothing left to do."""
    harness.say(name, texts[0], **{"openings": True, "seed": 3, "final": False, "max_patches": 14, **fields})
    for text in texts[1:]:
        while harness.engine.step():
            harness.now += 0.01
        harness.engine.post(frames.Extend(name, text, final=text == texts[-1]))
    harness.run()
    harness.engine.post(frames.CloseContext(name))
    harness.engine.step()


@pytest.mark.parametrize("policy", [{}, HEAD], ids=["estimated", "measured"])
def test_a_live_text_is_sent_from_memory_until_it_goes_on_otherwise(exact: LoadedModel, policy: dict[str, Any]) -> None:
    with_memory, without = live(exact, policy), live(exact, policy)
    ways = [[TEXT, TEXT + REST], [TEXT, TEXT + REST], [TEXT, TEXT + REST], [TEXT, TEXT + "yesterdayitrained"]]
    steps = []
    for number, texts in enumerate(ways):
        before = with_memory.engine.num_steps
        open_and_extend(with_memory, str(number), texts)
        steps.append(with_memory.engine.num_steps - before)
        open_and_extend(without, str(number), texts, openings=False)
        assert np.array_equal(with_memory.pcm(str(number)), without.pcm(str(number)))
    assert steps[2] == 0
    assert 0 < steps[3] < steps[0]
    with_memory.engine.scheduler.pool.forget(range(96))
    with_memory.assert_nothing_leaked()


@pytest.mark.parametrize("number", range(8))
def test_random_requests_sound_the_same_with_memory_and_without(
    exact: LoadedModel, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few texts, so that many begin alike, are cut anywhere, and go on otherwise; what is kept is short and little."""
    chance = random.Random(number)
    patch_s = patch_duration_s(exact)
    monkeypatch.setattr("realtime_tts.engine.opening_memory.MAX_OPENING_S", patch_s * chance.choice([2, 4, 100]))
    policy = HEAD if chance.random() < 0.5 else {}
    with_memory = live(exact, policy, max_opening_bytes=chance.choice([8_000, 1 << 20]), max_streams=4)
    without = live(exact, policy, max_streams=4)
    for harness in (with_memory, without):
        add_voice(harness, "both")
    ends = [REST, "yesterdayitrained", ""]
    for turn in range(10):
        whole = TEXT + chance.choice(ends)
        texts = [whole]
        if chance.random() < 0.7:
            cuts = sorted(chance.sample([8, 12, 16, 20, 28], 2))
            texts = [*(whole[:cut] for cut in cuts if cut < len(whole)), whole]
        fields: dict[str, Any] = {
            "steps": 2,
            "seed": chance.choice([3, 3, 3, 4]),
            "voice": chance.choice([None, None, "v"]),
            "max_patches": chance.choice([3, 9, 14]),
            "encoding": chance.choice(["f32le", "f32le", "f32le", "s16le"]),
        }
        name = str(turn)
        for harness in (with_memory, without):
            own = {**fields, "openings": harness is with_memory}
            if len(texts) == 1:
                speak(harness, name, whole, **own)
            else:
                open_and_extend(harness, name, texts, **own)
        assert sounds(with_memory, name) == sounds(without, name)
    check_memory(with_memory.engine._memory.openings)


def sounds(harness: EngineHarness, name: str) -> tuple[bytes, str]:
    end = harness.end(name)
    assert isinstance(end, frames.Done)
    audio = (m.payload for m in harness.sent if isinstance(m, frames.Audio) and m.request_id == name)
    return b"".join(audio), end.finish_reason


def check_memory(openings: Openings) -> None:
    assert openings.num_bytes == sum(opening.num_bytes for opening in openings._openings.values())
    assert openings.num_bytes <= openings._max_bytes


def test_what_is_cancelled_or_closed_in_memory_ends_at_once_and_leaks_nothing(tiny: LoadedModel) -> None:
    harness = live(tiny)
    for name in ("first", "second"):
        open_and_extend(harness, name, [TEXT, TEXT + REST])
    for name, stop in (("cancelled", frames.Cancel("cancelled")), ("closed", frames.CloseContext("closed"))):
        harness.say(name, TEXT, openings=True, seed=3, final=False, max_patches=14)
        harness.engine.step()
        assert len(harness.pcm(name)) > 0
        harness.engine.post(stop)
        harness.engine.step()
        end = harness.end(name)
        assert isinstance(end, frames.Done)
        assert end.finish_reason == "cancelled"
    assert num_hits(harness) == 2
    harness.engine.scheduler.pool.forget(range(96))
    harness.assert_nothing_leaked()


def test_no_more_is_sent_from_memory_than_the_listener_may_be_ahead(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_stop(monkeypatch, tiny)
    patch_s = patch_duration_s(tiny)
    limits = {"park_high_s": 3.5 * patch_s, "park_low_s": 2.5 * patch_s}
    harness = EngineHarness(tiny, **limits)
    fields = {"max_patches": 12}
    speak(harness, "first", TEXT + REST, **fields)
    speak(harness, "second", TEXT + REST, **fields)
    harness.say("hit", TEXT + REST, openings=True, seed=3, paced=True, **fields)
    assert not harness.engine.step()
    assert len(harness.pcm("hit")) == 4 * tiny.config.patch_samples
    steps = harness.engine.num_steps
    for _ in range(40):
        idle_s = harness.engine.idle_s()
        if idle_s is None:
            break
        harness.now += idle_s + 1e-6
        harness.engine.step()
    assert np.array_equal(harness.pcm("hit"), harness.pcm("second"))
    assert harness.engine.num_steps == steps
    assert isinstance(harness.end("hit"), frames.Done)


@pytest.mark.parametrize("policy", [{}, HEAD], ids=["estimated", "measured"])
@pytest.mark.parametrize("num_kept", [6, 12], ids=["goes on behind it", "ends in it"])
@pytest.mark.parametrize("again_patches", [0, 2])
def test_a_listener_that_holds_and_releases_in_an_opening_hears_what_others_hear(
    exact: LoadedModel, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], num_kept: int, again_patches: int
) -> None:
    never_stop(monkeypatch, exact)
    patch_s = patch_duration_s(exact)
    monkeypatch.setattr("realtime_tts.engine.opening_memory.MAX_OPENING_S", (num_kept - 0.5) * patch_s)
    harness = EngineHarness(exact, policy, park_high_s=2.5 * patch_s, park_low_s=1.5 * patch_s)
    for name in ("first", "second"):
        speak(harness, name, max_patches=12)
    harness.say("x", TEXT, openings=True, seed=3, paced=True, max_patches=12)
    harness.engine.step()
    num_sent = len(sent(harness, "x"))
    assert 2 < num_sent < num_kept, "in the middle of the opening"
    harness.engine.post(frames.Playback("x", 2000 * patch_s, paused=True))
    for _ in range(10):
        harness.engine.step()
        harness.now += 1.0
    held = len(sent(harness, "x"))
    assert num_sent < held < num_kept
    harness.engine.post(frames.Playback("x", 1000 * (2 - again_patches) * patch_s))
    for _ in range(500):
        if harness.engine.is_idle:
            break
        harness.engine.step()
        harness.now += patch_s / 4
    assert num_hits(harness) == 1
    *audio, done = sent(harness, "x")
    *expected, _ = sent(harness, "second")
    assert [dataclasses.replace(each, payload=b"") for each in audio] == [  # type: ignore[call-arg]
        dataclasses.replace(each, payload=b"")
        for each in expected  # type: ignore[call-arg]
    ]
    assert np.allclose(harness.pcm("x"), harness.pcm("second"), atol=1e-6)
    assert isinstance(done, frames.Done)
    harness.engine.post(frames.CloseContext("x"))
    harness.engine.step()
    harness.engine.scheduler.pool.forget(range(96))
    harness.assert_nothing_leaked()


def test_speech_with_a_fault_is_not_kept(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(tiny, HEAD)
    speak(harness, "first")
    real = harness.engine.output._ends

    def faulty(segment: Any, *args: Any) -> bool:
        segment.end_detector.faults["babbles"] = 1
        return real(segment, *args)

    monkeypatch.setattr(harness.engine.output, "_ends", faulty)
    speak(harness, "second")
    assert harness.engine.stats().opening_bytes == 0


def patch(number: int = 0) -> StepAudio:
    return StepAudio("x", np.full(8, number, np.int16), 0.0, np.zeros((1, 2), np.float32), None)


def place(voice: str = "v") -> OpeningPlace:
    return OpeningPlace((voice.encode(),), voice, is_ahead=True)


def test_the_opening_that_was_not_used_for_longest_is_dropped_whole() -> None:
    openings = Openings(max_bytes=1 << 20, max_patches=8)
    for text in ("a", "b", "c"):
        begun = place()
        openings.keep(begun, text, patch(0), stop=False)
        openings.keep(begun, text, patch(1), stop=True)
    used = place()
    assert openings.next(used, "a") is not None
    openings._max_bytes = openings.num_bytes
    openings.keep(place(), "d", patch(), stop=False)
    assert openings.next(place(), "b") is None
    again = place()
    assert openings.next(again, "a") is not None
    remembered = openings.next(again, "a")
    assert remembered is not None
    assert (remembered.audio.pcm[0], remembered.stop) == (1, True)
    check_memory(openings)


def test_what_is_kept_of_one_context_is_bounded() -> None:
    openings = Openings(max_bytes=1 << 20, max_patches=2)
    begun, again = place(), place()
    for number in range(4):
        openings.keep(begun, "a", patch(number), stop=False)
    found = [openings.next(again, "a") for _ in range(3)]
    assert [each is not None for each in found] == [True, True, False]


def test_an_opening_larger_than_the_memory_is_not_kept() -> None:
    openings = Openings(max_bytes=600, max_patches=8)
    begun = place()
    for number in range(4):
        openings.keep(begun, "a", patch(number), stop=False)
    assert openings.num_bytes <= 600
    check_memory(openings)
    assert openings.next(place(), "a") is None or openings.num_bytes > 0
