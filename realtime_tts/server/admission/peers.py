"""Interface of a gateway to its peers, the other gateways of its host."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Protocol

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


class PeerListener(Protocol):
    """Receiver of the changes that peers make."""

    def charged(self, charge: Charge) -> None:
        """A peer has charged characters."""

    def voices_changed(self) -> None:
        """A peer has changed the voices directory."""

    def adapter_changed(self, name: str, directory: str) -> None:
        """A peer has loaded an adapter from a directory or, with "", unloaded it, and this gateway not since."""


class Peers:
    """Null object for a gateway without peers.

    Attributes:
        index: index of this gateway on its host.
        others: sum of the slots that all peers used some milliseconds ago.
    """

    index = 0

    def __init__(self) -> None:
        self.listener: PeerListener
        self.others = SlotCounts()

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
