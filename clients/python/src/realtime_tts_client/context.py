"""One turn of speech: text in, packets out."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from realtime_tts_client import decoding
from realtime_tts_client.errors import ContextClosed, RealtimeTTSError
from realtime_tts_client.playback import PlaybackClock, PlaybackMode
from realtime_tts_client.types import AudioFormat, Done, Packet, Spoken, Word

if TYPE_CHECKING:
    from realtime_tts_client.session import Session

_REPEATED_MS = 8_100.0  # the longest clause that the server begins again, and its first packet


class Context:
    """Context made by `Session.speak`. Iterate over it for packets, or over `pcm()` for samples: one consumer, once.

    Iteration ends when all text was spoken or the context was cancelled. If the context failed, iteration raises the
    typed error after the packets that arrived. Cancelling the task that iterates cancels the context at once, as does
    leaving `async with context:` early. To wait with a time limit without cancelling, use `asyncio.wait`.

    Attributes:
        id: the context's id in its session.
        words: all words received so far, in order. The end of the last one is an estimate; it is measured when the next
            one arrives.
        skipped: spans of the text that cannot be spoken (emoji, another script), as far as known.
        audio, voice, seed: effective settings; None until the server has accepted the context.
        done: set when all audio has arrived.
        spoken: set when the context was cancelled or has failed.
    """

    def __init__(self, session: Session, context_id: str, mode: PlaybackMode) -> None:
        self.id = context_id
        self.words: list[Word] = []
        self.skipped: list[tuple[int, int]] = []
        self.audio: AudioFormat | None = None
        self.voice: str | None = None
        self.seed: int | None = None
        self.done: Done | None = None
        self.spoken: Spoken | None = None
        self.queued_ms = 0.0
        self.clock = PlaybackClock(mode)
        self._session = session
        self._sent: list[str] = []
        self._packets: deque[Packet] = deque()
        self._recent: deque[Packet] = deque()  # taken ones, from `_REPEATED_MS` before the playback position on
        self._answer: asyncio.Future[Any] | None = None  # to a hold or release
        self._pending_words: list[Word] = []
        self._error: RealtimeTTSError | None = None
        self._refusal: RealtimeTTSError | None = None
        self._source_error: Exception | None = None  # raised by the iterable of the text
        self._finished = False
        self._cancelled = False
        self._wakeup = asyncio.Event()
        self._drained = asyncio.Event()
        self._settled = asyncio.Event()  # `spoken` is known
        self._pump: asyncio.Task[None] | None = None
        self._acked_ms = 0.0

    # ---- text ----------------------------------------------------------------------------------------------------

    async def send(self, delta: str) -> None:
        """Send text to speak, in any split. Waits while the network is slower than the text.

        Raises:
            ContextClosed: after `end`.
            RealtimeTTSError: the server refused an earlier piece (`TextTooLong`, say), or the context has failed.
        """
        self._raise_refusal()
        self._session._send_text(self, delta)
        await self._session._drain()

    async def flush(self) -> None:
        """Speak the text sent so far, even if no sentence has ended."""
        self._raise_refusal()
        self._session._flush(self)
        await self._session._drain()

    async def end(self) -> None:
        """End the text. A second call has no effect.

        Raises: as `send`; the text has ended nevertheless.
        """
        self._session._end(self)
        self._raise_refusal()
        await self._session._drain()

    async def commit(self, text: str | None = None) -> None:
        """Speak a draft: `text` in place of the draft's, or without it what was sent. Speech begins within milliseconds
        if the first clause is the same and the server had time to make it; `done.draft_used` tells.

        A text that was complete when the draft was opened is complete with `text` too; otherwise more may be sent.

        Raises:
            ValueError: the context is not a draft, or was committed before.
            TextTooLong: `text` is longer than the server allows; the draft is unchanged.
            RealtimeTTSError: as `send`.
        """
        self._raise_refusal()
        self._session._commit(self, text)
        await self._session._drain()

    # ---- barge-in ------------------------------------------------------------------------------------------------

    async def cancel(self) -> Spoken:
        """Stop at once. Iteration yields no packet after the call, even if packets have arrived.

        Return what the listener has heard, computed by the server from the last `playback` report; if the connection is
        lost meanwhile, computed by the client. Also works for a context that is done but still playing.
        """
        self.cancel_nowait()
        await self._settled.wait()
        if self.spoken is None:
            raise AssertionError("a settled context knows what was spoken")
        return self.spoken

    def cancel_nowait(self) -> None:
        """Cancel without waiting for the result."""
        if self._cancelled or self._settled.is_set():
            self._stop()
            return
        self._cancelled = True
        played_ms = self.played_ms
        self._stop()
        self._session._cancel(self, played_ms)

    # ---- interruptions that may be none -----------------------------------------------------------------------------

    async def hold(self, at: Literal["word", "now"] = "word") -> Spoken:
        """Hold the speech at the end of the word that is heard, or `now`. Return what is heard until there.

        `held_ms` is set when this call begins: your player stops there, and drops what it has of the time after.
        Iteration gives the packets up to there, and pauses. A context that the server has sent completely can be held
        as long as it is playing.

        Raises:
            ContextClosed: the context is over. RealtimeTTSError: the session has ended.
        """
        self._raise_over()
        if self.held_ms is None:
            played_ms = self.played_ms
            ends_ms = (word.end_ms for word in self.words if word.start_ms < played_ms < word.end_ms)
            self._hold_at(next(ends_ms, played_ms) if at == "word" else played_ms)
        assert self.held_ms is not None
        self._session._hold(self, self.held_ms)
        spoken: Spoken = await self._ask()
        return spoken

    async def release(self, clause_after_ms: float = 2000.0) -> float:
        """Go on with the next word, or with the beginning of its clause if the hold lasted `clause_after_ms`.

        Return the position in ms at which speech goes on. Iteration gives the packets from there on again, without
        their words; if it had ended, iterate once more.

        Raises:
            ContextClosed: the context is over, for instance because it was held for too long.
            RealtimeTTSError: the session has ended.
        """
        self._raise_over()
        self._session._release(self, clause_after_ms)
        from_ms: float = await self._ask()
        return from_ms

    def _hold_at(self, position_ms: float) -> None:
        """Hold at a position, or at the end of the audio: the last word's end is an estimate, and may lie behind it."""
        self.clock.hold(position_ms if self.done is None else min(position_ms, self.done.audio_ms))

    @property
    def held_ms(self) -> float | None:
        """Position at which the context is held, in ms, or None."""
        return self.clock.held_ms

    async def _ask(self) -> Any:
        if self._answer is None or self._answer.done():
            self._answer = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._answer)

    def _held(self, spoken: Spoken) -> None:
        """Stop no later than the server, which may know by now that the word ends sooner."""
        if self.held_ms is not None:
            self._hold_at(min(self.held_ms, spoken.played_ms))
        self._answered(spoken)

    def _answered(self, answer: object) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _unanswered(self, error: RealtimeTTSError) -> None:
        self.clock.held_ms = None
        self._wakeup.set()  # iteration goes on: nothing will release it
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # its caller may have been cancelled

    def _go_on(self, from_ms: float) -> None:
        again: list[Packet] = []
        while self._recent and self._recent[-1].start_ms + self._recent[-1].duration_ms > from_ms:
            again.append(dataclasses.replace(self._recent.pop(), words=()))
        self._packets.extendleft(again)
        self.queued_ms += sum(packet.duration_ms for packet in again)
        self.clock.release(again[-1].start_ms if again else min(from_ms, self.clock.taken_ms), self._session._now())
        self._wakeup.set()
        self._answered(from_ms)

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished or self._packets:
            self.cancel_nowait()

    # ---- audio ---------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Packet]:
        return self

    async def __anext__(self) -> Packet:
        while not self._has_next:
            if self._finished and self.held_ms is None:
                self._raise_end()
            self._wakeup.clear()
            try:
                await self._wakeup.wait()
            except asyncio.CancelledError:
                self.cancel_nowait()
                raise
        packet = self._packets.popleft()
        self._recent.append(packet)
        while len(self._recent) > 1 and self._recent[0].start_ms + _REPEATED_MS < self.played_ms:
            self._recent.popleft()
        self.queued_ms -= packet.duration_ms
        self._drained.set()
        self.clock.take(packet.duration_ms, self._session._now())
        self._session._taken(self)
        return packet

    @property
    def _has_next(self) -> bool:
        return bool(self._packets) and (self.held_ms is None or self._packets[0].start_ms < self.held_ms)

    @overload
    def pcm(self, dtype: Literal["float32"] = "float32") -> AsyncIterator[npt.NDArray[np.float32]]: ...
    @overload
    def pcm(self, dtype: Literal["int16"]) -> AsyncIterator[npt.NDArray[np.int16]]: ...
    async def pcm(self, dtype: Literal["float32", "int16"] = "float32") -> AsyncIterator[npt.NDArray[Any]]:
        """Yield decoded samples, [num_samples] mono at `sample_rate`, one array for each packet.

        Raises (while iterated):
            MissingDependency: for Opus without PyAV. ValueError: another dtype.
        """
        if dtype not in ("float32", "int16"):
            raise ValueError("dtype must be float32 or int16")
        decoder: decoding.Decoder | None = None
        async for packet in self:
            decoder = decoder or decoding.Decoder(packet.format)
            samples = decoder.decode(packet.payload)
            yield samples if dtype == "float32" else decoding.to_int16(samples)

    @property
    def text(self) -> str:
        """All text sent so far, without what the server refused. Words' offsets count in it."""
        return "".join(self._sent)

    @property
    def sample_rate(self) -> int:
        """Rate of decoded samples, Hz; known after the first packet (48,000 for Opus at any requested rate)."""
        if self.audio is None:
            raise RuntimeError("the server has not accepted the context yet: read some audio first")
        return decoding.output_rate_hz(self.audio)

    @property
    def played_ms(self) -> float:
        """Playback position in ms, as far as the client knows."""
        return self.clock.position_ms(self._session._now())

    # ---- from the session ----------------------------------------------------------------------------------------

    def _started(self, voice: str, seed: int, audio: AudioFormat) -> None:
        self.voice, self.seed, self.audio = voice, seed, audio

    def _restarted(self, received_ms: float) -> None:
        for words in (self.words, self._pending_words):
            words[:] = [word for word in words if word.start_ms < received_ms]

    def _add_words(self, words: tuple[Word, ...], previous_end_ms: float | None) -> None:
        for known in (self.words, self._pending_words):
            if previous_end_ms is not None and known:
                known[-1] = dataclasses.replace(known[-1], end_ms=previous_end_ms)
        self.words.extend(words)
        self._pending_words.extend(words)

    def _add_packet(self, packet: Packet) -> None:
        if self._finished:
            return
        if self._pending_words:
            words, self._pending_words = tuple(self._pending_words), []
            packet = Packet(packet.payload, packet.pts_samples, packet.num_samples, packet.format, words)
        self._packets.append(packet)
        self.queued_ms += packet.duration_ms
        self._wakeup.set()

    def _finish(self, done: Done) -> None:
        self.done = done
        if self.held_ms is not None:
            self._hold_at(self.held_ms)
        self._end_iteration()

    def _settle(self, spoken: Spoken) -> None:
        """Record the result of a cancel by the program or by the end of the session."""
        self.spoken = spoken
        self._unanswered(ContextClosed("the context was cancelled"))
        self._stop()
        self._settled.set()

    def _fail(self, error: RealtimeTTSError, spoken: Spoken | None) -> None:
        self.spoken = spoken or self._estimate()
        if not self._cancelled:
            self._error = error
        self._unanswered(error)
        self._end_iteration()
        self._settled.set()

    def _source_failed(self, error: Exception) -> None:
        """Cancel the context because its text source raised an error."""
        self.cancel_nowait()
        self._cancelled = False  # the program did not cancel: iteration must raise
        self._source_error = error

    def _refuse(self, error: RealtimeTTSError, span: tuple[int, int] | None = None) -> None:
        self._refusal = error
        if span is not None:
            text = self.text
            self._sent[:] = [text[: span[0]] + text[span[1] :]]

    # ---- inside --------------------------------------------------------------------------------------------------

    def _estimate(self) -> Spoken:
        """Estimate what was heard, from the words and the playback position known to the client."""
        played_ms = self.played_ms
        heard = [word for word in self.words if word.end_ms <= played_ms]
        chars = heard[-1].end if heard else 0
        return Spoken(played_ms, self.text[:chars], chars)

    def _stop(self) -> None:
        self._packets.clear()
        self._recent.clear()
        self.clock.held_ms = None
        self._pending_words.clear()
        self.queued_ms = 0.0
        self._end_iteration()

    def _end_iteration(self) -> None:
        self._finished = True
        self._wakeup.set()
        self._drained.set()
        if self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()

    def _raise_over(self) -> None:
        """Raise the error that has ended the context or its session."""
        if (error := self._error or self._session._error) is not None:
            raise error

    def _raise_refusal(self) -> None:
        if self._error is not None:
            raise self._error
        if self._source_error is not None:
            raise self._source_error
        if self._refusal is not None:
            error, self._refusal = self._refusal, None
            raise error

    def _raise_end(self) -> None:
        if not self._cancelled:
            self._raise_refusal()
        raise StopAsyncIteration
