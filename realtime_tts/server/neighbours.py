"""What a gateway knows of the other gateways of its host."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from realtime_tts.server.holdings import Holdings
from realtime_tts.server.host_messages import Charge

_NOTHING = Holdings()
_SESSION = re.compile(r"s(\d{1,4})_.+", re.DOTALL)


def session_name(index: int, secret: str) -> str:
    """The id of a session of the gateway with this index."""
    return f"s{index}_{secret}"


def owner_of(session_id: str) -> int | None:
    """The index of the gateway that has named a session; None for what is no name of ours."""
    found = _SESSION.fullmatch(session_id)
    return int(found[1]) if found else None


class Neighbours:
    """None: a gateway that is alone.

    Attributes:
        index: which of the host's gateways this one is.
        on_charge: called with what another one has charged.
        on_voices_changed: called when another one has changed the directory of voices.
        on_adapter_changed: called with what another one has told by `adapter_changed`, unless this one has told
            something of the same adapter since.
    """

    index = 0

    def __init__(self) -> None:
        self.on_charge: Callable[[Charge], None] = lambda charge: None
        self.on_voices_changed: Callable[[], None] = lambda: None
        self.on_adapter_changed: Callable[[str, str], None] = lambda name, directory: None

    @property
    def others(self) -> Holdings:
        """What all others hold."""
        return _NOTHING

    @contextlib.contextmanager
    def taking(self, look: Callable[[], Holdings]) -> Iterator[Holdings]:
        """Gives what all others hold, who take nothing until it ends and then see what is held here by `look`."""
        yield _NOTHING

    def charge(self, charge: Charge) -> None:
        """Tell the others what has been charged here."""

    def voices_changed(self) -> None:
        """Tell the others to look."""

    def adapter_changed(self, name: str, directory: str) -> None:
        """Tell the others that an adapter was loaded from a directory or, with "", unloaded."""

    def give(self, session_id: str, connection: int, received: bytes) -> bool:
        """Hand a connection, by its descriptor, to the gateway whose session this is; False: it is nobody's."""
        return False
