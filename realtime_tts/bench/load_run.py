"""One load on a server: playback quality, cost, and whether the generator itself was in time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.limits import REFUSALS, name_limit, why_void
from realtime_tts.bench.server_load import Account, ServerLoad, Target
from realtime_tts.bench.streams import Heard, summary


@dataclasses.dataclass(frozen=True, slots=True)
class LoadPlan:
    """Parameters of a load: `streams` at once, evenly spread, or random arrivals at `rate_per_s`; one of the two.
    seconds: duration of the judged window. barge_ins: share of turns that are interrupted."""

    streams: float | None
    rate_per_s: float | None
    seconds: float
    barge_ins: float = 0.0
    seed: int = 0

    def load(self, turn_s: float) -> OpenLoad:
        """Return the load. turn_s: duration of a turn for its listener."""
        rate_per_s = self.rate_per_s if self.streams is None else self.streams / turn_s
        assert rate_per_s is not None
        return OpenLoad.steady(
            rate_per_s, turn_s, self.seconds, even=self.streams is not None, barge_ins=self.barge_ins
        )


def measure_load(
    target: Target,
    plan: LoadPlan,
    begin: Callable[[float], None] = lambda seconds: None,
    on_now: Callable[[dict[str, int]], None] = lambda now: None,
) -> dict[str, Any]:
    """Run a load and return its summary. For admitted streams: figures of `summary`. For all: `asked`, `refused`,
    `errors` by code,
    `speech_per_s`, `usage`, `late_ms` and `latest_p99_ms` of the generator, `void`: why nothing of it counts, or "".

    Args:
        begin: told, before the load begins, how many seconds it takes. on_now: as `ServerLoad.on_now`.

    Raises:
        ConfigError: no server answers. EngineError: it does not speak, or a generator process failed.
    """
    with ServerLoad(target) as driver:
        driver.on_now = on_now
        driver.measure_turn()
        load = plan.load(driver.turn_s)
        begin(load.end_s)
        heard = driver.open_loop(load.arrivals(plan.seed))
        assert driver.account is not None
        return {"turn_s": driver.turn_s, **load_summary(heard, load, driver.account)}


def load_summary(heard: list[Heard], load: OpenLoad, account: Account) -> dict[str, Any]:
    """Return the summary as described at `measure_load`."""
    asked = [stream for stream in heard if stream.judged]
    errors: dict[str, int] = {}
    for stream in asked:
        if stream.error:
            errors[stream.error] = errors.get(stream.error, 0) + 1
    refused = sum(count for code, count in errors.items() if code in REFUSALS)
    usage, speech_per_s = account.usage, account.speech_per_s
    barged_in = [stream for stream in asked if stream.cancelled_at_s is not None and not stream.error]
    return {
        **summary([stream for stream in heard if stream.error not in REFUSALS], load.window),
        "asked": len(asked),
        "rate_per_s": load.rate_per_s,
        "refused": refused,
        "errors": errors,
        "barge_ins": {
            "streams": len(barged_in),
            "last_packet_ms": _spread([stream.after_cancel_ms for stream in barged_in]),
            "acknowledged_ms": _spread(
                [1000 * (stream.ended_s - (stream.cancelled_at_s or 0.0)) for stream in barged_in]
            ),
        },
        "speech_per_s": speech_per_s,
        "usage": dataclasses.asdict(usage),
        "gateway_ms_per_speech_s": _per_speech(usage.gateway_cores, speech_per_s),
        "worker_ms_per_speech_s": _per_speech(usage.worker_cores, speech_per_s),
        "late_ms": dataclasses.asdict(account.late_ms),
        "latest_p99_ms": account.latest_p99_ms,
        "limit": name_limit(usage, errors),
        "void": why_void(account.latest_p99_ms, usage.busiest_client or 0.0),
        "raw": [
            {"scheduled_s": stream.scheduled_s, "first_ms": 1000 * stream.first_s, "stalled_ms": _stalled_ms(stream)}
            | {"packets": stream.num_chunks, "error": stream.error, "barge_in": stream.cancelled_at_s is not None}
            for stream in asked
        ],
    }


def _stalled_ms(stream: Heard) -> float:
    """Return the total stall time of a player without a buffer, ms."""
    return 1000 * stream.playback(0.0).stalled_s


def _spread(values: list[float]) -> dict[str, float]:
    return dataclasses.asdict(Spread.of(values))


def _per_speech(cores: float | None, speech_per_s: float) -> float | None:
    """Return processor time in ms per second of speech."""
    return None if cores is None or not speech_per_s else 1000 * cores / speech_per_s if math.isfinite(cores) else None
