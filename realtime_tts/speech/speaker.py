"""Speech of one context: its segments go to the engine, a few ahead, and their audio returns in order, piece by piece.

Both the server and the Python API use it; engine requests are made only here.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple

from realtime_tts.audio.filters import StreamTempo
from realtime_tts.audio.volume import at_volume
from realtime_tts.contract import frames
from realtime_tts.contract.policy import ZERO_SHOT_VOICE
from realtime_tts.contract.speech_params import MAX_SPEED, MIN_SPEED
from realtime_tts.errors import error_from_code
from realtime_tts.session.messages import SpeechReport
from realtime_tts.session.settings import ContextSettings
from realtime_tts.speech.silence import SilencePace, silence
from realtime_tts.text.planner import Segment
from realtime_tts.workers.client import EngineClient, RequestStream

# The engine holds the segment that it speaks and the next one, which is enough to join them without a gap. A whole long
# text would fill its queue and count as load.
MAX_SUBMITTED = 2
_Stream = RequestStream | AsyncIterator[frames.Message]
SAMPLE_BYTES = {"s16le": 2, "f32le": 4}


class Piece(NamedTuple):
    """New audio of a segment, at its playback speed.

    Attributes:
        segment: the segment as known so far; complete in its last piece.
        pcm: mono, in the speaker's encoding; empty in the last piece of a segment.
        audio_ms: audio of the segment so far, this piece included, ms.
        done: the segment is complete.
        reached: time in the segment's audio (ms) and the character of its text spoken then, as a fraction; None if
            the engine does not measure it.
    """

    segment: Segment
    pcm: bytes
    audio_ms: float
    done: bool
    reached: tuple[float, float] | None = None


class Speaker:
    """One context at the engine: segments in, an asynchronous iteration of pieces out, once.

    The owner must call `close` at the end; it does not block.

    Args:
        context_id: unique among all contexts of the engine.
        settings: how to speak; the audio format in it is not used here.
        encoding: ``s16le`` or ``f32le``.
        paced: stay a few seconds ahead of the position given to `playback`; False: as fast as possible.
        max_submitted: segments that the engine holds at one time.
        max_length_s: end after exactly this many seconds of audio.
    """

    def __init__(
        self,
        engine: EngineClient,
        context_id: str,
        settings: ContextSettings,
        *,
        tenant: str = "",
        encoding: str = "s16le",
        paced: bool = True,
        max_submitted: int = MAX_SUBMITTED,
        max_length_s: float | None = None,
    ) -> None:
        if engine.ready is None:
            raise AssertionError("no speech starts before a worker has been ready")
        self.sample_rate_hz = engine.ready.sample_rate
        self._text_lag_ms = engine.policy.text_head.lag_ms if engine.policy.text_head else 0.0
        self._engine, self._context_id = engine, context_id
        self._settings, self._tenant = settings, tenant
        self._encoding, self._paced, self._max_submitted = encoding, paced, max_submitted
        self._patch_samples = engine.ready.patch_samples
        self._leaves_onset_out = engine.policy.onset_db is not None
        # Work of a patch, as the engine's scheduler counts it.
        self._work = max(1.0, settings.params["steps"] / engine.policy.default_steps)
        self._max_samples = None if max_length_s is None else round(max_length_s * self.sample_rate_hz)
        self._bytes_left = None if self._max_samples is None else SAMPLE_BYTES[encoding] * self._max_samples
        self._waiting: collections.deque[tuple[Segment, int]] = collections.deque()
        self._submitted: collections.deque[tuple[Segment, _Stream]] = collections.deque()
        self._num_spoken = 0  # submitted segments without those of silence, which the engine does not receive
        self._pace = SilencePace() if paced else None
        self._silences: collections.deque[tuple[float, float]] = collections.deque()  # start and end, ms of the context
        self._silent_ms = 0.0  # silence that was played before those
        self._read_ms = 0.0  # of the context, up to the segment that is read now
        self._changed = asyncio.Event()  # there is a segment to read, or none will follow
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._num_bytes = 0  # returned of the first submitted segment
        self._num_made = 0  # samples read of it, before the change of its speed
        self._tempo: StreamTempo | None = None  # filter of that segment
        self._reached: tuple[float, float] | None = None  # position in it that no piece has had yet
        self._segment_is_over = self._segment_is_read = False
        self._ended = self._closed = self._has_draft = False
        self._num_remembered = 0  # patches from memory: of the draft or of an opening
        self._num_mended = 0
        self._end_error: BaseException | None = None

    # ---- in ------------------------------------------------------------------------------------------------------

    def add(self, segment: Segment, priority: int = 0) -> None:
        """Speak a segment after those added before; no effect after `close`.

        Raises:
            EngineLost, Draining: the engine takes no request now.
        """
        if self._closed:
            return
        self._waiting.append((segment, priority))
        self._submit()

    def draft(self, segment: Segment) -> None:
        """Generate the beginning of the first segment ahead, if there is time; `add` speaks it."""
        self._has_draft = True
        self._engine.draft(dataclasses.replace(self._request(segment, 0), draft=True))

    def extend(self, segment: Segment) -> None:
        """Replace the last added segment, which is not final yet, by a longer one; no effect after `close`."""
        if self._closed:
            return
        if self._waiting and self._waiting[-1][0].index == segment.index:
            self._waiting[-1] = segment, self._waiting[-1][1]
        elif self._submitted and self._submitted[-1][0].index == segment.index:
            stream = self._submitted[-1][1]
            assert isinstance(stream, RequestStream), "silence does not grow"
            self._submitted[-1] = segment, stream
            self._engine.extend(stream.request_id, segment.text, segment.final)

    async def drain(self) -> None:
        """Wait while segments wait for the engine, so that the reader of a long text need not hold all of it in
        memory."""
        await self._has_room.wait()

    def end(self, error: BaseException | None = None) -> None:
        """No segment follows; the iteration ends, or raises `error`, after those that were added."""
        self._ended, self._end_error = True, error
        self._changed.set()

    def close(self) -> None:
        """Stop the speech and remove the context at the engine; the iteration ends. Idempotent."""
        self._closed = True
        self._waiting.clear()
        self._has_room.set()
        self._engine.close_context(self._context_id)
        self.end()

    # ---- playback ----------------------------------------------------------------------------------------------------

    @property
    def voice(self) -> str:
        """The engine's id of the voice."""
        return self._settings.voice

    @property
    def num_streams(self) -> int:
        """Number of real-time streams that this context counts as while the engine has a segment of it: more than one
        with a higher speed or more flow steps than usual."""
        return max(1, round(self._speed_of(self._submitted[0][0]) * self._work)) if self._num_requests else 0

    @property
    def _num_requests(self) -> int:
        return sum(isinstance(stream, RequestStream) for _, stream in self._submitted)

    @property
    def report(self) -> SpeechReport:
        is_remembered, has_openings = self._num_remembered > 0, self._settings.params["openings"] == "on"
        return SpeechReport(
            draft_used=self._has_draft and is_remembered,
            opening_used=is_remembered and not self._has_draft if has_openings else None,
            mended=self._num_mended,
        )

    def playback(self, played_ms: float, paused: bool) -> None:
        if self._pace is not None:
            self._pace.listening(paused)
        while self._silences and self._silences[0][1] <= played_ms:
            start_ms, end_ms = self._silences.popleft()
            self._silent_ms += end_ms - start_ms
        under_way_ms = max(0.0, played_ms - self._silences[0][0]) if self._silences else 0.0
        self._engine.playback(self._context_id, played_ms - self._silent_ms - under_way_ms, paused)

    def set_priority(self, priority: int) -> None:
        self._engine.set_priority(self._context_id, priority)

    # ---- out -----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Speaker:
        return self

    async def __anext__(self) -> Piece:
        """Return the next piece as soon as it is made; for one reader.

        Raises:
            RealtimeTTSError: what a segment failed with, or why the next one could not be submitted.
            BaseException: the error passed to `end`.
        """
        while (current := await self._next()) is not None:
            if self._segment_is_over:
                self._segment_is_over, self._segment_is_read = False, True
                if self._pace is not None and not self._submitted[0][0].silence_ms:
                    self._pace.interrupted()
                return self._piece(b"", done=True)
            message = await anext(current)
            if isinstance(message, frames.Failed) and not self._closed:
                raise error_from_code(message.code, message.message)
            if isinstance(message, frames.Done):
                self._segment_is_over = True
                self._num_remembered += message.num_remembered
                self._num_mended += message.skips_mended + message.repeats_mended + message.stuck_mended
            segment = self._submitted[0][0]
            speed, pcm = self._speed_of(segment), message.payload
            self._num_made += len(pcm) // SAMPLE_BYTES[self._encoding]
            if speed != 1.0 and not segment.silence_ms:
                pcm = await self._at_speed(pcm, speed)
            pcm = self._at_volume(pcm)
            if self._closed:
                break
            if isinstance(message, frames.Audio) and message.text_position is not None:
                made_ms = 1000 * self._num_made / self.sample_rate_hz
                self._reached = (made_ms - self._text_lag_ms) / speed, message.text_position
            if self._bytes_left is not None:
                pcm = pcm[: self._bytes_left]
                self._bytes_left -= len(pcm)
            if pcm:
                return self._piece(pcm, done=False)
        raise StopAsyncIteration

    async def _at_speed(self, pcm: bytes, speed: float) -> bytes:
        """Return the next samples of a segment at the requested speed; at its end, those that were held back.

        Each segment has its own filter, so that its end is complete before the next segment is known.
        """
        if self._tempo is None:
            self._tempo = StreamTempo(self.sample_rate_hz, speed, self._encoding)
        # A millisecond of work, at high rates: not on the event loop.
        return await asyncio.to_thread(self._tempo.finish if self._segment_is_over else partial(self._tempo.push, pcm))

    def _at_volume(self, pcm: bytes) -> bytes:
        segment = self._submitted[0][0]
        volume = self._settings.params["volume"] * segment.volume
        if volume == 1.0 or not pcm or segment.silence_ms:
            return pcm
        return at_volume(pcm, volume, self._encoding)

    async def _next(self) -> _Stream | None:
        """Return the stream to read now, that of the first submitted segment; None after the last one."""
        if self._segment_is_read:
            self._read_ms += self._audio_ms
            self._segment_is_read, self._num_bytes, self._num_made, self._tempo = False, 0, 0, None
            self._submitted.popleft()
            self._submit()
        while not self._submitted:
            if self._ended:
                if self._end_error is not None:
                    raise self._end_error
                return None
            self._changed.clear()
            await self._changed.wait()
        return None if self._closed or self._bytes_left == 0 else self._submitted[0][1]

    def _piece(self, pcm: bytes, done: bool) -> Piece:
        segment = self._submitted[0][0]  # may be longer than when it was submitted
        if segment.silence_ms and self._num_bytes == 0:  # at its beginning: much is played before its last piece
            self._silences.append((self._read_ms, self._read_ms + segment.silence_ms))
        self._num_bytes += len(pcm)
        reached, self._reached = self._reached, None
        return Piece(segment, pcm, self._audio_ms, done, reached)

    @property
    def _audio_ms(self) -> float:
        """Audio returned of the segment that is read now, ms."""
        return 1000 * (self._num_bytes // SAMPLE_BYTES[self._encoding]) / self.sample_rate_hz

    def _speed_of(self, segment: Segment) -> float:
        return max(MIN_SPEED, min(MAX_SPEED, self._settings.params["speed"] * segment.speed))

    def _max_patches(self, speed: float) -> int | None:
        if self._max_samples is None:
            return None
        # A part of the first patch may be left out.
        return max(1, math.ceil(self._max_samples * speed / self._patch_samples)) + self._leaves_onset_out

    def _submit(self) -> None:
        while self._waiting and self._num_requests < self._max_submitted:
            segment, priority = self._waiting[0]
            self._submitted.append((segment, self._begin(segment, priority)))
            self._waiting.popleft()
        if self._waiting:
            self._has_room.clear()
        else:
            self._has_room.set()
        self._changed.set()

    def _begin(self, segment: Segment, priority: int) -> _Stream:
        if segment.silence_ms:
            rate_hz, sample_bytes = self.sample_rate_hz, SAMPLE_BYTES[self._encoding]
            return silence(self._request_id(segment), segment.silence_ms, rate_hz, sample_bytes, self._pace)
        stream = self._engine.submit(self._request(segment, priority))
        self._num_spoken += 1
        return stream

    def _request_id(self, segment: Segment) -> str:
        return f"{self._context_id}/{segment.index}"

    def _request(self, segment: Segment, priority: int) -> frames.Generate:
        settings, params, speed = self._settings, self._settings.params, self._speed_of(segment)
        return frames.Generate(
            request_id=self._request_id(segment),
            context_id=self._context_id,
            text=segment.text,
            voice=None if settings.voice == ZERO_SHOT_VOICE else settings.voice,
            adapter=params.get("adapter"),
            seed=params["seed"],
            segment=self._num_spoken,
            instructions=params.get("instructions"),
            cfg=params["cfg"],
            steps=params["steps"],
            max_patches=self._max_patches(speed),
            encoding=self._encoding,
            tenant=self._tenant,
            priority=priority,
            paced=self._paced,
            speed=speed,
            openings=params["openings"] == "on",
            final=segment.final,  # an open one may grow to the policy's `max_segment_chars`: planners keep to it
        )
