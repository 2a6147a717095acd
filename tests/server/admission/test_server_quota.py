"""Keys share fairly: places at the handshake, characters a minute. All in a clock of our own."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.config import LimitsConfig
from realtime_tts.errors import RateLimited
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.quota import Quotas, fair_share
from realtime_tts.server.admission.slots import Grant, SlotCounts, SlotRequest, grant
from realtime_tts.server.admission.token_bucket import TokenBucket
from realtime_tts.session.messages import Text

A, B, C = (Client(name) for name in "abc")


def quotas(num_keys: int = 3, fair_from: float = 0.75, **limits: int) -> Quotas:
    sessions, chars = limits.get("sessions", 0), limits.get("chars", 0)
    config = LimitsConfig(max_sessions_per_tenant=sessions, max_chars_per_minute=chars, fair_share_from=fair_from)
    return Quotas(config, num_keys)


def charge(quota: Quotas, client: Client, num_chars: int, now: float) -> RateLimited | None:
    """Charge characters, or return the error that refuses them."""
    if (refusal := quota.refusal(client, now, num_chars)) is None:
        quota.charge(client, num_chars, now)
    return refusal


def text(num_chars: int) -> Text:
    return Text("c", "x" * num_chars)


def may_enter(quota: Quotas, client: Client, held: Counter[str], num_slots: int) -> bool:
    return held.total() < num_slots and held[client.tenant] < quota.max_sessions(client.tenant, held, num_slots)


# ---- places -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_keys", [0, 1])
def test_a_tenant_alone_takes_every_slot(num_keys: int) -> None:
    held = Counter({"a": 99})
    assert may_enter(quotas(num_keys), A, held, 100)


def test_a_greedy_tenant_leaves_the_last_slots_to_the_others() -> None:
    quota, held = quotas(), Counter[str]()
    while may_enter(quota, A, held, 100):
        held["a"] += 1
    assert held["a"] == 75
    while may_enter(quota, B, held, 100):
        held["b"] += 1
    assert held["b"] == 25


def test_with_fair_from_1_no_tenant_is_held_to_a_share() -> None:
    assert may_enter(quotas(fair_from=1.0), A, Counter({"a": 99}), 100)


def test_limits_of_a_key_and_of_a_token() -> None:
    quota, counts = quotas(sessions=2), SlotCounts()

    def ask(token: str) -> Grant:
        request = SlotRequest("a", token, max_of_token=1, max_sessions=100)
        found = grant(request, counts, quota.max_sessions)
        if found is Grant.FREE:
            counts.add_socket("a", token)
        return found

    assert ask("t") is Grant.FREE
    assert ask("t") is Grant.TOKEN_FULL
    assert ask("u") is Grant.FREE
    assert ask("v") is Grant.TENANT_FULL
    assert quota.max_sessions("a", {"a": 1}, 100) == 2


@settings(max_examples=50, deadline=None)
@given(
    num_slots=st.integers(1, 60),
    num_keys=st.integers(1, 6),
    fair_from=st.floats(0, 1),
    greed=st.lists(st.integers(1, 20), min_size=6, max_size=6),
    seed=st.integers(0, 2**32),
)
def test_a_tenant_below_its_share_is_admitted_if_a_slot_is_free(
    num_slots: int, num_keys: int, fair_from: float, greed: list[int], seed: int
) -> None:
    """Sessions come and go; keys knock `greed` times as often as others."""
    quota, held, rng = quotas(num_keys, fair_from), Counter[str](), random.Random(seed)
    knocks = [Client(str(key)) for key in range(num_keys) for _ in range(greed[key])]
    share = fair_share(num_slots, num_keys)
    for _ in range(3 * num_slots):
        rng.shuffle(knocks)
        for client in knocks:
            is_owed = held.total() < num_slots and held[client.tenant] < share
            let_in = may_enter(quota, client, held, num_slots)
            assert let_in or not is_owed
            held[client.tenant] += let_in
        leaver = rng.choice(sorted(held.elements()))
        held[leaver] -= 1


@pytest.mark.parametrize("num_keys", [2, 3, 5])
def test_tenants_that_ask_for_all_slots_end_up_with_equal_shares(num_keys: int) -> None:
    quota, held, rng = quotas(num_keys), Counter[str](), random.Random(0)
    knocks = [Client(str(key)) for key in range(num_keys) for _ in range(10 if key == 0 else 1)]
    for _ in range(2000):
        for client in knocks:  # the first key knocks first and ten times as often
            held[client.tenant] += may_enter(quota, client, held, 100)
        leaver = rng.choice(sorted(held.elements()))
        held[leaver] -= 1
    share = 100 // num_keys
    assert all(share - 1 <= held[str(key)] <= share for key in range(num_keys))


def test_a_tenant_that_comes_late_gets_its_share_as_others_leave() -> None:
    quota, held, rng = quotas(2), Counter({"a": 100}), random.Random(0)  # a had all, before b's key was there
    for _ in range(400):
        leaver = rng.choice(sorted(held.elements()))
        held[leaver] -= 1
        for client in (A, A, A, B):  # a knocks first, and often
            held[client.tenant] += may_enter(quota, client, held, 100)
    assert 48 <= held["b"] <= 50


# ---- characters ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 10_000), st.lists(st.tuples(st.floats(0, 30), st.integers(0, 20_000)), max_size=60))
def test_no_minute_has_more_than_the_budget_of_two(per_minute: int, wanted: list[tuple[float, int]]) -> None:
    """What was saved and what is new; a message larger than the budget counts as the budget, and is paid off."""
    budget, now, passed = TokenBucket(per_minute, per_minute / 60, 0.0), 0.0, list[tuple[float, int]]()
    for wait_s, count in wanted:
        now += wait_s
        if budget.wait_s(count, now) == 0:
            budget.take(count, now)
            passed.append((now, min(count, per_minute)))
    for start, _ in passed:
        assert sum(count for at, count in passed if start <= at < start + 60) <= 2 * per_minute * (1 + 1e-9) + 1


def test_a_message_passes_after_the_wait_that_was_given() -> None:
    budget = TokenBucket(600, 10, 0.0)
    budget.take(600, 0.0)
    assert budget.wait_s(100, 0.0) == pytest.approx(10)
    assert budget.wait_s(100, 10.0) == pytest.approx(0)
    assert budget.wait_s(5000, 60.0) == 0, "a message larger than the budget passes when it is full"
    budget.take(5000, 60.0)
    assert budget.wait_s(1, 60.0) == pytest.approx(440.1)
    assert budget.is_full(1000.0)


def test_text_is_charged_to_the_key_and_to_the_token() -> None:
    quota = quotas(chars=1000)
    page, other = Client("a", "t", max_chars_per_minute=100), Client("a", "u", max_chars_per_minute=100)
    assert charge(quota, page, 100, 0.0) is None
    refusal = charge(quota, page, 60, 0.0)
    assert isinstance(refusal, RateLimited)
    assert (refusal.code, refusal.retryable, refusal.retry_after_s) == ("rate_limited", True, pytest.approx(36))
    assert charge(quota, other, 100, 0.0) is None
    assert charge(quota, A, 800, 0.0) is None
    assert charge(quota, A, 1, 0.0) is not None, "the key's own"
    assert charge(quota, B, 1000, 0.0) is None, "another key's"
    assert quota.refusal(other, 0.0) is not None
    assert quota.refusal(B, 60.0) is None


def test_tokens_that_came_and_went_are_forgotten() -> None:
    quota = quotas()
    for number in range(10_000):
        now = number * 0.1
        assert charge(quota, Client("a", f"t{number}", max_chars_per_minute=10), 10, now) is None
    assert len(quota._budgets) <= 2 * 600 + 64
