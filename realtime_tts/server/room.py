"""Whether there is room for one more to speak: at the engine, and in what this process can feed. Pure.

Speech that has begun comes first. Somebody new is refused before those who are in would have to wait for him, and told
when to ask again. Keys share: who speaks less than his part of what is spoken is let in where others are not. Refusing
costs time too: a key with little speech is not refused for the lateness that another key's requests may have caused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from realtime_tts.errors import Overloaded
from realtime_tts.server.quota import fair_share

_MUCH_MORE = 2  # times as many requests as a key made itself: another key that may have caused the lateness
_SPARED = 4  # a key may have its share of this part of the streams whatever the lateness that another key causes


@dataclass(frozen=True, slots=True)
class Load:
    """What is under way.

    Attributes:
        speaking: contexts that have work at the engine, by key; one with more work than usual counts as several.
        num_streams: as many the engine can speak at a time, each in real time.
        is_late: the gateway itself cannot keep up.
        asked: requests of the last seconds by key, granted or refused.
    """

    speaking: Counter[str]
    num_streams: int
    is_late: bool
    asked: Counter[str] = field(default_factory=Counter)


def refusal(load: Load, tenant: str, max_waiting: int) -> Overloaded | None:
    """Why nobody more of this key is to speak now, if so.

    Args:
        max_waiting: how many may wait for a stream; 0: only into a free one.
    """
    total, mine = load.speaking.total(), load.speaking[tenant]
    num_keys = len(+load.speaking | Counter([tenant]))
    # Who has nothing comes in as long as somebody has more than one; where each has one, all would only be later.
    is_beyond_share = total > 0 and mine >= total // num_keys
    if load.is_late and is_beyond_share and not _is_crowded_out(load, tenant):
        return Overloaded("the server is late with what is being spoken")
    num_waiting = total - load.num_streams
    if num_waiting < max_waiting:
        return None
    # The engine's next stream is for a key that has less than its share, however much others have waiting: it is
    # let in, as long as there are not too many of its kind.
    num_waiting = sum(min(num, load.num_streams) for num in load.speaking.values()) - load.num_streams
    if mine < fair_share(load.num_streams, num_keys) and num_waiting < 2 * max(max_waiting, load.num_streams):
        return None
    return Overloaded("the engine has as much to speak as it can")


def _is_crowded_out(load: Load, tenant: str) -> bool:
    """Whether a key has little speech or none although streams are free, and another key asks far more often."""
    num_keys = len(+load.speaking | Counter([tenant]))
    most = max((count for key, count in load.asked.items() if key != tenant), default=0)
    return (
        load.speaking[tenant] < fair_share(load.num_streams // _SPARED, num_keys)
        and load.speaking.total() < load.num_streams
        and most > _MUCH_MORE * max(1, load.asked[tenant])
    )
