"""Interface of a gateway to its peers, the other gateways of its host."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from realtime_tts.server.admission.slot_counts import SlotCounts
from realtime_tts.server.host.messages import Charge

_NOTHING = SlotCounts()
_SESSION = re.compile(r"s(\d{1,4})_.+", re.DOTALL)


def session_name(index: int, secret: str) -> str:
    """Return the id of a session of the gateway with this index."""
    return f"s{index}_{secret}"


def owner_of(session_id: str) -> int | None:
    """Return the index of the gateway that made a session id; None for a malformed id."""
    found = _SESSION.fullmatch(session_id)
    return int(found[1]) if found else None


class Peers:
    """Null object for a gateway without peers.

    Attributes:
        index: index of this gateway on its host.
        on_charge: called with a charge of a peer.
        on_voices_changed: called when a peer has changed the voices directory.
        on_adapter_changed: called with the arguments of a peer's `adapter_changed`, unless this gateway has
            changed the same adapter since.
    """

    index = 0

    def __init__(self) -> None:
        self.on_charge: Callable[[Charge], None] = lambda charge: None
        self.on_voices_changed: Callable[[], None] = lambda: None
        self.on_adapter_changed: Callable[[str, str], None] = lambda name, directory: None

    @property
    def others(self) -> SlotCounts:
        """Sum of the slots that all peers use."""
        return _NOTHING

    @contextlib.contextmanager
    def taking(self, look: Callable[[], SlotCounts]) -> Iterator[SlotCounts]:
        """Yield the slots that the peers use, and keep them from taking slots until the context ends.

        On exit, publish the slots of this gateway, which `look` returns.
        """
        yield _NOTHING

    def charge(self, charge: Charge) -> None:
        """Report a charge of this gateway to the peers."""

    def voices_changed(self) -> None:
        """Tell the peers that the voices directory has changed."""

    def adapter_changed(self, name: str, directory: str) -> None:
        """Tell the peers that an adapter was loaded from a directory or, with "", unloaded."""

    def give(self, session_id: str, connection: int, received: bytes) -> bool:
        """Hand a connection, by its descriptor, to the gateway that owns the session. Return False if it stays here."""
        return False
