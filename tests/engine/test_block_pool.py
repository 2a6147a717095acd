"""Blocks: never lost, never shared by mistake, found again by prefix."""

from __future__ import annotations

import pytest
from block_pools import check_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from realtime_tts.engine.core.block_pool import BlockPool, chain_hashes, prefix_root

ROOT = prefix_root("model", "adapter", "tenant")


def content(text: str) -> list[bytes]:
    return [character.encode() for character in text]


def test_a_known_prefix_is_reused_but_never_the_last_position() -> None:
    pool = BlockPool(8, block_size=4)
    hashes = chain_hashes(ROOT, content("abcdefgh"), 4)
    first = pool.allocate(10, hashes, 8)
    assert first is not None
    assert first.num_cached_positions == 0
    pool.remember(first.blocks, hashes)
    again = pool.allocate(10, hashes, 8)
    assert again is not None
    assert again.num_cached_positions == 4  # 8 would leave nothing to compute the first patch from
    assert again.blocks[0] == first.blocks[0]
    assert not set(again.blocks[1:]) & set(first.blocks)
    longer = pool.allocate(9, chain_hashes(ROOT, content("abcdefghi"), 4), 9)
    assert longer is not None
    assert longer.num_cached_positions == 8


@pytest.mark.parametrize("parts", [("other", "adapter", "tenant"), ("model", "", "tenant"), ("model", "adapter", "x")])
def test_nothing_is_shared_across_models_adapters_or_tenants(parts: tuple[str, ...]) -> None:
    text = content("abcdefgh")
    assert not set(chain_hashes(ROOT, text, 4)) & set(chain_hashes(prefix_root(*parts), text, 4))


def test_the_parts_of_a_root_do_not_run_into_each_other() -> None:
    assert prefix_root("ab", "c") != prefix_root("a", "bc")
    assert chain_hashes(ROOT, [b"ab", b"c"], 2) != chain_hashes(ROOT, [b"a", b"bc"], 2)


def test_a_hash_depends_on_everything_before_it() -> None:
    one, two = chain_hashes(ROOT, content("aaaabbbb"), 4), chain_hashes(ROOT, content("xaaabbbb"), 4)
    assert len(one) == 2
    assert one[1] != two[1]


def test_the_least_recently_used_prefix_goes_first_and_the_end_of_a_chain_before_its_start() -> None:
    pool = BlockPool(4, block_size=1)
    old, new = chain_hashes(ROOT, content("ab"), 1), chain_hashes(ROOT, content("cd"), 1)
    for hashes in (old, new):
        allocation = pool.allocate(2, hashes, 3)
        assert allocation is not None
        pool.remember(allocation.blocks, hashes)
        pool.release(allocation.blocks)
    assert pool.num_cached == 4
    pool.allocate(1, [], 1)
    assert pool._block_of.keys() == {old[0], *new}


def test_a_full_pool_refuses_and_changes_nothing() -> None:
    pool = BlockPool(2, block_size=4)
    hashes = chain_hashes(ROOT, content("abcd"), 4)
    held = pool.allocate(4, hashes, 5)
    assert held is not None
    pool.remember(held.blocks, hashes)
    pool.release(held.blocks)
    assert pool.allocate(12, hashes, 5) is None  # its own cached block must not count as room
    check_pool(pool)
    assert pool.num_available == 2


def test_forgotten_blocks_are_not_found_again() -> None:
    pool = BlockPool(4, block_size=4)
    hashes = chain_hashes(ROOT, content("abcdefgh"), 4)
    held = pool.allocate(8, hashes, 9)
    assert held is not None
    pool.remember(held.blocks, hashes)
    pool.forget(held.blocks[:1])
    pool.release(held.blocks)
    pool.forget_hashes([*hashes, b"unknown"])
    check_pool(pool)
    assert (pool.num_cached, pool.num_available) == (0, 4)


def test_releasing_twice_is_a_bug_that_shows() -> None:
    pool = BlockPool(2)
    held = pool.allocate(1, [], 1)
    assert held is not None
    pool.release(held.blocks)
    with pytest.raises(AssertionError, match="twice"):
        pool.release(held.blocks)


@pytest.mark.parametrize("damage", ["lost", "doubled", "hidden", "crossed"])
def test_the_check_finds_damage(damage: str) -> None:
    pool = BlockPool(4)
    pool.remember([0], [b"h"])
    if damage == "lost":
        pool._free.pop()
    elif damage == "doubled":
        pool._free.append(pool._free[0])
    elif damage == "hidden":
        pool._free.remove(3)
        pool._idle[3] = None
    else:
        pool._hash_of[1] = b"other"
    with pytest.raises(AssertionError):
        check_pool(pool)


class PoolMachine(RuleBasedStateMachine):
    """Any order of use keeps each block in one place, and a cached position holds what its hash says."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12, block_size=2)
        self.held: list[tuple[tuple[int, ...], str, list[bytes]]] = []
        self.kv: dict[int, str] = {}  # what a block holds

    @rule(text=st.text("ab", min_size=1, max_size=8), extra=st.integers(0, 6), tenant=st.sampled_from("xy"))
    def allocate(self, text: str, extra: int, tenant: str) -> None:
        hashes = chain_hashes(prefix_root(tenant), content(text), 2)
        allocation = self.pool.allocate(len(text) + extra, hashes, len(text))
        if allocation is None:
            assert self.pool.blocks_for(len(text) + extra) > self.pool.num_available - 4
            return
        assert len(allocation.blocks) == self.pool.blocks_for(len(text) + extra)
        assert allocation.num_cached_positions < len(text)
        num_known = allocation.num_cached_positions // 2
        for number, block in enumerate(allocation.blocks):
            expected = tenant + text[: 2 * number + 2]
            if number < num_known:
                assert self.kv[block] == expected
            else:
                assert all(block not in blocks for blocks, _, _ in self.held)
                self.kv[block] = expected
        self.held.append((allocation.blocks, text, hashes))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        blocks, _, hashes = data.draw(st.sampled_from(self.held))
        self.pool.remember(blocks, hashes)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back_the_end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        blocks, text, hashes = self.held[index]
        kept = data.draw(st.integers(self.pool.blocks_for(len(text)), len(blocks)))
        self.pool.release(blocks[kept:])
        self.held[index] = blocks[:kept], text, hashes

    @precondition(lambda self: self.held)
    @rule(data=st.data(), failed=st.booleans())
    def release(self, data: st.DataObject, failed: bool) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        blocks, _, _ = self.held.pop(index)
        if failed:
            self.pool.forget(blocks)
        self.pool.release(blocks)

    @invariant()
    def holds(self) -> None:
        check_pool(self.pool)
        held = {block for blocks, _, _ in self.held for block in blocks}
        assert self.pool.num_available == 12 - len(held)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.binary(max_size=4), max_size=20), st.integers(1, 5))
def test_there_is_one_hash_per_full_block(items: list[bytes], size: int) -> None:
    assert len(chain_hashes(ROOT, items, size)) == len(items) // size
