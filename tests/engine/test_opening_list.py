"""Openings that are spoken before a request needs them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from engine_harness import EngineHarness
from test_live_text import live
from test_openings import HEAD, REST, TEXT, num_hits, speak

from realtime_tts.contract import frames
from realtime_tts.engine.opening_list import OpeningList
from realtime_tts.model.checkpoint import LoadedModel

WHOLE = TEXT + REST
TEXTS = [WHOLE[:10], WHOLE[:14], WHOLE[:18], WHOLE[:22], WHOLE[:26], WHOLE[:30], WHOLE]
SHORT = {"max_patches_per_char": 0.2, "max_segment_chars": 60}  # so that a text fits the random model
OPENING = frames.Opening(TEXTS, None, seed=3, cfg=2.0, steps=2)


@pytest.fixture(autouse=True)
def no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random model's head reads anywhere, as if it skipped and repeated."""
    monkeypatch.setattr("realtime_tts.engine.engine.AUDIBLE_FAULTS", ())


def listed(
    loaded: LoadedModel, policy: dict[str, Any] | None = None, opening: frames.Opening = OPENING
) -> EngineHarness:
    harness = live(loaded, {**SHORT, **(policy or {})})
    harness.engine.post(opening)
    harness.run()
    return harness


def script(openings: OpeningList, needs: list[int]) -> list[list[tuple[str, int]]]:
    """The texts of each request with the number of patches before; `needs`: characters that each patch requires."""
    ways = []
    while openings.is_due:
        first = openings.next()
        way = [(first.text, 0)]
        for number, need in enumerate(needs, 1):
            if (more := openings.more(number, lambda text, need=need: len(text) >= need)) and more[0] != way[-1][0]:
                way.append((more[0], number))
        openings.ended()
        ways.append(way)
    return ways


def test_a_text_arrives_whole_and_after_each_patch_up_to_where_it_must() -> None:
    openings = OpeningList()
    openings.add(dataclasses.replace(OPENING, texts=["ab", "abcd", "abcdef", "abcdefgh"]))
    assert script(openings, [3, 4, 5, 7, 9]) == [
        [("abcdefgh", 0)],
        [("ab", 0), ("abcdefgh", 1)],
        [("ab", 0), ("abcd", 1), ("abcdefgh", 2)],
        [("ab", 0), ("abcd", 1), ("abcdefgh", 3)],
        [("ab", 0), ("abcd", 1), ("abcdef", 3), ("abcdefgh", 4)],
        [("ab", 0), ("abcd", 1), ("abcdef", 3), ("abcdefgh", 4)],  # where it had to, which ends the list
    ]


def test_what_another_client_lists_again_and_what_is_empty_is_ignored() -> None:
    openings = OpeningList()
    openings.add(dataclasses.replace(OPENING, texts=[""]))
    assert not openings.is_due
    openings.add(dataclasses.replace(OPENING, texts=["ab"]))
    openings.add(dataclasses.replace(OPENING, texts=["ab"]))
    assert script(openings, [1]) == [[("ab", 0)]]


def test_a_listed_text_is_a_hit_for_every_tenant_from_its_first_request_on(tiny: LoadedModel) -> None:
    harness = listed(tiny)
    assert speak(harness, "x", WHOLE, encoding="s16le", tenant="a", cfg=2.0, steps=2, max_patches=None) == 0
    assert num_hits(harness) == 1  # those of the list itself do not count
    assert harness.engine.scheduler.num_contexts == 0


@pytest.mark.parametrize("policy", [{}, HEAD], ids=["estimated", "measured"])
def test_a_live_text_that_comes_word_by_word_is_in_memory(exact: LoadedModel, policy: dict[str, Any]) -> None:
    """Each word comes when the speech needs it, and all of the rest after `late` of them."""
    harness = listed(exact, policy)
    before = harness.engine.num_steps
    fields = {"encoding": "s16le", "cfg": 2.0, "steps": 2, "seed": 3, "max_patches": 100, "openings": True}
    for late in (0, 1, 3):
        name = f"{late} late"
        harness.sent.clear()
        harness.say(name, TEXTS[0], final=False, **fields)
        assert not harness.engine.step()
        assert len(harness.sent) > 0
        for text in TEXTS[1 : 1 + late]:
            harness.engine.post(frames.Extend(name, text, final=False))
            while harness.engine.step():
                pass
        assert harness.engine.num_steps == before
        harness.engine.post(frames.Extend(name, WHOLE, final=True))
        harness.run()
        assert isinstance(harness.end(name), frames.Done)
        assert harness.engine.num_steps == before
    assert num_hits(harness) == 3


def test_a_stopped_list_lets_the_worker_leave(tiny: LoadedModel) -> None:
    harness = live(tiny)
    harness.engine.post(OPENING)
    harness.engine.step()
    harness.engine.listed.is_stopped = True
    harness.run()
    harness.engine.step()
    assert harness.engine.scheduler.num_contexts == 0
    assert harness.engine.listed.is_due is False


def test_a_list_ends_when_the_worker_refuses_its_requests(tiny: LoadedModel) -> None:
    harness = live(tiny)
    harness.engine.is_draining = True
    harness.engine.post(OPENING)
    harness.run()
    assert not harness.engine.listed.is_due
    assert np.all([isinstance(message, frames.Failed) for message in harness.sent])


@pytest.mark.parametrize("texts", [[], [WHOLE[:4], WHOLE[:6]], [WHOLE[:4], WHOLE[:6], WHOLE]])
def test_a_list_without_enough_text_to_begin_with_ends_too(tiny: LoadedModel, texts: list[str]) -> None:
    harness = listed(tiny, opening=dataclasses.replace(OPENING, texts=texts))
    assert harness.engine.scheduler.num_contexts == 0
    assert not harness.engine.listed.is_due


@pytest.mark.parametrize("texts", [[WHOLE[:10]] * 2, [WHOLE[:10], WHOLE[:26], WHOLE[:26]]])
def test_an_opening_whose_whole_text_is_the_last_part_ends_too(tiny: LoadedModel, texts: list[str]) -> None:
    """What follows the last word, such as an emoji, is not spoken."""
    harness = listed(tiny, opening=dataclasses.replace(OPENING, texts=texts))
    assert harness.engine.scheduler.num_contexts == 0
    assert not harness.engine.listed.is_due


def test_a_list_ends_where_only_the_beginning_of_a_text_fits(tiny: LoadedModel) -> None:
    """The beginning is in memory when its request comes again; the rest of the text is then refused from there."""
    harness = live(tiny, SHORT, num_blocks=3)
    harness.engine.post(dataclasses.replace(OPENING, texts=[WHOLE[:10], WHOLE[:14], WHOLE]))
    harness.run()
    assert not harness.engine.listed.is_due
    assert {message.code for message in harness.sent if isinstance(message, frames.Failed)} == {"request_too_large"}
    harness.say("next", TEXT[:4], max_patches=2)
    harness.run()
    assert isinstance(harness.end("next"), frames.Done)
