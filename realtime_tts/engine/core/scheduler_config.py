"""The scheduler's limits and times. Pure."""

from __future__ import annotations

import dataclasses

from realtime_tts.engine.core.block_pool import BLOCK_SIZE


@dataclasses.dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and times of the scheduler.

    max_prefill_positions: limit per step, over all requests. park_high_s, park_low_s: lead at which a context stops and
    resumes. first_audio_s: time after which a new request is due. unpaced_slack_s: how long a request without playback
    pacing may be skipped. max_late_s: a stream later than this is served even if that makes another one late.
    excess_slack_s: delay of the deadlines of streams beyond their tenant's share, when the device is too slow.
    full_streams: streams after which a step takes only those that cannot wait for the next one, and never more than
    twice as many. More streams at a time would cost each as much, and a new stream would wait for all of them.
    gather_s: interval of steps over streams that all have a lead of gather_lead_s, where steps take less than half of
    it. Fewer steps over more streams take less time; a step for another stream takes them along.
    ample_lead_s: streams with this lead fill a step only to half of full_streams, so that a new one waits less.

    For a text that is still being written: the first patch requires begin_chars, later ones look_ahead_chars in front
    of the speech. The second one requires begin_chars if its listener would have a gap otherwise. chars_per_s: assumed
    rate of speech where the position is not measured. open_lead_patches: maximum lead over the listener, unless a
    longer one is necessary to be on time.

    max_opening_bytes: host memory for openings.

    keep_back_s: audio that is not sent while the listener has enough without it, so that a fault found in it is not
    heard. max_mends: times that speech of one request is cut and said again because of a fault; 0: none is kept back.
    """

    num_blocks: int
    max_streams: int
    max_positions: int
    patch_s: float
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
    gather_s: float = 0.04
    gather_lead_s: float = 0.5
    ample_lead_s: float = 1.0
    begin_chars: int = 8
    look_ahead_chars: int = 14
    chars_per_s: float = 15.0
    open_lead_patches: int = 2
    max_opening_bytes: int = 64 * 2**20
    keep_back_s: float = 1.2
    max_mends: int = 2

    @property
    def max_step_streams(self) -> int:
        """Maximum number of streams in one step."""
        return min(self.max_streams, 2 * self.full_streams)

    @property
    def typical_work(self) -> float:
        """Work of a step at load, half of a full one; 1 where a step is never full."""
        return self.full_streams / 2 if self.full_streams <= self.max_streams else 1.0

    @property
    def max_request_positions(self) -> int:
        """Maximum number of positions of one request when it runs alone."""
        return min(self.max_positions, self.num_blocks * BLOCK_SIZE)

    @property
    def chars_per_patch(self) -> float:
        """Assumed number of characters that a patch speaks."""
        return self.chars_per_s * self.patch_s

    def text_bound(self, num_patches: int) -> int:
        """Return the characters that must lie in front of the speech for one more patch of an open text."""
        return self.look_ahead_chars if num_patches else self.begin_chars
