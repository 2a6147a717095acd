"""Search for the highest load that holds. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable


def highest_load(
    holds: Callable[[float], bool],
    start: float,
    precision: float,
    max_trials: int,
    *,
    is_sure: Callable[[float], bool] = lambda load: True,
    lowest: float = 0.0,
    factor: float = 2.0,
) -> tuple[float, float]:
    """Double or halve (`factor`) until one load held and a higher one did not, then halve the ratio between the two.
    Return the highest load that held, 0 if none did, and the lowest that did not.

    A load that failed once is never called held, whatever is found out later: verdicts near the limit are drawn by
    chance.

    Args:
        holds: tries a load, at first `start`.
        precision: stop when what failed is at most this share above what held.
        max_trials: stop after so many.
        is_sure: tries the result again; otherwise the search goes on below it.
        lowest: give up below this.
        factor: from one load to the next, as long as all hold or none does.
    """
    held, failed, load = [0.0], math.inf, start  # held: rising
    while True:
        while max_trials > 0 and load >= lowest and failed > held[-1] * (1 + precision):
            max_trials -= 1
            if holds(load):
                held.append(load)
            else:
                failed = load
            load = _between(held[-1], failed, factor)
        if not held[-1] or is_sure(held[-1]):
            return held[-1], failed
        failed = held.pop()
        load = _between(held[-1], failed, factor)


def _between(held: float, failed: float, factor: float) -> float:
    if not held:
        return failed / factor
    return held * factor if math.isinf(failed) else math.sqrt(held * failed)
