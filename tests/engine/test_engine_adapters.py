"""Adapters in the engine: each stream is changed by its own alone, and what was computed with one is not shared."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from engine_harness import EngineHarness
from random_adapters import merge, write_adapter

from realtime_tts.bench.checkpoint import adapter_tensors
from realtime_tts.contract import frames
from realtime_tts.engine import engine as engine_module
from realtime_tts.model.adapted import AdapterBank, AdapterLimits
from realtime_tts.model.adapter_file import AdapterWeights, read_adapter
from realtime_tts.model.checkpoint import LoadedModel

LIMITS = AdapterLimits(max_adapters=2, max_rank=4)
SCALE = 6 / 4
TEXTS = ["hello", "theweatherisnicetoday", "yes", "onetwothreefourfivesixseven", "abc", "quick", "brownfox"]
WHOSE = [None, "first", "second", "first", None, "second", "first"]


@pytest.fixture(scope="module")
def fine(tiny: LoadedModel) -> LoadedModel:
    """Quantised so finely that a number next to a boundary, on its other side by rounding, is no other number."""
    model = copy.deepcopy(tiny.model)
    model.fsq_layer.scale = 2**16
    return dataclasses.replace(tiny, model=model)


@pytest.fixture(scope="module")
def adapters(fine: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, AdapterWeights]:
    directory = tmp_path_factory.mktemp("adapters")
    found = {}
    for seed, name in enumerate(("first", "second", "third")):
        tensors = adapter_tensors(fine.model, seed)
        found[name] = read_adapter(name, write_adapter(directory / name, tensors), fine.model, LIMITS)
    return found


class Adapted(EngineHarness):
    """With room for two adapters, on a copy of the model."""

    def __init__(self, loaded: LoadedModel, *known: AdapterWeights, is_captured: bool = False, **limits: Any) -> None:
        model = copy.deepcopy(loaded.model)
        bank = AdapterBank(model, LIMITS, is_captured=is_captured)
        super().__init__(dataclasses.replace(loaded, model=model), bank=bank, **limits)
        for adapter in known:
            self.engine.post(adapter)


def say_all(harness: EngineHarness, *, only: int | None = None, is_guided: bool = True) -> None:
    for number, (text, name) in enumerate(zip(TEXTS, WHOSE, strict=True)):
        if only in (None, number):
            steps, cfg = steps_and_cfg(number, is_guided)
            harness.say(f"r{number}", text, adapter=name, seed=number, max_patches=3 + number, steps=steps, cfg=cfg)
            harness.engine.step()
    harness.run()


def assert_same(ours: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("is_captured", [False, True], ids=["by groups", "masked"])
def test_two_adapters_and_none_in_one_batch_equal_their_runs_alone_and_merged_weights(
    fine: LoadedModel, adapters: dict[str, AdapterWeights], is_captured: bool
) -> None:
    known = adapters["first"], adapters["second"]
    together = Adapted(fine, *known, is_captured=is_captured, max_prefill_positions=16)
    say_all(together)
    for number, name in enumerate(WHOSE):
        alone = Adapted(fine, *known, is_captured=is_captured)
        say_all(alone, only=number)
        assert_same(together.pcm(f"r{number}"), alone.pcm(f"r{number}"))
        model = copy.deepcopy(fine.model)
        if name is not None:
            merge(model, adapter_tensors(fine.model, list(adapters).index(name)), SCALE)
        merged = EngineHarness(dataclasses.replace(fine, model=model))
        say_all_plainly(merged, number)
        assert_same(together.pcm(f"r{number}"), merged.pcm(f"r{number}"))
    together.assert_nothing_leaked()


@pytest.mark.parametrize("is_captured", [False, True], ids=["by groups", "masked"])
def test_an_adapter_changes_its_streams_where_there_is_no_guidance_too(
    fine: LoadedModel, adapters: dict[str, AdapterWeights], is_captured: bool
) -> None:
    """There the flow has half the rows."""
    together = Adapted(fine, adapters["first"], adapters["second"], is_captured=is_captured)
    say_all(together, is_guided=False)
    for number in (1, 2, 3):  # an adapter, the other, and the first with fewer steps
        model = copy.deepcopy(fine.model)
        merge(model, adapter_tensors(fine.model, list(adapters).index(WHOSE[number])), SCALE)
        merged = EngineHarness(dataclasses.replace(fine, model=model))
        say_all_plainly(merged, number, is_guided=False)
        assert_same(together.pcm(f"r{number}"), merged.pcm(f"r{number}"))


def steps_and_cfg(number: int, is_guided: bool = True) -> tuple[int, float]:
    steps, cfg = (3, 1.5) if number % 3 == 0 else (4, 2.0)
    return steps, cfg if is_guided else 1.0


def say_all_plainly(harness: EngineHarness, number: int, *, is_guided: bool = True) -> None:
    steps, cfg = steps_and_cfg(number, is_guided)
    harness.say("x", TEXTS[number], seed=number, max_patches=3 + number, steps=steps, cfg=cfg)
    harness.run()
    harness.sent = [dataclasses.replace(m, request_id=f"r{number}") for m in harness.sent if hasattr(m, "request_id")]


def test_a_stream_without_an_adapter_is_bit_for_bit_that_of_an_engine_without_any(
    fine: LoadedModel, adapters: dict[str, AdapterWeights]
) -> None:
    with_room, without = Adapted(fine, adapters["first"]), EngineHarness(fine)
    for harness in (with_room, without):
        harness.say("x", "theweatherisnicetoday", seed=5)
        harness.run()
    assert np.array_equal(with_room.pcm("x"), without.pcm("x"))


def done(harness: EngineHarness, name: str) -> frames.Done:
    end = harness.end(name)
    assert isinstance(end, frames.Done), end
    return end


LONG = "onetwothreefourfivesixseveneightnineten"  # several KV blocks


def test_cached_prefixes_are_kept_apart_by_adapter(fine: LoadedModel, adapters: dict[str, AdapterWeights]) -> None:
    harness = Adapted(fine, adapters["first"], adapters["second"])
    for name, adapter in (("cold", None), ("a", "first"), ("b", "second"), ("a again", "first"), ("warm", None)):
        harness.say(name, LONG, adapter=adapter, seed=1)
        harness.run()
    reused = {name: done(harness, name).cached_positions for name in ("cold", "a", "b", "a again", "warm")}
    assert (reused["cold"], reused["a"], reused["b"]) == (0, 0, 0)
    assert reused["a again"] == reused["warm"] > 0
    assert_same(harness.pcm("a again"), harness.pcm("a"))
    assert_same(harness.pcm("warm"), harness.pcm("cold"))
    assert not np.array_equal(harness.pcm("a")[:64], harness.pcm("b")[:64])


def test_a_prefix_of_another_adapter_would_be_heard(
    fine: LoadedModel, adapters: dict[str, AdapterWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above could not pass by luck: the same blocks under one hash give other speech."""
    alone = Adapted(fine, adapters["first"])
    alone.say("a", LONG, adapter="first", seed=1)
    alone.run()
    root = engine_module.prefix_root

    def without_adapter(model: str, adapter: str, tenant: str, *opening: str) -> bytes:
        return root(model, adapter if opening else "", tenant, *opening)

    monkeypatch.setattr(engine_module, "prefix_root", without_adapter)
    harness = Adapted(fine, adapters["first"])
    harness.say("cold", LONG, seed=1)
    harness.run()
    harness.say("a", LONG, adapter="first", seed=1)
    harness.run()
    assert done(harness, "a").cached_positions > 0
    with pytest.raises(AssertionError):
        assert_same(harness.pcm("a"), alone.pcm("a"))


def test_a_voices_cached_latents_are_kept_apart_by_adapter(
    fine: LoadedModel, adapters: dict[str, AdapterWeights]
) -> None:
    harness = Adapted(fine, adapters["first"])
    config = fine.config
    patches = np.random.RandomState(0).standard_normal((20, config.patch_size, config.latent_dim)).astype("<f4")
    shape = config.patch_size, config.latent_dim
    harness.engine.post(frames.AddVoice("v", 20, 0, *shape, payload=patches.tobytes()))
    for name, adapter in (("plain", None), ("a", "first"), ("a again", "first")):
        harness.say(name, "hello", voice="v", adapter=adapter, seed=1)
        harness.run()
    assert done(harness, "a").cached_positions == 0
    assert done(harness, "a again").cached_positions >= 16
    assert_same(harness.pcm("a again"), harness.pcm("a"))
    harness.engine.post(frames.RemoveVoice("v"))
    harness.run()
    assert harness.engine.scheduler.pool.num_cached == 0


def test_unloading_ends_the_requests_of_that_adapter_and_no_others(
    fine: LoadedModel, adapters: dict[str, AdapterWeights]
) -> None:
    harness = Adapted(fine, adapters["first"], adapters["second"])
    for name, adapter in (("a", "first"), ("b", "second"), ("c", None)):
        harness.say(name, "theweatherisnicetoday", adapter=adapter, seed=2, max_patches=6)
    harness.say("waits", "hello", context="a", adapter="first")
    for _ in range(3):
        harness.engine.step()
    harness.engine.post(frames.RemoveAdapter("first"))
    harness.engine.post(frames.RemoveAdapter("nobody knows it"))
    harness.run()
    for name in ("a", "waits"):
        end = harness.end(name)
        assert isinstance(end, frames.Failed)
        assert end.code == "adapter_not_found"
    for name, adapter in (("b", "second"), ("c", None)):
        alone = Adapted(fine, adapters["second"])
        alone.say(name, "theweatherisnicetoday", adapter=adapter, seed=2, max_patches=6)
        alone.run()
        assert_same(harness.pcm(name), alone.pcm(name))
    harness.say("late", "hello", adapter="first")
    harness.run()
    assert isinstance(harness.end("late"), frames.Failed)
    harness.assert_nothing_leaked()


def test_an_adapter_is_unloaded_whose_draft_has_just_made_room(
    fine: LoadedModel, adapters: dict[str, AdapterWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text outgrows its reservation and takes the blocks of the draft, before the next step."""
    monkeypatch.setattr("realtime_tts.engine.opening_memory.MAX_DRAFT_S", 1.0)
    policy = {"max_segment_chars": 8, "max_patches_per_char": 1.0}
    fine = dataclasses.replace(fine, policy=dataclasses.replace(fine.policy, **policy))
    harness = Adapted(fine, adapters["first"], num_blocks=6)
    harness.say("grows", LONG[:10], final=False, max_patches=64)
    harness.engine.step()
    harness.say("d/0", "hello", context="d", draft=True, adapter="first")
    harness.engine.step()
    assert harness.engine.scheduler.pool.num_available == 2, "the draft has two of the six"
    harness.engine.post(frames.Extend("grows", LONG, final=True))
    harness.engine.post(frames.RemoveAdapter("first"))
    harness.run()
    assert isinstance(harness.end("grows"), frames.Done)
    harness.engine.scheduler.pool.forget(range(6))
    harness.assert_nothing_leaked()


def test_another_adapter_of_the_same_name_finds_nothing_of_the_one_before(
    fine: LoadedModel, adapters: dict[str, AdapterWeights]
) -> None:
    harness = Adapted(fine, adapters["first"])
    harness.say("before", LONG, adapter="first", seed=1)
    harness.run()
    harness.engine.post(frames.RemoveAdapter("first"))
    harness.engine.post(dataclasses.replace(adapters["second"], name="first"))
    harness.say("after", LONG, adapter="first", seed=1)
    harness.run()
    assert done(harness, "after").cached_positions == 0
    alone = Adapted(fine, adapters["second"])
    alone.say("after", LONG, adapter="second", seed=1)
    alone.run()
    assert_same(harness.pcm("after"), alone.pcm("after"))


def test_adapters_are_limited_in_number_and_each_name_is_loaded_once(
    fine: LoadedModel, adapters: dict[str, AdapterWeights]
) -> None:
    harness = Adapted(fine, adapters["first"], adapters["first"], adapters["second"], adapters["third"])
    harness.engine.post(frames.RemoveAdapter("first"))
    harness.engine.post(adapters["third"])
    harness.run()
    answers = [(m.type, m.name) for m in harness.sent]
    assert answers == [
        ("adapter_added", "first"),
        ("adapter_failed", "first"),
        ("adapter_added", "second"),
        ("adapter_failed", "third"),
        ("adapter_added", "third"),
    ]
    codes = [m.code for m in harness.sent if isinstance(m, frames.AdapterFailed)]
    assert codes == ["adapter_exists", "too_many_adapters"]


def test_an_engine_without_room_says_so(fine: LoadedModel, adapters: dict[str, AdapterWeights]) -> None:
    harness = EngineHarness(fine)
    harness.engine.post(adapters["first"])
    harness.say("x", "hello", adapter="first")
    harness.run()
    (refusal,) = (m for m in harness.sent if isinstance(m, frames.AdapterFailed))
    assert refusal.code == "adapter_error"
    end = harness.end("x")
    assert isinstance(end, frames.Failed)
    assert end.code == "adapter_not_found"
