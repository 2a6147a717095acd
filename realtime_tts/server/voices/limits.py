"""Limits for the creation of voices, and a memory of the recordings used."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_tts.server.admission.fair_semaphore import FairSemaphore
from realtime_tts.server.http.schemas import RecordingRemark
from realtime_tts.speech.voice_store import Latents

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

    Attributes:
        uploads: slots that are held as long as recordings are in memory. turns: slots held while a voice is made.
        made: by the hash of all the input of a voice, its id, its latents and the remarks about its recordings.
    """

    def __init__(self) -> None:
        self.uploads = FairSemaphore(_UPLOADS, _UPLOADS_OF_ONE, _MAX_WAITING, _MAX_WAITING_OF_ONE, _REFUSAL)
        self.turns = FairSemaphore(_AT_ONCE, _AT_ONCE, _MAX_WAITING, _MAX_WAITING_OF_ONE, _REFUSAL)
        self.made: dict[str, tuple[str, Latents, Sequence[RecordingRemark]]] = {}

    def forget(self, voice_id: str) -> None:
        self.made = {content: made for content, made in self.made.items() if made[0] != voice_id}
