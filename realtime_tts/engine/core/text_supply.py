"""Amount of text that a request has to speak: known, read by the model, and spoken so far. Pure."""

from __future__ import annotations

import dataclasses

from realtime_tts.engine.core.scheduler_config import SchedulerConfig


@dataclasses.dataclass(slots=True)
class TextSupply:
    """The text of one request while it is being written. Lengths are in characters of average duration.

    known: text received so far. is_final: no more will follow. read: part of it in the model's input. position: how far
    the speech has come; None if it is not measured, then it is estimated.
    """

    known: float = 0.0
    is_final: bool = True
    read: float = 0.0
    position: float | None = None

    @property
    def is_read(self) -> bool:
        """True if the model has read all text received so far."""
        return self.read == self.known

    @property
    def may_stop(self) -> bool:
        """True if the model has read the text to its end. Before that, its stop head means nothing."""
        return self.is_final and self.is_read

    def runs_out(self, num_patches: int, config: SchedulerConfig, *, is_urgent: bool = False) -> bool:
        """Return whether the next patch would be made without enough text in front of it. is_urgent: it requires no
        more than a first patch."""
        bound = config.text_bound(0 if is_urgent else num_patches)
        return not self.is_final and self._ahead(self.known, num_patches, config) < bound

    def must_be_read(self, num_patches: int, config: SchedulerConfig) -> bool:
        """Return whether the next patch needs text that the model has not read. A final text is read at once."""
        if self.is_read:
            return False
        return self.is_final or self._ahead(self.read, num_patches, config) < config.text_bound(num_patches)

    def reaches_further(self, num_patches: int, config: SchedulerConfig) -> bool:
        """Return whether the patch after the next needs no more text than is read, even if the next patch speaks twice
        the usual amount."""
        if self.is_final:
            return self.read == self.known
        return self._ahead(self.read, num_patches, config) >= config.text_bound(1) + 2 * config.chars_per_patch

    def _ahead(self, end: float, num_patches: int, config: SchedulerConfig) -> float:
        return end - (num_patches * config.chars_per_patch if self.position is None else self.position)
