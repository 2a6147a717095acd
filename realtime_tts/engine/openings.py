"""Openings in memory: the first patches of contexts, sent again to contexts that begin alike. Host memory only.

The state after an opening is not stored. A segment that is in memory to its end needs none: the next one is laid out
from patches. A segment that goes on otherwise begins on the device with the patches sent so far in its input, as one
that has read more text.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from typing import NamedTuple

from realtime_tts.engine.runtime.outputs import StepAudio

MAX_OPENING_S = 4.0  # audio kept of one context: a first clause
MAX_DRAFT_S = 0.8  # audio made of a draft: enough until the device has begun with what follows
_MAX_PATCHES = 512  # of one opening, with all its continuations
_MAX_SEEN = 4096  # first patches that were made once
_PATCH_OVERHEAD_BYTES = 400


class RememberedPatch(NamedTuple):
    """Result of a step for one stream, before anything is left out or faded. stop: the stop head's decision."""

    audio: StepAudio
    stop: bool


@dataclasses.dataclass(slots=True)
class OpeningPlace:
    """Place of a segment among the openings.

    roots: keys of all that determines its sound except for the text: its own, then the one shared by all tenants.
    key: chained with the text that the model had read for each patch. first: key of the first patch.
    keeps: whether further patches are kept. is_ahead: made before a request needs it: keep the first one even if it was
    never made before. is_draft: it is among the drafts.
    """

    roots: tuple[bytes, ...]
    voice: str
    is_ahead: bool = False
    is_draft: bool = False
    key: bytes = b""
    first: bytes = b""
    num_patches: int = 0
    keeps: bool = False

    def advance(self, key: bytes) -> None:
        """Move behind the patch with this key."""
        self.first = self.first or key
        self.key = key
        self.num_patches += 1


@dataclasses.dataclass(slots=True)
class _Opening:
    """All patches that follow one first patch, whatever text came later."""

    voice: str
    patches: dict[bytes, RememberedPatch] = dataclasses.field(default_factory=dict)
    num_bytes: int = 0


class Openings:
    """Patches by the keys of what determined them. When memory is full, the least recently used opening is dropped.

    Attributes:
        num_bytes: memory in use. num_hits: contexts that began from memory.

    Args:
        max_patches: patches kept of one context.
    """

    def __init__(self, max_bytes: int, max_patches: int) -> None:
        self.num_bytes = self.num_hits = 0
        self.max_patches = max_patches  # kept of one context
        self._max_bytes = max_bytes
        self._openings: collections.OrderedDict[bytes, _Opening] = collections.OrderedDict()  # by the first patch's key
        self._seen: collections.OrderedDict[bytes, None] = collections.OrderedDict()

    def next(self, place: OpeningPlace, text: str) -> RememberedPatch | None:
        """Return the patch that follows, and move behind it; None if it is not in memory.

        text: all that the model has read for this patch.
        """
        for number, before in enumerate((place.key,) if place.first else place.roots):
            key = _chained(before, text)
            opening = self._openings.get(place.first or key)
            if opening is None or (remembered := opening.patches.get(key)) is None:
                continue
            if not place.first:
                self._openings.move_to_end(key)
                self.num_hits += not place.is_ahead
                place.keeps = number == 0  # a tenant's text is not added to what all tenants share
            place.advance(key)
            return remembered
        return None

    def begins(self, place: OpeningPlace, text: str) -> bool:
        """Return whether the first patch is in memory, if this is all that the model has read for it."""
        return any(_chained(root, text) in self._openings for root in place.roots)

    def keep(self, place: OpeningPlace, text: str, audio: StepAudio, stop: bool) -> None:
        """Take in a patch that the device has made. The first one is kept if it is made for the second time."""
        is_first = not place.first
        place.advance(_chained(place.key or place.roots[0], text))
        if is_first:
            place.keeps = place.is_ahead or self._was_seen(place.first)
        opening = self._openings.get(place.first)
        if is_first and place.keeps and opening is None:
            opening = self._openings[place.first] = _Opening(place.voice)
        if opening is None or place.num_patches > self.max_patches or len(opening.patches) >= _MAX_PATCHES:
            place.keeps = False
        if not place.keeps or opening is None or place.key in opening.patches:
            return
        copy = audio._replace(name="", pcm=audio.pcm.copy(), patch=audio.patch.copy())  # of buffers in use
        opening.patches[place.key] = RememberedPatch(copy, stop)
        num_bytes = copy.pcm.nbytes + copy.patch.nbytes + _PATCH_OVERHEAD_BYTES
        opening.num_bytes += num_bytes
        self.num_bytes += num_bytes
        while self.num_bytes > self._max_bytes:
            self.forget(next(iter(self._openings)))

    def forget(self, first: bytes) -> None:
        """Drop an opening, by the key of its first patch."""
        if opening := self._openings.pop(first, None):
            self.num_bytes -= opening.num_bytes

    def forget_voice(self, voice: str) -> None:
        """Drop the openings in a voice."""
        for first in [first for first, opening in self._openings.items() if opening.voice == voice]:
            self.forget(first)

    def _was_seen(self, key: bytes) -> bool:
        """Return whether a first patch was made before, and note that it was made."""
        was_seen = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
        return was_seen


def _chained(key: bytes, text: str) -> bytes:
    return hashlib.blake2b(key + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
