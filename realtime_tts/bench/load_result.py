"""Result of a load: playback of its streams, cost, and the part that limits it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.figures import Spread, percentile
from realtime_tts.bench.streams import GAVE_UP, PRE_BUFFERS_MS, Heard, Stalls, mean_and_peak
from realtime_tts.bench.usage import REFUSALS, Usage, name_limit, why_void


@dataclasses.dataclass(kw_only=True)
class LoadResult:
    """Result of a load. asked, refused, errors, raw: of all judged streams; the other figures are of those admitted.

    late_ms: delays of everything that the generator processes had to do at a time. latest_p99_ms: of the latest one.
    stalls: by pre-buffer, ms. listening_mean, listening_peak: concurrent listeners in the load's window.
    barge_in_last_ms, barge_in_told_ms: time from a barge-in to the last packet, and to the acknowledgement.
    speech_per_s: seconds of speech received a second. limit: the saturated part. void: why nothing counts, or "".
    """

    usage: Usage
    late_ms: Spread
    latest_p99_ms: float
    asked: int
    refused: int
    errors: dict[str, int]
    raw: list[Heard]
    streams: int
    packets: int
    first_audio_ms: Spread
    stalls: dict[str, Stalls]
    listening_mean: float
    listening_peak: int
    turn_s: float
    rate_per_s: float
    barge_in_last_ms: Spread
    barge_in_told_ms: Spread
    speech_per_s: float
    gateway_ms_per_speech_s: float | None
    worker_ms_per_speech_s: float | None
    limit: str
    void: str


def load_result(heard: Sequence[Heard], load: OpenLoad, usage: Usage, late_ms: Sequence[Sequence[float]]) -> LoadResult:
    """Return the result of a load from its streams, the usage meanwhile, and the delays of each generator process."""
    asked = [stream for stream in heard if stream.judged]
    errors = dict(Counter(stream.error for stream in asked if stream.error))
    admitted = [stream for stream in heard if stream.error not in {*REFUSALS, GAVE_UP}]
    judged = [stream for stream in admitted if stream.judged]
    listening_mean, listening_peak = mean_and_peak([stream.span for stream in admitted], *load.window)
    latest_p99_ms = max((percentile(each, 99) for each in late_ms), default=0.0)
    speech_per_s = sum(stream.audio_s or stream.position_s for stream in asked) / load.window_s
    barged_in = [stream for stream in asked if stream.cancelled_at_s is not None and not stream.error]
    return LoadResult(
        usage=usage,
        late_ms=Spread.of([each_ms for process in late_ms for each_ms in process]),
        latest_p99_ms=latest_p99_ms,
        asked=len(asked),
        refused=sum(errors.get(code, 0) for code in REFUSALS),
        errors=errors,
        raw=asked,
        streams=len(judged),
        packets=sum(stream.num_chunks for stream in judged),
        first_audio_ms=Spread.of([1000 * stream.first_s for stream in judged]),
        stalls={str(buffer_ms): Stalls.of(judged, buffer_ms) for buffer_ms in PRE_BUFFERS_MS},
        listening_mean=listening_mean,
        listening_peak=listening_peak,
        turn_s=load.turn_s,
        rate_per_s=load.rate_per_s,
        barge_in_last_ms=Spread.of([stream.after_cancel_ms for stream in barged_in]),
        barge_in_told_ms=Spread.of([1000 * (stream.ended_s - (stream.cancelled_at_s or 0.0)) for stream in barged_in]),
        speech_per_s=speech_per_s,
        gateway_ms_per_speech_s=_per_speech(usage.gateway_cores, speech_per_s),
        worker_ms_per_speech_s=_per_speech(usage.worker_cores, speech_per_s),
        limit=name_limit(usage, errors),
        void=why_void(len(asked), latest_p99_ms, usage.busiest_client or 0.0),
    )


def _per_speech(cores: float | None, speech_per_s: float) -> float | None:
    """Return processor time in ms per second of speech."""
    return None if cores is None or not speech_per_s else 1000 * cores / speech_per_s
