"""The scheduler's limits and times. Pure."""

from __future__ import annotations

import dataclasses

from realtime_tts.engine.core.block_pool import BLOCK_SIZE


@dataclasses.dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and times.

    max_prefill_positions: per step, over all requests. park_high_s, park_low_s: lead at which a context stops and
    starts again. first_audio_s: when a new request is due. unpaced_slack_s: how long a request without a playback
    clock may be passed over. max_late_s: who is later than this is served even if that makes another one late.
    excess_slack_s: how much later streams are due that a tenant has beyond its share of a device that is too slow.
    full_streams: a step holds no more but for those who cannot wait for the next one, and never twice as many: more at
    a time would cost each as much, and who comes next would wait for all of them.
    max_load: refuse a new context when a step over all of them would take more than this share of real time.

    Of a text that is still being written: a first patch is made of begin_chars, others while look_ahead_chars lie in
    front of the speech; chars_per_s: how fast speech is where its position is not measured; open_lead_patches: how far
    it may be ahead of its listener, if it need not be more to be on time.
    """

    num_blocks: int
    max_streams: int
    max_positions: int
    patch_s: float
    block_size: int = BLOCK_SIZE
    min_patches: int = 2
    max_prefill_positions: int = 512
    max_waiting: int = 1024
    park_high_s: float = 3.0
    park_low_s: float = 2.0
    first_audio_s: float = 0.1
    unpaced_slack_s: float = 0.5
    paused_slack_s: float = 5.0
    max_late_s: float = 1.0
    excess_slack_s: float = 5.0
    priority_step_s: float = 0.1
    full_streams: int = 1 << 30
    max_load: float | None = None
    begin_chars: int = 8
    look_ahead_chars: int = 14
    chars_per_s: float = 15.0
    open_lead_patches: int = 2

    @property
    def max_step_streams(self) -> int:
        """Streams that one step can hold."""
        return min(self.max_streams, 2 * self.full_streams)

    @property
    def max_request_positions(self) -> int:
        """What one request can have at most, alone."""
        return min(self.max_positions, self.num_blocks * self.block_size)

    @property
    def chars_per_patch(self) -> float:
        """How many characters a patch is taken to speak."""
        return self.chars_per_s * self.patch_s

    def text_bound(self, num_patches: int) -> int:
        """Characters that must lie in front of the speech for one more patch, unless no more will come."""
        return self.look_ahead_chars if num_patches else self.begin_chars
