"""Interface of a gateway to its peers, the other gateways of its host."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable

from realtime_tts.server.admission.slots import Grant, Slot, SlotCounts, SlotRequest

_SESSION = re.compile(r"s(\d{1,4})_.+", re.DOTALL)


def session_name(index: int, secret: str) -> str:
    """Return the id of a session of the gateway with this index."""
    return f"s{index}_{secret}"


def owner_of(session_id: str) -> int | None:
    """Return the index of the gateway that made a session id; None for a malformed id."""
    found = _SESSION.fullmatch(session_id)
    return int(found[1]) if found else None


@dataclasses.dataclass(frozen=True, slots=True)
class Charge:
    """Characters that a key, or one of its tokens, has used since the last message about it."""

    tenant: str
    token: str
    max_chars_per_minute: int  # of the token
    num_chars: int


class Peers:
    """Null object for a gateway without peers.

    Attributes:
        index: index of this gateway on its host.
        others: sum of the slots that all peers used some milliseconds ago.
        on_charged: called with characters that a peer has charged.
        voices_stale: set when a peer has changed the voices directory; the task that waits for it clears it.
        adapter_changes: name and directory of each adapter that a peer has loaded or, with "", unloaded, and this
            gateway not since.
    """

    index = 0

    def __init__(self) -> None:
        self.others = SlotCounts()
        self.on_charged: Callable[[Charge], None] = lambda charge: None
        self.voices_stale = asyncio.Event()
        self.adapter_changes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def request_slot(self, slot: Slot, request: SlotRequest, decide: Callable[[SlotRequest], Grant]) -> None:
        """Set the `grant` of a slot: to the host's answer, since the limits are those of all gateways. `decide`: makes
        the answer of a gateway without peers."""
        slot.grant = decide(request)

    def charge(self, charge: Charge) -> None:
        """Report a charge of this gateway to the peers."""

    def voices_changed(self) -> None:
        """Tell the peers that the voices directory has changed."""

    def adapter_changed(self, name: str, directory: str) -> None:
        """Tell the peers that an adapter was loaded from a directory or, with "", unloaded."""

    def give(self, session_id: str, connection: int, received: bytes) -> bool:
        """Hand a connection, by its descriptor, to the gateway that owns the session. Return False if it stays here."""
        return False
