"""History of interrupted turns: it keeps the words that were heard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString
from livekit.agents.utils import is_given
from livekit.agents.voice import io

from .log import logger

# Times are rounded (to milliseconds, to samples): a word that ends where the audio was cut counts as heard.
TOLERANCE_S = 0.002


class HeardOutput(io.AudioOutput):
    """Audio output in front of a session's own output that determines which words were heard.

    LiveKit by itself keeps the transcript shown so far, which it paces by the number of syllables. Here a word counts
    once its measured end was played.
    """

    def __init__(self, next_in_chain: io.AudioOutput) -> None:
        super().__init__(
            label="HeardOutput",
            next_in_chain=next_in_chain,
            capabilities=io.AudioOutputCapabilities(pause=True),
        )
        self._pieces: list[tuple[str, float]] = []  # text, end in seconds of playback
        self._captured_s = 0.0
        self._reached_s = 0.0
        self._offset_s = 0.0  # start of the stream whose words arrive now
        self._last_s = 0.0

    @property
    def _next(self) -> io.AudioOutput:
        if self.next_in_chain is None:
            raise AssertionError("there is an output behind this one")
        return self.next_in_chain  # not the constructor's argument: LiveKit puts a proxy between

    @property
    def sample_rate(self) -> int | None:
        return self._next.sample_rate

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        for piece in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, ()):
            self._take(piece)
        await super().capture_frame(frame)
        await self._next.capture_frame(frame)
        self._captured_s += frame.duration

    def flush(self) -> None:
        super().flush()
        self._next.flush()

    def clear_buffer(self) -> None:
        self._next.clear_buffer()

    def on_playback_progressed(self, *, started_at: float, offset: float, duration: float) -> None:
        self._reached_s = max(self._reached_s, offset + duration)
        super().on_playback_progressed(started_at=started_at, offset=offset, duration=duration)

    def on_playback_finished(
        self, *, playback_position: float, interrupted: bool, synchronized_transcript: str | None = None
    ) -> None:
        if interrupted and self._pieces:
            # Audio discarded by a pause counts in the playback position, not in the played duration.
            synchronized_transcript = heard_text(self._pieces, max(playback_position, self._reached_s))
        elif interrupted and playback_position > 0:
            logger.warning("no word times arrived at the output; is it resampled? Then the history is an estimate")
        self._begin()
        super().on_playback_finished(
            playback_position=playback_position,
            interrupted=interrupted,
            synchronized_transcript=synchronized_transcript,
        )

    def _begin(self) -> None:
        self._pieces = []
        self._captured_s = self._reached_s = self._offset_s = self._last_s = 0.0

    def _take(self, piece: object) -> None:
        if not isinstance(piece, TimedString) or not is_given(piece.start_time) or not is_given(piece.end_time):
            return
        if piece.start_time < self._last_s:  # of another stream, whose times start at zero again
            self._offset_s = self._captured_s
        self._last_s = piece.start_time
        self._pieces.append((str(piece), self._offset_s + piece.end_time))


def heard_text(pieces: Sequence[tuple[str, float]], position_s: float) -> str:
    """Return the text of the pieces (text, end in seconds) up to the last one that was played to its end."""
    heard = ""
    for text, end_s in pieces:
        if end_s > position_s + TOLERANCE_S:
            break
        heard += text
    return heard


def keep_what_was_heard(session: AgentSession[Any]) -> None:
    """Make a started session's history keep only the heard text of interrupted turns.

    Raises:
        RuntimeError: the session has no audio output yet (call it after `session.start`).
    """
    output = session.output.audio
    if output is None:
        raise RuntimeError("the session has no audio output: call this after session.start")
    if not isinstance(output, HeardOutput):
        session.output.audio = HeardOutput(output)
