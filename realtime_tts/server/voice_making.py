"""How much of a gateway the making of voices may take, and what it has just made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from realtime_tts.server.fair_gate import FairGate
from realtime_tts.server.schemas import RecordingRemark

_AT_ONCE = 2  # made; each takes seconds of two processes
_UPLOADS, _UPLOADS_OF_ONE = 4, 3  # held in memory, up to 40 MiB each
_MAX_WAITING, _MAX_WAITING_OF_ONE = 8, 6
_REFUSAL = "many voices are being made; try again in a moment"


class VoiceMaking:
    """Bounds what making voices takes of a gateway: uploads are large, and each voice costs seconds of two processes.

    An upload takes as long as its client likes, up to the limit for requests. So it needs a place of its own, of which
    one key never has all, and none of those where voices are made.

    The same recordings often come again while a voice for a while is made of them, with each sentence: which these are
    is remembered by their hash, for as long as there is a voice of them.
    """

    def __init__(self) -> None:
        self._uploads = FairGate(_UPLOADS, _UPLOADS_OF_ONE, _MAX_WAITING, _MAX_WAITING_OF_ONE, _REFUSAL)
        self._turns = FairGate(_AT_ONCE, _AT_ONCE, _MAX_WAITING, _MAX_WAITING_OF_ONE, _REFUSAL)
        self._made: dict[str, tuple[str, Sequence[RecordingRemark]]] = {}  # by the hash: voice id, remarks

    def upload(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """While recordings are read, and held until a voice is made of them. Raises `Overloaded`."""
        return self._uploads.place(tenant)

    def turn(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """While a voice is made. Raises `Overloaded`."""
        return self._turns.place(tenant)

    def remember(self, content: str, voice_id: str, remarks: Sequence[RecordingRemark]) -> None:
        """`content`: hash of all that a voice was made of."""
        self._made[content] = voice_id, remarks

    def made_of(self, content: str) -> tuple[str, Sequence[RecordingRemark]] | None:
        return self._made.get(content)

    def forget(self, voice_id: str) -> None:
        for content in [content for content, (made, _) in self._made.items() if made == voice_id]:
            del self._made[content]
