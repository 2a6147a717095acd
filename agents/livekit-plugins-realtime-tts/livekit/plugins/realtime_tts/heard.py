"""History of interrupted turns, which keeps the words that were heard, and pauses at the end of a word."""

from __future__ import annotations

import asyncio
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
# Audio given to an output that can pause, ahead of its playback: as much as LiveKit's own room output queues.
AHEAD_S = 0.2
# The end that came with a word may be an estimate. If the next word begins soon after it, the word ends there.
LAST_SOUND_S = 0.25
# Audio left in an output that counts as none: a millisecond more or less is played while it is asked.
UNPLAYED_S = 0.002


class HeardOutput(io.AudioOutput):
    """Audio output in front of a session's own output that determines which words were heard and pauses between words.

    LiveKit by itself keeps the transcript shown so far, which it paces by the number of syllables. Here a word counts
    once its measured end was played. A pause of LiveKit's room output cuts the word and discards what is queued. Here
    the output has only `AHEAD_S` of audio, and in a pause nothing after the end of the word that this audio ends in.
    """

    def __init__(self, next_in_chain: io.AudioOutput) -> None:
        super().__init__(
            label="HeardOutput",
            next_in_chain=next_in_chain,
            capabilities=io.AudioOutputCapabilities(pause=True),
        )
        self._pieces: list[tuple[str, float]] = []  # text, end in seconds of playback
        self._starts_s: list[float] = []
        self._stop_s: float | None = None  # where a pause begins
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._played_out_at = 0.0  # when the output has played all that it was given
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
        while self.can_pause and (frame_s := await self._wait_for_room(frame.duration)) < frame.duration:
            num_samples = max(0, round(frame_s * frame.sample_rate))
            if num_samples > 0:
                await self._give(_part(frame, 0, num_samples))
            frame = _part(frame, num_samples, frame.samples_per_channel)
        await self._give(frame)

    async def _give(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self._captured_s += frame.duration
        await self._next.capture_frame(frame)
        now = asyncio.get_running_loop().time()
        self._played_out_at = max(self._played_out_at, now) + frame.duration

    async def _wait_for_room(self, duration_s: float) -> float:
        """Wait while the output has enough audio, and during a pause. Return the duration that it can be given, at most
        `duration_s`."""
        await self._sleep_until(self._played_out_at - AHEAD_S)
        if self._stop_s is not None and self._stop_s <= self._captured_s + TOLERANCE_S:
            await self._sleep_until(self._played_out_at)
            while self._stop_s is not None and (left_s := unplayed_s(self._next)) > UNPLAYED_S:  # noqa: ASYNC110
                await asyncio.sleep(left_s)  # a busy machine plays later
            if self._stop_s is not None:
                super().pause()
            await self._resumed.wait()
        return duration_s if self._stop_s is None else min(duration_s, self._stop_s - self._captured_s)

    async def _sleep_until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))

    def pause(self) -> None:
        self._resumed.clear()
        self._stop_s = self._captured_s
        for start_s, (_, end_s) in zip(self._starts_s, self._pieces, strict=True):
            if start_s + TOLERANCE_S < self._captured_s < end_s:
                self._stop_s = end_s

    def resume(self) -> None:
        self._stop_s = None
        self._resumed.set()
        super().resume()

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
        self._pieces, self._starts_s = [], []
        self._stop_s = None if self._stop_s is None else 0.0
        self._captured_s = self._reached_s = self._offset_s = self._last_s = 0.0

    def _take(self, piece: object) -> None:
        if not isinstance(piece, TimedString) or not is_given(piece.start_time) or not is_given(piece.end_time):
            return
        if piece.start_time < self._last_s:  # of another stream, whose times start at zero again
            self._offset_s = self._captured_s
        self._last_s = piece.start_time
        start_s = self._offset_s + piece.start_time
        if self._pieces and start_s - self._pieces[-1][1] <= LAST_SOUND_S:
            self._pieces[-1] = self._pieces[-1][0], start_s
        self._starts_s.append(start_s)
        self._pieces.append((str(piece), self._offset_s + piece.end_time))


def unplayed_s(output: io.AudioOutput) -> float:
    """Return the duration of the audio that LiveKit's room output has not played yet, s; 0 for other outputs.

    There is no public way to ask. A pause of the output discards this audio.
    """
    while output.next_in_chain is not None:
        output = output.next_in_chain
    source = getattr(output, "_audio_source", None)
    if source is None:
        return 0.0
    waiting_s = getattr(output, "_pushed_duration", 0.0) - getattr(output, "_source_pushed_duration", 0.0)
    return float(source.queued_duration + max(0.0, waiting_s))


def _part(frame: rtc.AudioFrame, start: int, end: int) -> rtc.AudioFrame:
    """Return the samples of a frame from `start` to `end`."""
    data = frame.data[start * frame.num_channels : end * frame.num_channels]
    userdata = frame.userdata if start == 0 else {}
    return rtc.AudioFrame(bytes(data), frame.sample_rate, frame.num_channels, end - start, userdata=userdata)


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
