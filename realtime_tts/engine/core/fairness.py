"""Fair sharing between tenants: slots, queue places, and streams beyond a tenant's share under overload."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from realtime_tts.engine.core.request import Request

_ROUNDING = 1e-6  # of shares of work


def in_turn(waiting: Iterable[Request], active: Iterable[Request], deadlines: Mapping[str, float]) -> Iterator[Request]:
    """Yield waiting requests in the order in which they get slots.

    The next request is the most urgent one of the tenant whose active requests have the least work. A tenant's first
    request therefore never waits behind a long queue of another tenant.
    """
    queues: dict[str, deque[Request]] = defaultdict(deque)
    for request in sorted(waiting, key=lambda request: deadlines[request.request_id]):
        queues[request.tenant].append(request)
    work: dict[str, float] = defaultdict(float)
    for request in active if len(queues) > 1 else ():
        work[request.tenant] += request.work
    while queues:
        tenant = min(queues, key=lambda tenant: (work[tenant], deadlines[queues[tenant][0].request_id]))
        request = queues[tenant].popleft()
        yield request
        work[tenant] += request.work
        if not queues[tenant]:
            del queues[tenant]


def is_below_share(tenant: str, holders: Iterable[str], num_places: int) -> bool:
    """Return whether `tenant` holds fewer of `num_places` than an equal share among all holders and itself."""
    held = Counter(holders)
    return held[tenant] < num_places // len(held.keys() | {tenant})


def beyond_share(running: Sequence[Request], capacity: int) -> set[str]:
    """Return the ids of running requests that exceed their tenant's equal share of the device.

    Tenants share `capacity` by work: none gets more than it needs, and the others share the rest. A tenant's oldest
    requests count first; its share is at least the work of one ordinary stream. A tenant that is alone has no limit.
    """
    by_tenant: dict[str, list[Request]] = defaultdict(list)
    for request in _oldest_first(running):
        by_tenant[request.tenant].append(request)
    if len(by_tenant) <= 1:
        return set()
    share = max(1.0, _share([sum(request.work for request in own) for own in by_tenant.values()], capacity)) + _ROUNDING
    excess = set()
    for own in by_tenant.values():
        works = itertools.accumulate(request.work for request in own)
        excess |= {request.request_id for request, work in zip(own, works, strict=True) if work > share}
    return excess


def _oldest_first(running: Sequence[Request]) -> list[Request]:
    return sorted(running, key=lambda request: (request.started_s or 0.0, request.request_id))


def _share(needed: Sequence[float], capacity: float) -> float:
    """Return the share of `capacity` for each, if those that need less leave the rest to the others."""
    left, share = capacity, math.inf
    for number, work in enumerate(sorted(needed)):
        share = left / (len(needed) - number)
        if work > share:
            return share
        left -= work
    return share


def beyond_one_group(running: Sequence[Request]) -> set[str]:
    """Return ids of requests whose own number of flow steps differs from that of their tenant's oldest such one.

    A step has at most one group with its own number of flow steps, and the group makes the step long. A tenant with
    several such numbers would otherwise occupy step after step. The result is empty for a single tenant.
    """
    if len({request.tenant for request in running}) <= 1:
        return set()
    oldest: dict[str, Request] = {}
    for request in _oldest_first(running):
        if request.own_flow_steps:
            oldest.setdefault(request.tenant, request)
    return {
        request.request_id
        for request in running
        if request.own_flow_steps and request.own_flow_steps != oldest[request.tenant].own_flow_steps
    }
