"""Directory of the replicas and their slots in the front. Pure: time is passed in."""

from __future__ import annotations

import dataclasses

FORGOTTEN_S = 5.0  # a replica reports once a second


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One replica. slot: its number in all fronts, from 1, fixed for its lifetime, by which sticky clients find it."""

    name: str
    host: str
    port: int
    slot: int


class Directory:
    """Directory filled by periodic reports of the replicas: an empty one is complete after their next reports."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._entries: dict[str, tuple[Entry, float]] = {}

    def report(self, name: str, host: str, port: int, slot: int | None, now_s: float) -> int | None:
        """Record a replica's report.

        Args:
            slot: the replica's present slot; None: it has none yet.

        Returns:
            The replica's slot; None if all are taken.
        """
        self._forget(now_s)
        taken = {entry.slot for entry, _ in self._entries.values() if entry.name != name}
        if known := self._entries.get(name):
            slot = known[0].slot
        if slot is None or slot in taken:
            free = (number for number in range(1, self._num_slots + 1) if number not in taken)
            slot = next(free, None)
        if slot is not None:
            self._entries[name] = (Entry(name, host, port, slot), now_s)
        return slot

    def remove(self, name: str) -> None:
        """Remove a replica: it accepts no new connections."""
        self._entries.pop(name, None)

    def entries(self, now_s: float) -> list[Entry]:
        """Return the replicas that have reported lately, ordered by slot."""
        self._forget(now_s)
        return sorted((entry for entry, _ in self._entries.values()), key=lambda entry: entry.slot)

    def _forget(self, now_s: float) -> None:
        self._entries = {
            name: (entry, seen_s) for name, (entry, seen_s) in self._entries.items() if now_s - seen_s <= FORGOTTEN_S
        }
