"""Is somebody speaking? By loudness alone: for tests, phone lines and machines without a model. Pure."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

WINDOW_MS = 20
FLOOR_RISE_DB_S = 3.0  # so that a room that becomes louder is no speech for ever
LOWEST_DB = -90.0


class SpeechDetector:
    """Speech is what stands out of the background for a while, and ends when nothing did for a while.

    Args:
        rate_hz: of the samples.
        start_ms, stop_ms: how long it must be loud to begin, and quiet to end.
        margin_db: how far above the background speech is.
        quietest_db: below that nothing is speech, dB of full scale.
    """

    def __init__(
        self,
        rate_hz: int,
        *,
        start_ms: float = 80,
        stop_ms: float = 400,
        margin_db: float = 12.0,
        quietest_db: float = -45.0,
    ) -> None:
        self.speaking = False
        self.changed_ms = 0.0  # how long the present state has lasted
        self._window = rate_hz * WINDOW_MS // 1000
        self._start_ms, self._stop_ms = start_ms, stop_ms
        self._margin_db, self._quietest_db = margin_db, quietest_db
        self._pending: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self._floor_db = LOWEST_DB
        self._against_ms = 0.0  # how long the opposite of `speaking` has been heard

    def feed(self, samples: npt.NDArray[np.int16]) -> list[Literal["started", "stopped"]]:
        """Mono samples, as many as there are. What has changed with them, in order."""
        self._pending = np.concatenate([self._pending, samples])
        changes: list[Literal["started", "stopped"]] = []
        while len(self._pending) >= self._window:
            window, self._pending = self._pending[: self._window], self._pending[self._window :]
            if self._take(level_db(window)):
                changes.append("started" if self.speaking else "stopped")
        return changes

    def _take(self, loudness_db: float) -> bool:
        """Whether speech has begun or ended."""
        is_loud = loudness_db > max(self._quietest_db, self._floor_db + self._margin_db)
        self._floor_db = min(loudness_db, self._floor_db + FLOOR_RISE_DB_S * WINDOW_MS / 1000)
        self._floor_db = max(self._floor_db, LOWEST_DB)
        self.changed_ms += WINDOW_MS
        self._against_ms = self._against_ms + WINDOW_MS if is_loud != self.speaking else 0.0
        if self._against_ms < (self._stop_ms if self.speaking else self._start_ms):
            return False
        self.speaking = not self.speaking
        self.changed_ms, self._against_ms = self._against_ms, 0.0
        return True


def level_db(samples: npt.NDArray[np.int16]) -> float:
    """Root mean square, dB of full scale."""
    if len(samples) == 0:
        return LOWEST_DB
    power = float(np.mean(np.square(samples.astype(np.float64) / 32768)))
    return max(LOWEST_DB, 10 * float(np.log10(power))) if power > 0 else LOWEST_DB
