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


class Activity:
    """Speech or quiet, window by window: speech begins after a time of sound and ends after a time without.

    Args:
        start_ms, stop_ms: duration of sound before speech begins, and of quiet before it ends.
    """

    def __init__(self, start_ms: float = START_MS, stop_ms: float = STOP_MS) -> None:
        self.start_ms, self.stop_ms = start_ms, stop_ms
        self.speaking = False
        self.changed_ms = 0.0  # duration of the present state
        self._against_ms = 0.0  # duration of the opposite of `speaking`

    @property
    def loud_ms(self) -> float:
        """Duration of the sound that is being heard, without the quiet after it; 0 in silence."""
        return self.changed_ms - self._against_ms if self.speaking else 0.0

    @property
    def quiet_ms(self) -> float:
        """Duration of the quiet after the last sound."""
        return self._against_ms if self.speaking else self.changed_ms

    def take(self, is_loud: bool, window_ms: float) -> bool:
        """Process one window. Return whether speech has begun or ended with it."""
        self.changed_ms += window_ms
        self._against_ms = self._against_ms + window_ms if is_loud != self.speaking else 0.0
        if self._against_ms < (self.stop_ms if self.speaking else self.start_ms):
            return False
        self.change()
        return True

    def change(self) -> None:
        """Begin or end speech at the last sound or quiet, whatever its duration."""
        self.speaking = not self.speaking
        self.changed_ms, self._against_ms = self._against_ms, 0.0


class SpeechDetector(Activity):
    """Detector: sound is what is louder than the background.

    Args:
        rate_hz: sample rate.
    """

    def __init__(self, rate_hz: int) -> None:
        super().__init__()
        self._window = rate_hz * WINDOW_MS // 1000
        self._pending: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self._floor_db = LOWEST_DB

    def feed(self, samples: npt.NDArray[np.int16]) -> list[Literal["started", "stopped"]]:
        """Process any number of mono samples. Return the changes, in order."""
        self._pending = np.concatenate([self._pending, samples])
        changes: list[Literal["started", "stopped"]] = []
        while len(self._pending) >= self._window:
            window, self._pending = self._pending[: self._window], self._pending[self._window :]
            if self.take(self._is_loud(level_db(window)), WINDOW_MS):
                changes.append("started" if self.speaking else "stopped")
        return changes

    def _is_loud(self, loudness_db: float) -> bool:
        is_loud = loudness_db > max(QUIETEST_DB, self._floor_db + MARGIN_DB)
        self._floor_db = min(loudness_db, self._floor_db + FLOOR_RISE_DB_S * WINDOW_MS / 1000)
        self._floor_db = max(self._floor_db, LOWEST_DB)
        return is_loud


def level_db(samples: npt.NDArray[np.int16]) -> float:
    """Return the root mean square, dB of full scale."""
    if len(samples) == 0:
        return LOWEST_DB
    power = float(np.mean(np.square(samples.astype(np.float64) / 32768)))
    return max(LOWEST_DB, 10 * float(np.log10(power))) if power > 0 else LOWEST_DB
