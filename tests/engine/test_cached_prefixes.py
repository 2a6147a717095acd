"""Prefixes in the cache are reported as they come and go, by the keys of the requests for them."""

from __future__ import annotations

import numpy as np
import pytest
from engine_harness import EngineHarness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from realtime_tts.contract import frames
from realtime_tts.engine.core.block_pool import BlockPool, CachedPrefixes, chain_hashes, prefix_root
from realtime_tts.model.checkpoint import LoadedModel

SIZE = 2  # of a block
MAX_PREFIXES = 3


def hashes_of(voice: str, num_blocks: int) -> list[bytes]:
    return chain_hashes(prefix_root(voice), [b"%d" % index for index in range(SIZE * num_blocks)], SIZE)


class Cache(RuleBasedStateMachine):
    """Prefixes come and go in a small pool; the reports alone tell what is cached."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(8, SIZE)
        self.prefixes = CachedPrefixes(self.pool, MAX_PREFIXES)
        self.now = 0.0
        self.heard: dict[bytes, int] = {}
        self.noted: dict[bytes, list[bytes]] = {}
        self.is_fresh = True

    @rule(voice=st.sampled_from("abcde"), num_blocks=st.integers(0, 3), computes=st.booleans())
    def speak(self, voice: str, num_blocks: int, computes: bool) -> None:
        hashes, key = hashes_of(voice, num_blocks), voice.encode()
        self.prefixes.note(key, hashes)
        if hashes:
            self.noted.pop(key, None)
            self.noted[key] = hashes
            while len(self.noted) > MAX_PREFIXES:
                del self.noted[next(iter(self.noted))]
        allocation = self.pool.allocate(SIZE * num_blocks + 1, hashes, SIZE * num_blocks + 1)
        assert allocation is not None
        if computes:
            self.pool.remember(allocation.blocks, hashes)
        self.pool.release(allocation.blocks)
        self.is_fresh = False

    @rule(voice=st.sampled_from("abcde"))
    def remove(self, voice: str) -> None:
        self.pool.forget_hashes(hashes_of(voice, 3))
        self.is_fresh = False

    @rule(later_s=st.sampled_from([1 / 64, 1.0, 5.0]))
    def listen(self, later_s: float) -> None:
        self.now += later_s
        news = self.prefixes.news(self.now)
        if news is None:
            self.is_fresh = self.is_fresh or later_s >= 1.0
            return
        cached, lost = news
        assert cached or lost
        assert not cached.keys() & set(lost)
        for key in lost:
            del self.heard[key]  # only what was told is lost
        self.heard |= cached
        self.is_fresh = later_s >= 1.0

    @invariant()
    def nothing_is_told_that_is_not_so(self) -> None:
        if self.is_fresh:
            cached = {key: SIZE * len(chain) for key, chain in self.noted.items() if self.pool.holds(chain[-1])}
            assert self.heard == cached


Cache.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCache = Cache.TestCase


def test_news_of_a_new_prefix_does_not_wait_for_the_next_look() -> None:
    pool = BlockPool(8, SIZE)
    prefixes, hashes = CachedPrefixes(pool), hashes_of("v", 2)
    prefixes.news(0.0)
    prefixes.note(b"v", hashes)
    assert prefixes.news(0.1) is None
    allocation = pool.allocate(5, hashes, 5)
    assert allocation is not None
    pool.remember(allocation.blocks, hashes)
    assert prefixes.news(0.2) == ({b"v": 4}, [])
    prefixes.note(b"v", hashes)
    assert prefixes.news(0.3) is None


def test_a_prefix_that_is_forgotten_and_noted_again_is_not_still_said_to_be_held() -> None:
    pool = BlockPool(8, SIZE)
    prefixes, hashes = CachedPrefixes(pool, max_prefixes=1), hashes_of("v", 1)
    allocation = pool.allocate(3, hashes, 3)
    assert allocation is not None
    pool.remember(allocation.blocks, hashes)
    prefixes.note(b"v", hashes)
    assert prefixes.news(0.0) == ({b"v": 2}, [])
    prefixes.note(b"w", hashes_of("w", 1))
    prefixes.note(b"v", hashes_of("v", 2))
    assert prefixes.news(0.1) == ({}, [b"v"])


def told(harness: EngineHarness) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for message in harness.sent:
        if isinstance(message, frames.Prefixes):
            found |= message.cached
            for key in message.lost:
                del found[key]
    return found


@pytest.mark.parametrize("with_prompt", [False, True])
def test_what_an_engine_says_is_what_the_next_request_finds(tiny: LoadedModel, with_prompt: bool) -> None:
    """Prefixes of a voice, and of a voice with a manner, are shared until the voice is removed."""
    harness, config = EngineHarness(tiny), tiny.config
    shape = config.patch_size, config.latent_dim
    patches = np.random.RandomState(0).standard_normal((40, *shape)).astype("<f4")
    prompt_text = "whatwassaidbeforeinarecording" if with_prompt else None
    counts = (36, 4) if with_prompt else (40, 0)
    harness.engine.post(frames.AddVoice("v", *counts, *shape, prompt_text=prompt_text, payload=patches.tobytes()))
    manner = "slowly and softly as if to a child" if tiny.supports_instructions and not with_prompt else None
    requests = [frames.Generate("", "", "", voice="v", instructions=given) for given in (None, manner)]
    for name, text, given in (("a", "hello", None), ("b", "goodbye", None), ("c", "well", manner), ("d", "so", manner)):
        harness.say(name, text, voice="v", instructions=given, seed=1)
        harness.run()
    harness.say("zero-shot", "nobody shares this", seed=1)
    harness.run()
    ends = {name: harness.end(name) for name in "abcd"}
    cached = {name: end.cached_positions for name, end in ends.items() if isinstance(end, frames.Done)}
    keys = [frames.prefix_keys(request)[-1] for request in requests]
    assert told(harness) == {keys[0]: cached["b"], keys[1]: cached["d"]}
    assert cached["a"] == 0 < cached["b"] == cached["c"] <= cached["d"]
    harness.engine.post(frames.RemoveVoice("v"))
    harness.now += 2.0
    harness.say("more", "hello", seed=1)
    harness.run()
    assert told(harness) == {}
