"""Speech detection by loudness alone, for tests, phone lines and machines without a model. Pure."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

WINDOW_MS = 20
FLOOR_RISE_DB_S = 3.0  # so that a louder background is not detected as speech for ever
LOWEST_DB = -90.0
START_MS, STOP_MS = 80, 400  # loud time before speech begins, quiet time before it ends
MARGIN_DB, QUIETEST_DB = 12.0, -45.0  # level of speech above the background, and of full scale


class SpeechDetector:
    """Detector: speech begins after a time above the background level and ends after a time without.

    Args:
        rate_hz: sample rate.
    """

    def __init__(self, rate_hz: int) -> None:
        self.speaking = False
        self.changed_ms = 0.0  # duration of the present state
        self._window = rate_hz * WINDOW_MS // 1000
        self._pending: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self._floor_db = LOWEST_DB
        self._against_ms = 0.0  # duration of the opposite of `speaking`

    @property
    def loud_ms(self) -> float:
        """Duration of the sound that is being heard, without the quiet after it; 0 while nobody speaks."""
        return self.changed_ms - self._against_ms if self.speaking else 0.0

    @property
    def quiet_ms(self) -> float:
        """Duration of the quiet after the last sound."""
        return self._against_ms if self.speaking else self.changed_ms

    def feed(self, samples: npt.NDArray[np.int16]) -> list[Literal["started", "stopped"]]:
        """Process any number of mono samples. Return the changes, in order."""
        self._pending = np.concatenate([self._pending, samples])
        changes: list[Literal["started", "stopped"]] = []
        while len(self._pending) >= self._window:
            window, self._pending = self._pending[: self._window], self._pending[self._window :]
            if self._take(level_db(window)):
                changes.append("started" if self.speaking else "stopped")
        return changes

    def _take(self, loudness_db: float) -> bool:
        """Process one window. Return whether speech has begun or ended with it."""
        is_loud = loudness_db > max(QUIETEST_DB, self._floor_db + MARGIN_DB)
        self._floor_db = min(loudness_db, self._floor_db + FLOOR_RISE_DB_S * WINDOW_MS / 1000)
        self._floor_db = max(self._floor_db, LOWEST_DB)
        self.changed_ms += WINDOW_MS
        self._against_ms = self._against_ms + WINDOW_MS if is_loud != self.speaking else 0.0
        if self._against_ms < (STOP_MS if self.speaking else START_MS):
            return False
        self.speaking = not self.speaking
        self.changed_ms, self._against_ms = self._against_ms, 0.0
        return True


def level_db(samples: npt.NDArray[np.int16]) -> float:
    """Return the root mean square, dB of full scale."""
    if len(samples) == 0:
        return LOWEST_DB
    power = float(np.mean(np.square(samples.astype(np.float64) / 32768)))
    return max(LOWEST_DB, 10 * float(np.log10(power))) if power > 0 else LOWEST_DB
