"""Which replicas there are, and in which of the front's slots each of them is. Pure: time is passed in."""

from __future__ import annotations

import dataclasses

FORGOTTEN_S = 5.0  # a replica reports once a second


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One replica. slot: its place in every front, from 1 on, as long as it lives: sticky clients find it by that."""

    name: str
    host: str
    port: int
    slot: int


class Directory:
    """Kept by what the replicas say again and again: an empty one is whole again after their next report."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._entries: dict[str, tuple[Entry, float]] = {}

    def report(self, name: str, host: str, port: int, slot: int | None, now_s: float) -> int | None:
        """A replica is there.

        Args:
            slot: the one that it was told to have; None: it has none yet.

        Returns:
            The one that it has now; None if all are taken.
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
        """It takes nobody new any more."""
        self._entries.pop(name, None)

    def entries(self, now_s: float) -> list[Entry]:
        """Those that have reported lately, by their slots."""
        self._forget(now_s)
        return sorted((entry for entry, _ in self._entries.values()), key=lambda entry: entry.slot)

    def _forget(self, now_s: float) -> None:
        self._entries = {
            name: (entry, seen_s) for name, (entry, seen_s) in self._entries.items() if now_s - seen_s <= FORGOTTEN_S
        }
