"""No new speech is admitted at the cost of running speech: the gateway's own lateness, and a full engine."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from realtime_tts.server.admission.capacity import SpeechLoad, refusal
from realtime_tts.server.admission.lateness import (
    DOUBLE_S,
    LEAST_STARTS,
    MOST_STARTS,
    NUM_PROBES,
    PROBE_EVERY_S,
    RECOVERY_S,
    Lateness,
    Pace,
)

MakeGateway = Callable[..., GatewayHarness]
LIMIT_S = 0.04
CARE_S = DOUBLE_S * math.ceil(math.log2(MOST_STARTS / LEAST_STARTS)) + 1  # from CAREFUL to FREE without lateness
GOOD, BETWEEN, LATE = 0.4 * LIMIT_S, 0.7 * LIMIT_S, LIMIT_S


class Probes:
    """Probes that were so late, one after the other."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.lateness, self._now = Lateness(limit_s), 0.0

    def see(self, *late_s: float) -> Pace:
        for late in late_s:
            self._now += PROBE_EVERY_S + late
            self.lateness.observe(late, self._now)
        return self.lateness.pace

    def see_for(self, seconds: float, *late_s: float) -> Pace:
        end = self._now + seconds
        while self._now < end:
            self.see(*late_s)
        return self.lateness.pace


# ---- the estimate ----------------------------------------------------------------------------------------------------


def test_one_long_halt_is_no_lateness() -> None:
    probes = Probes()
    assert probes.see(8.0, 8.0, 8.0) is Pace.FREE, "too little is known"
    probes = Probes()
    assert probes.see(GOOD, GOOD, 8.0, GOOD, 8.0, GOOD) is Pace.FREE
    assert probes.lateness.may_begin


def test_probes_may_be_rare_while_they_are_in_time() -> None:
    probes = Probes()
    assert not probes.lateness.is_calm, "nothing is known"
    probes.see(*[GOOD] * NUM_PROBES)
    assert probes.lateness.is_calm
    probes.see(BETWEEN)
    assert not probes.lateness.is_calm
    probes.see(GOOD)
    assert probes.lateness.is_calm
    probes.see(*[LATE] * NUM_PROBES, GOOD)
    assert not probes.lateness.is_calm, "it is late, or was"
    probes.see_for(RECOVERY_S + CARE_S + 1, GOOD)
    assert probes.lateness.is_calm
    assert Probes(limit_s=0).lateness.is_calm, "nothing depends on it"


def test_what_is_typically_late_is_late() -> None:
    probes = Probes()
    probes.see(*[GOOD] * NUM_PROBES)
    assert probes.see(*[LATE] * (NUM_PROBES // 2)) is Pace.FREE
    assert probes.see(LATE) is Pace.LATE
    assert probes.lateness.typical_s == LATE
    assert not probes.lateness.may_begin


def test_lateness_ends_after_a_second_below_half_of_it() -> None:
    probes = Probes()
    probes.see(*[LATE] * NUM_PROBES)
    assert probes.see_for(9 * RECOVERY_S, BETWEEN) is Pace.LATE
    assert probes.see_for(0.8 * RECOVERY_S, GOOD) is Pace.LATE
    assert probes.see_for(RECOVERY_S / 2, BETWEEN) is Pace.LATE
    assert probes.see_for(0.8 * RECOVERY_S, GOOD) is Pace.LATE, "the second begins anew"
    assert probes.see_for(RECOVERY_S, GOOD) is Pace.CAREFUL


def careful() -> Probes:
    probes = Probes()
    probes.see(*[LATE] * NUM_PROBES)
    while probes.lateness.pace is not Pace.CAREFUL:
        probes.see(GOOD)
    return probes


def starts_within(probes: Probes, seconds: float) -> int:
    """Number of streams that begin as soon as they may, while all probes are in time."""
    end, num_starts = probes._now + seconds, 0
    while probes._now < end and probes.lateness.pace is Pace.CAREFUL:
        while probes.lateness.may_begin:
            probes.lateness.begin()
            num_starts += 1
        probes.see(GOOD)
    return num_starts


def test_after_lateness_streams_begin_one_at_a_time_and_then_more() -> None:
    probes = careful()
    numbers = [starts_within(probes, DOUBLE_S) for _ in range(3)]
    assert 3 <= numbers[0] <= 8
    assert all(1.4 * before <= after <= 3 * before for before, after in itertools.pairwise(numbers)), numbers
    assert starts_within(probes, CARE_S) < MOST_STARTS * CARE_S / PROBE_EVERY_S
    assert probes.lateness.pace is Pace.FREE
    probes.lateness.begin()
    assert probes.lateness.may_begin


def test_a_late_probe_holds_up_starts_and_halves_their_pace() -> None:
    probes, other = careful(), careful()
    for each in (probes, other):
        starts_within(each, 3 * DOUBLE_S)
    probes.see(BETWEEN)
    assert not probes.lateness.may_begin, "that probe was not in time"
    assert starts_within(probes, DOUBLE_S / 2) < 0.7 * starts_within(other, DOUBLE_S / 2)


def test_unused_starts_are_not_saved_up() -> None:
    probes = careful()
    probes.see_for(0.9 * DOUBLE_S, GOOD)
    assert starts_within(probes, 1e-9) == 1


def test_lateness_comes_back_from_care() -> None:
    probes = Probes()
    probes.see(*[LATE] * NUM_PROBES)
    assert probes.see_for(2 * RECOVERY_S, GOOD) is Pace.CAREFUL
    assert probes.see_for(9 * CARE_S, BETWEEN) is Pace.CAREFUL
    assert probes.see(*[LATE] * NUM_PROBES) is Pace.LATE


def test_without_a_limit_nothing_is_late() -> None:
    probes = Probes(limit_s=0)
    assert probes.see(*[5.0] * 10) is Pace.FREE
    assert probes.lateness.may_begin
    assert probes.lateness.typical_s == 5.0


# ---- the decision ----------------------------------------------------------------------------------------------------


def is_refused(
    speaking: dict[str, int], tenant: str, *, streams: int = 4, waiting: int = 0, late: bool = False
) -> bool:
    error = refusal(SpeechLoad(Counter(speaking), streams, late), tenant, waiting)
    if error is not None:
        assert (error.code, error.retryable, error.retry_after_s) == ("overloaded", True, 1.0)
    return error is not None


def test_a_free_stream_is_for_any_tenant() -> None:
    assert not is_refused({}, "a")
    assert not is_refused({"a": 3}, "a")
    assert is_refused({"a": 4}, "a")


def test_the_number_of_waiting_requests_is_limited() -> None:
    assert not is_refused({"a": 5}, "a", waiting=2)
    assert is_refused({"a": 6}, "a", waiting=2)


def test_a_tenant_below_its_share_is_admitted_though_others_wait() -> None:
    assert is_refused({"a": 8}, "a", waiting=4)
    assert not is_refused({"a": 8}, "b", waiting=4)
    assert not is_refused({"a": 8, "b": 1}, "b", waiting=4)
    assert is_refused({"a": 8, "b": 2}, "b", waiting=4)


def test_requests_of_one_tenant_fill_the_queue_for_that_tenant_only() -> None:
    assert is_refused({"a": 400}, "a", waiting=4)
    assert not is_refused({"a": 400}, "b", waiting=4)
    assert not is_refused({"a": 400, "b": 1}, "b", waiting=4)


@pytest.mark.parametrize("late", [False, True])
def test_many_tenants_with_one_stream_each_are_refused_too(late: bool) -> None:
    all_keys = {str(number): 1 for number in range(20)}
    assert is_refused(all_keys, "new", streams=4, waiting=4, late=late)


def test_while_the_gateway_is_late_only_a_tenant_below_its_share_is_admitted() -> None:
    assert is_refused({"a": 2}, "a", late=True, streams=64)
    assert not is_refused({"a": 2}, "b", late=True, streams=64)
    assert is_refused({"a": 2, "b": 1}, "b", late=True, streams=64)
    assert not is_refused({"a": 2, "b": 1, "c": 1}, "d", late=True, streams=64)
    assert is_refused({"a": 1, "b": 1}, "c", late=True, streams=64), "no tenant has more"
    assert not is_refused({}, "a", late=True), "on a slow machine one stream is admitted all the same"


def test_a_tenant_below_its_share_is_admitted_while_streams_are_free_and_another_asks_far_more() -> None:
    def is_late_for(speaking: dict[str, int], asked: dict[str, int], streams: int = 16) -> bool:
        return refusal(SpeechLoad(Counter(speaking), streams, True, Counter(asked)), "honest", 0) is not None

    assert is_late_for({"greedy": 1}, {})
    assert not is_late_for({"greedy": 1}, {"greedy": 500})
    assert not is_late_for({"greedy": 1}, {"greedy": 500, "honest": 17}), "its own retries do not count against it"
    assert is_late_for({"greedy": 1}, {"greedy": 20, "honest": 17}), "all ask alike: one more makes all later"
    assert not is_late_for({"greedy": 1, "honest": 1}, {"greedy": 500}), "each has its share of a quarter of 16"
    assert is_late_for({"greedy": 1, "honest": 2}, {"greedy": 500}), "more would make all later"
    assert is_late_for({"greedy": 1, "other": 1}, {"greedy": 500}, streams=2), "no stream is free"


# ---- the gateway -----------------------------------------------------------------------------------------------------


async def handshake_code(gateway: GatewayHarness) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(gateway.ws_url, proxy=None):
            pass
    response = caught.value.response
    assert int(response.headers["retry-after"]) >= 1
    return response.status_code, json.loads(response.body or b"{}")["code"]


async def test_a_gateway_without_clients_hardly_probes(
    make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.server.upkeep.IDLE_PROBE_EVERY_S", 3600.0)
    observed: list[float] = []
    monkeypatch.setattr(Lateness, "observe", lambda self, late_s, now: observed.append(late_s))
    gateway = make_gateway(max_late_ms=0)

    async def until_observed(number: int) -> None:
        while len(observed) < number:
            await asyncio.sleep(0.01)

    await until_observed(1)
    for _ in range(200):  # the connection that asked whether the gateway is ready may still be open
        num_before = len(observed)
        await asyncio.sleep(5 * PROBE_EVERY_S)
        if len(observed) == num_before:
            break
    else:
        raise AssertionError("a gateway without clients goes on probing")
    num_idle = len(observed)
    async with open_stream(gateway.ws_url):
        await until_observed(num_idle + 3)
    num_after = len(observed)
    async with open_stream(gateway.ws_url):
        await until_observed(num_after + 2)


async def test_a_late_gateway_admits_no_new_context_and_speaks_on(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_late_ms=1e-6)  # which any probe is beyond
    async with (
        open_stream(gateway.ws_url) as client,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http,
    ):
        await client.speak("first", "Hello there. " * 40)
        await client.until("audio")
        while not gateway.metric("late"):
            await http.get("/healthz")
        await client.send("text", context_id="second", text="Hel")
        error = await client.until("error")
        assert (error["code"], error["context_id"], error["retry_after_s"]) == ("overloaded", "second", 1.0)
        await client.send("text", context_id="second", text="lo there. ")
        assert (await client.until("error"))["code"] == "context_closed", "half a text is not spoken"
        assert await handshake_code(gateway) == (503, "overloaded")
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "busy")
        assert ready.json()["late_ms"] >= 0
        assert gateway.metric("lateness_seconds") > 0
        await client.send("playback", context_id="first", played_ms=1e6)
        await client.send("cancel", context_id="first")
        assert (await client.until_terminal("first"))["type"] == "context.cancelled"


async def test_a_full_engine_queues_contexts_up_to_its_limit_and_refuses_the_next(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"max_streams": 2}, max_queued=1)
    async with open_stream(gateway.ws_url) as client:
        for name in "abc":
            await client.speak(name, "command stall. ")
        await client.send("text", context_id="d", text="Hello. ")
        error = await client.until("error")
        assert (error["code"], error["context_id"], error["retryable"]) == ("overloaded", "d", True)
        await client.send("cancel", context_id="b")
        await client.until_terminal("b")
        await client.speak("e", "Hello. ")
        await client.send("cancel", context_id="a")
        assert (await client.until_terminal("e"))["type"] == "context.done"
        await client.send("cancel")


async def test_streams_beyond_real_time_are_no_capacity(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"max_streams": 64, "real_time_streams": 1})
    async with (
        open_stream(gateway.ws_url) as client,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http,
    ):
        while gateway.call(lambda: gateway.gateway.engine.num_streams) != 1:
            await http.get("/healthz")
        await client.speak("a", "command stall. ")
        await client.send("ping")
        await client.until("pong")
        assert await handshake_code(gateway) == (503, "overloaded")
