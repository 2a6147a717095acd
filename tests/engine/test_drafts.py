"""Drafts in the engine: made unheard, sent when their context's text begins alike, and in no other request's way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_harness import EngineHarness, patch_duration_s
from test_live_text import add_voice, never_stop

from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.model.checkpoint import LoadedModel

TEXT = "theweatherisnice"
OTHER = "yesterdayitrained"
HEAD = {"text_head": TextHead(1, 0)}
LENGTH = 5  # patches of a draft


@pytest.fixture(autouse=True)
def short_and_sound(monkeypatch: pytest.MonkeyPatch, tiny: LoadedModel, exact: LoadedModel) -> None:
    """A patch of the random model is 1.5 ms, and its head reads anywhere, as if it skipped and repeated."""
    never_stop(monkeypatch, tiny)
    never_stop(monkeypatch, exact)
    patch_s = patch_duration_s(tiny)
    monkeypatch.setattr("realtime_tts.engine.opening_memory.MAX_DRAFT_S", (LENGTH - 0.5) * patch_s)
    monkeypatch.setattr("realtime_tts.engine.voices.MIN_RECORDING_S", 0.005)
    monkeypatch.setattr("realtime_tts.engine.engine.AUDIBLE_FAULTS", ())


def draft(harness: EngineHarness, context: str, text: str = TEXT, **fields: Any) -> None:
    harness.say(f"{context}/0", text, context, draft=True, **{"seed": 3, "steps": None, **fields})


def commit(harness: EngineHarness, context: str, text: str = TEXT, **fields: Any) -> None:
    harness.say(f"{context}/0", text, context, **{"seed": 3, "steps": None, **fields})


def done(harness: EngineHarness, name: str) -> frames.Done:
    end = harness.end(name)
    assert isinstance(end, frames.Done)
    return end


def test_a_draft_is_not_sent_and_ends_after_its_length(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    draft(harness, "a", max_patches=100)
    harness.run()
    assert harness.engine.num_steps == LENGTH
    assert not [message for message in harness.sent if hasattr(message, "request_id")]
    assert harness.engine.stats().opening_bytes > 0
    harness.engine.scheduler.pool.forget(range(96))
    harness.assert_nothing_leaked()


@pytest.mark.parametrize("policy", [{}, HEAD], ids=["estimated", "measured"])
@pytest.mark.parametrize("num_steps", range(LENGTH + 1))
def test_a_text_that_begins_as_its_draft_is_sent_at_once_and_sounds_as_without_it(
    exact: LoadedModel, num_steps: int, policy: dict[str, Any]
) -> None:
    """Whenever it comes: before the draft's first patch, between two, or after its last."""
    with_draft, without = EngineHarness(exact, policy), EngineHarness(exact, policy)
    draft(with_draft, "a")
    for _ in range(num_steps):
        assert with_draft.engine.step()
    for harness in (with_draft, without):
        commit(harness, "a")
        harness.say("a/1", OTHER, "a", seed=3, segment=1, steps=None)
    with_draft.engine._handle_messages()
    sent = [message for message in with_draft.sent if isinstance(message, frames.Audio)]
    assert len(sent) == num_steps, "all that is in memory is sent before another step"
    for harness in (with_draft, without):
        harness.run()
    for name in ("a/0", "a/1"):
        assert np.array_equal(with_draft.pcm(name), without.pcm(name))
    assert done(with_draft, "a/0").num_remembered == num_steps
    assert with_draft.engine.stats().draft_hits == (num_steps > 0)
    assert with_draft.engine.stats().opening_hits == 0


@pytest.mark.parametrize(
    "other", [{"text": TEXT + "s"}, {"seed": 4}, {"tenant": "b"}, {"cfg": 1.0}, {"steps": 5}, {"voice": "v"}], ids=str
)
def test_a_text_that_begins_otherwise_is_spoken_as_if_there_had_been_no_draft(
    exact: LoadedModel, other: dict[str, Any]
) -> None:
    harness, without = EngineHarness(exact), EngineHarness(exact)
    for each in (harness, without):
        add_voice(each, "reference")
    usual = {"tenant": "a"} if "voice" not in other else {}
    draft(harness, "a", **usual)
    harness.run()
    for each in (harness, without):
        commit(each, "a", **{**usual, **other})
        each.run()
    assert np.array_equal(harness.pcm("a/0"), without.pcm("a/0"))
    assert done(harness, "a/0").num_remembered == 0


def test_a_draft_ends_with_its_context_and_a_new_one_takes_its_place(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    draft(harness, "a", OTHER)
    harness.engine.step()
    draft(harness, "a")
    harness.engine.step()
    harness.engine.post(frames.CloseContext("a"))
    harness.engine.step()
    assert harness.engine.is_idle
    assert harness.engine.num_steps == 2
    harness.engine.scheduler.pool.forget(range(96))
    harness.assert_nothing_leaked()


def test_a_draft_that_cannot_be_made_is_dropped_without_an_answer(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    draft(harness, "unknown voice", voice="missing")
    draft(harness, "empty", "")
    draft(harness, "no number of steps", steps=1000)
    harness.engine.is_draining = True
    draft(harness, "late")
    harness.run()
    assert harness.engine.num_steps == 0
    assert not [message for message in harness.sent if hasattr(message, "request_id")]


def test_a_draft_gives_its_slot_to_the_first_request_that_needs_it(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, max_streams=1)
    draft(harness, "a")
    harness.engine.step()
    commit(harness, "b", OTHER)
    harness.engine.step()
    stats = harness.engine.stats()
    assert (stats.running, stats.waiting, stats.free_slots) == (1, 0, 0)
    harness.run()
    done(harness, "b/0")
    commit(harness, "a")
    harness.run()
    assert done(harness, "a/0").num_remembered == 1, "what was made is kept"


def test_a_draft_is_no_load(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    before = harness.engine.stats()
    draft(harness, "a")
    for _ in range(2):
        harness.engine.step()
        stats = harness.engine.stats()
        names = ("running", "waiting", "parked", "awaiting_text", "contexts", "free_slots")
        assert [getattr(stats, name) for name in names] == [getattr(before, name) for name in names]


def test_a_draft_goes_with_its_voice(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    add_voice(harness, "reference")
    draft(harness, "a", voice="v")
    harness.run()
    harness.engine.post(frames.RemoveVoice("v"))
    harness.engine.step()
    assert harness.engine.stats().opening_bytes == 0


def test_a_draft_is_heard_where_openings_are_off_and_takes_nothing_from_them(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    for number in range(2):
        commit(harness, str(number), openings=True)
        harness.run()
    num_bytes = harness.engine.stats().opening_bytes
    draft(harness, "a")
    harness.run()
    assert harness.engine.stats().opening_bytes > num_bytes
    commit(harness, "a", openings=False)
    harness.run()
    assert done(harness, "a/0").num_remembered == LENGTH
    assert harness.engine.stats().opening_hits == 0


def test_a_listed_opening_that_begins_like_a_draft_is_spoken_all_the_same(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    draft(harness, "a", cfg=2.0, steps=2, encoding="s16le")
    harness.run()
    for text in (TEXT, OTHER):
        harness.engine.post(frames.Opening([text], None, seed=3, cfg=2.0, steps=2))
    harness.run()
    assert not harness.engine.listed.runs
    assert not harness.engine.listed.is_due
    assert harness.engine.scheduler.num_contexts == 0
