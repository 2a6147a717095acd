"""Result of a load: playback of its streams, cost, and the part that limits it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.streams import GAVE_UP, Heard, Summary, count_errors, summary
from realtime_tts.bench.usage import REFUSALS, Usage, name_limit, why_void


@dataclasses.dataclass(kw_only=True)
class Cost:
    """Cost of a load, as far as it is known, and whether its generator was in time.

    step_ms: duration of the engine's steps. late_ms: delays of everything that the generator processes had to do at a
    time; latest_p99_ms: of the latest process.
    """

    usage: Usage = dataclasses.field(default_factory=Usage)
    step_ms: Spread | None = None
    late_ms: Spread = dataclasses.field(default_factory=lambda: Spread.of(()))
    latest_p99_ms: float = 0.0


@dataclasses.dataclass(kw_only=True)
class LoadResult(Summary, Cost):
    """Result of a load. `Summary`: of the admitted streams. asked, refused, errors, raw: of all. barge_in_last_ms,
    barge_in_told_ms: time from a barge-in to the last packet, and to the acknowledgement. speech_per_s: seconds of
    speech received a second, of the judged streams. limit: the saturated part. void: why nothing counts, or ""."""

    turn_s: float
    asked: int
    rate_per_s: float
    refused: int
    barge_in_last_ms: Spread
    barge_in_told_ms: Spread
    speech_per_s: float
    gateway_ms_per_speech_s: float | None
    worker_ms_per_speech_s: float | None
    limit: str
    void: str


def load_result(heard: Sequence[Heard], load: OpenLoad, cost: Cost) -> LoadResult:
    """Return the result of a load from its streams and its cost."""
    asked = [stream for stream in heard if stream.judged]
    errors = count_errors(asked)
    usage, speech_per_s = cost.usage, sum(stream.audio_s or stream.position_s for stream in asked) / load.window_s
    barged_in = [stream for stream in asked if stream.cancelled_at_s is not None and not stream.error]
    admitted = summary([stream for stream in heard if stream.error not in {*REFUSALS, GAVE_UP}], load.window)
    return LoadResult(
        **{**vars(admitted), **vars(cost), "errors": errors, "raw": asked},
        turn_s=load.turn_s,
        asked=len(asked),
        rate_per_s=load.rate_per_s,
        refused=sum(errors.get(code, 0) for code in REFUSALS),
        barge_in_last_ms=Spread.of([stream.after_cancel_ms for stream in barged_in]),
        barge_in_told_ms=Spread.of([1000 * (stream.ended_s - (stream.cancelled_at_s or 0.0)) for stream in barged_in]),
        speech_per_s=speech_per_s,
        gateway_ms_per_speech_s=_per_speech(usage.gateway_cores, speech_per_s),
        worker_ms_per_speech_s=_per_speech(usage.worker_cores, speech_per_s),
        limit=name_limit(usage, errors),
        void=why_void(cost.latest_p99_ms, usage.busiest_client or 0.0),
    )


def _per_speech(cores: float | None, speech_per_s: float) -> float | None:
    """Return processor time in ms per second of speech."""
    return None if cores is None or not speech_per_s else 1000 * cores / speech_per_s
