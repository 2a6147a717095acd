"""Estimate of the playback position of an answer over plain HTTP. Pure; the time is passed in."""

from __future__ import annotations

# Assumed lead of a client that reads at once: too long for the engine to raise its priority, too short to park it
# (`park_low_s` of the scheduler).
KEPT_MS = 1_500.0


class ReaderPosition:
    """Playback position of a client that reports none.

    The client is assumed to play in real time from its first audio on. If it reads faster, to fill a file or a buffer,
    all but the last `KEPT_MS` of the audio that it took counts as played.

    So the engine produces speech as fast as it is read, with the usual priority if time is short, and stops a few
    seconds ahead of a client that does not read.
    """

    def __init__(self) -> None:
        self._started_s = 0.0
        self._taken_ms = 0.0

    def take(self, audio_ms: float, now: float) -> None:
        """Note that the client has taken `audio_ms` of the speech in all, at `now` in seconds."""
        if not self._taken_ms:
            self._started_s = now
        self._taken_ms = max(self._taken_ms, audio_ms)

    def heard_ms(self, now: float) -> float:
        elapsed_ms = 1000 * (now - self._started_s)
        return max(min(self._taken_ms, elapsed_ms), self._taken_ms - KEPT_MS) if self._taken_ms else 0.0
