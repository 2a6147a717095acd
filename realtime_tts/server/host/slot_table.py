"""Slots of all gateways of a host. Pure.

A gateway reports what it uses, and requests a slot for each new socket. A slot that was granted is counted here until
the gateway's next report includes it. So limits are exact, although reports arrive later than requests of others.
"""

from __future__ import annotations

import dataclasses
from collections import deque

from realtime_tts.server.admission.slots import Grant, MaxOfTenant, SlotCounts, SlotRequest, grant
from realtime_tts.server.host.messages import SlotAnswer


@dataclasses.dataclass(slots=True)
class _Row:
    """Slots of one gateway.

    Attributes:
        counts: its last report, and the slots granted since.
        num_answers: answers sent to it so far.
        granted: number of the answer and the slot, for the slots that the report does not include.
    """

    counts: SlotCounts = dataclasses.field(default_factory=SlotCounts)
    num_answers: int = 0
    granted: deque[tuple[int, SlotCounts]] = dataclasses.field(default_factory=deque)


class SlotTable:
    """Grants slots under the limits of the whole host. Gateways are named by their indices."""

    def __init__(self, num_gateways: int, max_of_tenant: MaxOfTenant) -> None:
        self._rows = [_Row() for _ in range(num_gateways)]
        self._total = SlotCounts()
        self._max_of_tenant = max_of_tenant

    def report(self, index: int, counts: SlotCounts, num_answers: int) -> bool:
        """Note what a gateway uses after a number of answers. Return True if that is a change."""
        row = self._rows[index]
        while row.granted and row.granted[0][0] <= num_answers:
            row.granted.popleft()
        before = row.counts
        self._set(row, sum((slot for _, slot in row.granted), counts))
        return row.counts != before

    def answer(self, index: int, request: SlotRequest) -> SlotAnswer:
        """Return the answer to a gateway's request, and count the slot that it grants."""
        found, row = grant(request, self._total, self._max_of_tenant), self._rows[index]
        row.num_answers += 1
        if found is Grant.FREE:
            slot = SlotCounts()
            slot.add_socket(request.tenant, request.token)
            row.granted.append((row.num_answers, slot))
            self._set(row, row.counts + slot)
        return SlotAnswer(found)

    def others(self, index: int) -> SlotCounts:
        """Return the slots that the peers of a gateway use."""
        return self._total - self._rows[index].counts

    @property
    def is_used(self) -> bool:
        """Return True if a gateway uses a slot."""
        return self._total != SlotCounts()

    def clear(self, index: int) -> None:
        """Drop the slots of a gateway that has ended."""
        self._set(self._rows[index], SlotCounts())
        self._rows[index] = _Row()

    def _set(self, row: _Row, counts: SlotCounts) -> None:
        self._total, row.counts = self._total - row.counts + counts, counts
