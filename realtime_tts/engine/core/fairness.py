"""How tenants share the engine: who gets a slot, who may queue, which streams go short if not all can be carried."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from realtime_tts.engine.core.request import Request

_ROUNDING = 1e-6  # of shares of work


def in_turn(waiting: Iterable[Request], active: Iterable[Request], deadlines: Mapping[str, float]) -> Iterator[Request]:
    """Who gets a slot next: the tenant whose active requests have the least work, and of its requests the most urgent.

    However many one tenant has waiting, another one's first request is behind none of them.
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
    """Whether a tenant holds fewer of so many places than each may have who holds one, itself included."""
    held = Counter(holders)
    return held[tenant] < num_places // len(held.keys() | {tenant})


def beyond_share(running: Sequence[Request], capacity: int) -> set[str]:
    """Ids of the requests, of those that run, that the device cannot carry if tenants share it equally.

    Tenants share `capacity` by work: none gets more than it asks for, and the others share what that leaves. Of each
    its oldest requests count first; its share is the work of one ordinary stream at least. A tenant that is alone
    shares with nobody.
    """
    if sum(request.work for request in running) <= capacity:
        return set()
    by_tenant: dict[str, list[Request]] = defaultdict(list)
    for request in sorted(running, key=lambda request: (request.started_s or 0.0, request.request_id)):
        by_tenant[request.tenant].append(request)
    if len(by_tenant) <= 1:
        return set()
    share = max(1.0, _share([sum(request.work for request in own) for own in by_tenant.values()], capacity)) + _ROUNDING
    excess = set()
    for own in by_tenant.values():
        works = itertools.accumulate(request.work for request in own)
        excess |= {request.request_id for request, work in zip(own, works, strict=True) if work > share}
    return excess


def _share(wanted: Sequence[float], capacity: float) -> float:
    """Return what each may have of `capacity`, if those that want less leave the rest to the others."""
    left, share = capacity, math.inf
    for number, work in enumerate(sorted(wanted)):
        share = left / (len(wanted) - number)
        if work > share:
            return share
        left -= work
    return share


def beyond_one_group(running: Sequence[Request]) -> set[str]:
    """Ids of the requests whose number of flow steps is a second one of their tenant's, beside the usual.

    A step has one such group at most, and is long for it: a tenant with several would have turn after turn. The number
    of its oldest request counts. A tenant that is alone waits for itself only.
    """
    if len({request.tenant for request in running}) <= 1:
        return set()
    oldest: dict[str, Request] = {}
    for request in sorted(running, key=lambda request: (request.started_s or 0.0, request.request_id)):
        if request.own_steps:
            oldest.setdefault(request.tenant, request)
    return {
        request.request_id
        for request in running
        if request.own_steps and request.own_steps != oldest[request.tenant].own_steps
    }
