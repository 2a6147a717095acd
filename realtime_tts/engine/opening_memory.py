"""The two memories of an engine: of openings, and of drafts. Each first segment of a context has a place in one."""

from __future__ import annotations

import math

from realtime_tts.engine.core.block_pool import prefix_root
from realtime_tts.engine.openings import MAX_DRAFT_S, MAX_OPENING_S, OpeningPlace, Openings, RememberedPatch
from realtime_tts.engine.runtime.outputs import StepAudio
from realtime_tts.engine.segment import EngineSegment


class OpeningMemory:
    """Openings and drafts in memory.

    Args:
        model: name of the model that speaks.
        max_bytes: memory for each of the two.
    """

    def __init__(self, model: str, max_bytes: int, patch_s: float) -> None:
        self._model = model
        self.openings = Openings(max_bytes, math.ceil(MAX_OPENING_S / patch_s))
        self.drafts = Openings(max_bytes, math.ceil(MAX_DRAFT_S / patch_s))

    @property
    def num_bytes(self) -> int:
        return self.openings.num_bytes + self.drafts.num_bytes

    def place(self, segment: EngineSegment, *, is_ahead: bool) -> OpeningPlace | None:
        """Return the place of a context's first segment among the drafts, or else among the openings if it has one.
        is_ahead: no request needs the segment yet."""
        message, voice = segment.message, segment.voice
        sound = (
            self._model,
            segment.adapter.digest if segment.adapter is not None else "",
            voice.voice_id,
            segment.alone.instructions,
            repr((segment.noise_key, segment.cfg, segment.flow_steps)),
            message.encoding,
        )
        tenants = dict.fromkeys((message.tenant,) if voice.is_added else (message.tenant, ""))
        roots = tuple(prefix_root(tenant, *sound) for tenant in tenants)
        place = OpeningPlace(roots, voice.voice_id, is_ahead)
        place.is_draft = message.draft or (not is_ahead and self.drafts.begins(place, segment.text))
        return place if place.is_draft or message.openings else None

    def next(self, segment: EngineSegment) -> RememberedPatch | None:
        """Return a segment's next patch, and move behind it; None if it is not in memory."""
        assert segment.opening is not None
        return self._of(segment.opening).next(segment.opening, segment.read_text)

    def keep(self, segment: EngineSegment, audio: StepAudio, stop: bool) -> None:
        """Take in a segment's next patch, which the device has made."""
        if segment.opening is not None and not segment.voice.is_removed:
            self._of(segment.opening).keep(segment.opening, segment.read_text, audio, stop)

    def forget(self, segment: EngineSegment) -> None:
        """Drop the segment's opening."""
        if segment.opening is not None:
            self._of(segment.opening).forget(segment.opening.first)
            segment.opening.keeps = False

    def forget_voice(self, voice: str) -> None:
        """Drop the openings in a voice."""
        self.openings.forget_voice(voice)
        self.drafts.forget_voice(voice)

    def _of(self, place: OpeningPlace) -> Openings:
        return self.drafts if place.is_draft else self.openings
