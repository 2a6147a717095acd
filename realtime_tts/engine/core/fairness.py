"""How tenants share the engine: who gets a slot, who may queue, which streams go short if not all can be carried."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from realtime_tts.engine.core.request import Request


def in_turn(waiting: Iterable[Request], active: Iterable[Request], deadlines: Mapping[str, float]) -> Iterator[Request]:
    """Who gets a slot next: the tenant that holds the fewest, and of its requests the most urgent.

    However many one tenant has waiting, another one's first request is behind none of them.
    """
    queues: dict[str, deque[Request]] = defaultdict(deque)
    for request in sorted(waiting, key=lambda request: deadlines[request.request_id]):
        queues[request.tenant].append(request)
    num_held = Counter(request.tenant for request in active) if len(queues) > 1 else Counter()
    while queues:
        tenant = min(queues, key=lambda tenant: (num_held[tenant], deadlines[queues[tenant][0].request_id]))
        yield queues[tenant].popleft()
        num_held[tenant] += 1
        if not queues[tenant]:
            del queues[tenant]


def is_below_share(tenant: str, holders: Iterable[str], num_places: int) -> bool:
    """Whether a tenant holds fewer of so many places than each may have who holds one, itself included."""
    held = Counter(holders)
    return held[tenant] < num_places // len(held.keys() | {tenant})


def beyond_share(running: Sequence[Request], capacity: int) -> set[str]:
    """Ids of the requests, of those that run, that the device cannot carry if tenants share it equally.

    Tenants take places of `capacity` in turn, one each, their oldest requests first, so that none is denied for one
    of a tenant that has as many already. A tenant that is alone shares with nobody.
    """
    if len(running) <= capacity:
        return set()
    by_tenant: dict[str, list[Request]] = defaultdict(list)
    for request in sorted(running, key=lambda request: (request.started_s or 0.0, request.request_id)):
        by_tenant[request.tenant].append(request)
    if len(by_tenant) <= 1:
        return set()
    level = 0  # requests that each tenant may have
    while sum(min(len(requests), level + 1) for requests in by_tenant.values()) <= capacity:
        level += 1
        if all(len(requests) <= level for requests in by_tenant.values()):
            return set()
    level = max(1, level)
    return {request.request_id for requests in by_tenant.values() for request in requests[level:]}
