"""Admission of speech by the capacity of the engine and the lateness of the gateway. Pure.

Running speech has precedence: a new context is refused, with a time to retry, before it would delay running ones. Keys
share: a key below its fair share is admitted where others are refused. Refusals cost time too: a key with little
speech is not refused for lateness that another key's requests may have caused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from realtime_tts.errors import Overloaded
from realtime_tts.server.admission.quota import fair_share

WINDOW_S = 10.0
_MUCH_MORE = 2  # another key with more than this many times the requests may have caused the lateness
_SPARED = 4  # a key may have its share of 1/_SPARED of the streams despite lateness that another key causes


class RecentRequests:
    """Number of requests by key in the last 10 to 20 s, granted or refused.

    Counts are kept in two successive windows, so memory grows with the number of keys, not of requests.
    """

    def __init__(self) -> None:
        self._before: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._begun_s = 0.0

    def note(self, tenant: str, now: float) -> None:
        """Count one request."""
        self._advance(now)
        self._counts[tenant] += 1

    def counts(self, now: float) -> Counter[str]:
        """Return the number of requests by key."""
        self._advance(now)
        return self._before + self._counts

    def _advance(self, now: float) -> None:
        num_windows = int((now - self._begun_s) // WINDOW_S)
        if num_windows >= 1:
            self._before = self._counts if num_windows == 1 else Counter()
            self._counts = Counter()
            self._begun_s += num_windows * WINDOW_S


@dataclass(frozen=True, slots=True)
class SpeechLoad:
    """Current load of the host.

    Attributes:
        speaking: contexts that have work at the engine, by key; a context with more work counts as several.
        num_streams: number of streams that the engine can produce at once in real time.
        is_late: the gateway itself is too slow for its streams.
        asked: requests of the last seconds by key, granted or refused.
    """

    speaking: Counter[str]
    num_streams: int
    is_late: bool
    asked: Counter[str] = field(default_factory=Counter)


def refusal(load: SpeechLoad, tenant: str, max_waiting: int) -> Overloaded | None:
    """Return the error that refuses this key a new context now; None if it is admitted.

    Args:
        max_waiting: number of contexts that may wait for a stream; 0: only a free stream is given.
    """
    total, mine = load.speaking.total(), load.speaking[tenant]
    num_keys = len(+load.speaking | Counter([tenant]))
    # While late, admit a key without streams only if another key has more than one.
    is_beyond_share = total > 0 and mine >= total // num_keys
    if load.is_late and is_beyond_share and not _is_crowded_out(load, tenant):
        return Overloaded("the server cannot keep up with the speech that is running")
    num_waiting = total - load.num_streams
    if num_waiting < max_waiting:
        return None
    # The engine gives its next stream to a key below its share, however many contexts others have waiting. Such a key
    # is admitted, unless too many keys like it wait.
    num_waiting = sum(min(num, load.num_streams) for num in load.speaking.values()) - load.num_streams
    if mine < fair_share(load.num_streams, num_keys) and num_waiting < 2 * max(max_waiting, load.num_streams):
        return None
    return Overloaded("the engine is at full capacity")


def _is_crowded_out(load: SpeechLoad, tenant: str) -> bool:
    """Return whether a key has little speech although streams are free, while another key sends far more requests."""
    num_keys = len(+load.speaking | Counter([tenant]))
    most = max((count for key, count in load.asked.items() if key != tenant), default=0)
    return (
        load.speaking[tenant] < fair_share(load.num_streams // _SPARED, num_keys)
        and load.speaking.total() < load.num_streams
        and most > _MUCH_MORE * max(1, load.asked[tenant])
    )
