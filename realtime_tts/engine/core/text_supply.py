"""How much text a request has to speak from: what is known, what the model has read, and where the speech is. Pure."""

from __future__ import annotations

import dataclasses

from realtime_tts.engine.core.scheduler_config import SchedulerConfig


@dataclasses.dataclass(slots=True)
class TextSupply:
    """The text of one request while it is being written. Lengths are in characters of average duration.

    known: all that has come. is_final: nothing more will. read: what the model's input holds of it. position: how far
    the speech has come; None where nobody tells: estimated then.
    """

    known: float = 0.0
    is_final: bool = True
    read: float = 0.0
    position: float | None = None

    @property
    def is_read(self) -> bool:
        """Whether the model has read all that is known."""
        return self.read == self.known

    @property
    def may_stop(self) -> bool:
        """Whether the model has read the text to its end: what it says of an end before that means nothing."""
        return self.is_final and self.is_read

    def runs_out(self, num_patches: int, config: SchedulerConfig) -> bool:
        """Whether the next patch would be made without enough text in front of it."""
        return not self.is_final and self._ahead(self.known, num_patches, config) < config.text_bound(num_patches)

    def must_be_read(self, num_patches: int, config: SchedulerConfig) -> bool:
        """Whether the next patch needs what the model has not read yet. All is read at once when it is final."""
        if self.is_read:
            return False
        return self.is_final or self._ahead(self.read, num_patches, config) < config.text_bound(num_patches)

    def _ahead(self, end: float, num_patches: int, config: SchedulerConfig) -> float:
        return end - (num_patches * config.chars_per_patch if self.position is None else self.position)
