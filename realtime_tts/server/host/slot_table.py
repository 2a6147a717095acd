"""Slots of all gateways of a host. Pure.

A gateway reports what it uses, and requests a slot for each new socket. A slot that was granted is counted here until
the gateway's next report includes it. So limits are exact, although reports arrive later than requests of others.
"""

from __future__ import annotations

import dataclasses
from collections import deque

from realtime_tts.server.admission.slots import Grant, MaxOfTenant, SlotCounts, SlotRequest, grant
from realtime_tts.server.host.messages import SlotAnswer, SlotsUsed


@dataclasses.dataclass(slots=True)
class _Row:
    """Slots of one gateway.

    Attributes:
        used: its last report.
        num_answers: answers sent to it so far.
        granted: number of the answer and the slot, for the slots that `used` does not include.
    """

    used: SlotCounts = dataclasses.field(default_factory=SlotCounts)
    num_answers: int = 0
    granted: deque[tuple[int, SlotCounts]] = dataclasses.field(default_factory=deque)


class SlotTable:
    """Grants slots under the limits of the whole host. Gateways are named by their indices."""

    def __init__(self, num_gateways: int, max_of_tenant: MaxOfTenant) -> None:
        self._rows = [_Row() for _ in range(num_gateways)]
        self._max_of_tenant = max_of_tenant

    def report(self, index: int, message: SlotsUsed) -> None:
        """Note what a gateway uses after a number of answers."""
        row = self._rows[index]
        row.used = message.counts
        while row.granted and row.granted[0][0] <= message.num_answers:
            row.granted.popleft()

    def answer(self, index: int, request: SlotRequest) -> SlotAnswer:
        """Return the answer to a gateway's request, and count the slot that it grants."""
        found = grant(request, self._sum(self._rows), self._max_of_tenant)
        row = self._rows[index]
        row.num_answers += 1
        if found is Grant.FREE:
            slot = SlotCounts()
            slot.add_socket(request.tenant, request.token)
            row.granted.append((row.num_answers, slot))
        return SlotAnswer(found)

    def others(self, index: int) -> SlotCounts:
        """Return the slots that the peers of a gateway use."""
        return self._sum([row for other, row in enumerate(self._rows) if other != index])

    def clear(self, index: int) -> None:
        """Drop the slots of a gateway that has ended."""
        self._rows[index] = _Row()

    @staticmethod
    def _sum(rows: list[_Row]) -> SlotCounts:
        return SlotCounts.sum(counts for row in rows for counts in (row.used, *(slot for _, slot in row.granted)))
