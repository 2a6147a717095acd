"""Limits for the creation of voices, and a memory of the recordings used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from realtime_tts.server.admission.fair_semaphore import FairSemaphore
from realtime_tts.server.http.schemas import RecordingRemark

_AT_ONCE = 2  # voices made at once; each takes seconds of two processes
_UPLOADS, _UPLOADS_OF_ONE = 4, 3  # held in memory, up to 40 MiB each
_MAX_WAITING, _MAX_WAITING_OF_ONE = 8, 6
_REFUSAL = "many voices are being made; try again in a moment"


class VoiceMaking:
    """Limits the creation of voices: uploads are large, and each voice takes seconds of two processes.

    An upload may take up to the time limit for requests. So uploads have separate slots, of which one key never has
    all; they do not use the slots in which voices are made.

    For temporary voices, clients often send the same recordings with each sentence. They are recognised by their hash,
    as long as a voice made from them exists.
    """

    def __init__(self) -> None:
        self._uploads = FairSemaphore(_UPLOADS, _UPLOADS_OF_ONE, _MAX_WAITING, _MAX_WAITING_OF_ONE, _REFUSAL)
        self._turns = FairSemaphore(_AT_ONCE, _AT_ONCE, _MAX_WAITING, _MAX_WAITING_OF_ONE, _REFUSAL)
        self._made: dict[str, tuple[str, Sequence[RecordingRemark]]] = {}  # by hash: voice id and remarks

    def upload(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Return a context that holds an upload slot, for as long as recordings are in memory. Raises `Overloaded`."""
        return self._uploads.place(tenant)

    def turn(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Return a context that holds a slot while a voice is made. Raises `Overloaded`."""
        return self._turns.place(tenant)

    def remember(self, content: str, voice_id: str, remarks: Sequence[RecordingRemark]) -> None:
        """Remember the input of a voice. `content`: hash of all the input."""
        self._made[content] = voice_id, remarks

    def made_of(self, content: str) -> tuple[str, Sequence[RecordingRemark]] | None:
        return self._made.get(content)

    def forget(self, voice_id: str) -> None:
        for content in [content for content, (made, _) in self._made.items() if made == voice_id]:
            del self._made[content]
