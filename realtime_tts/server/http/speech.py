"""Speech over plain HTTP: one text in, one stream of bytes out, produced as fast as the client reads.

A request is a context without a session. It holds a slot, and counts and is limited as a session with one context. The
engine stays a few seconds ahead of the socket, and stops within one step after the client disconnects.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable

from realtime_tts.audio.pipeline import SpeechStream
from realtime_tts.contract.speech_params import MAX_INSTRUCTION_CHARS
from realtime_tts.dialects.speech_request import Chunk, SpeechRequest, Total
from realtime_tts.errors import Draining, InternalError, RealtimeTTSError, TextTooLong, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.logs import log_crash, log_event
from realtime_tts.server.metrics import PlaybackEstimate
from realtime_tts.session.alignment import WordAligner
from realtime_tts.session.context import check_added
from realtime_tts.session.messages import TimedWord
from realtime_tts.session.settings import Choices, ContextSettings
from realtime_tts.speech.speaker import Piece, Speaker
from realtime_tts.speech.text_source import TextSource, check_whole, speak_text, speaking
from realtime_tts.text.planner import Segment
from realtime_tts.text.skipped import describe_ignored, describe_skipped

# Assumed lead of a client that reads at once: too long for the engine to raise its priority, too short to park it
# (`park_low_s` of the scheduler).
KEPT_MS = 1_500.0
# Instructions up to the end of the last word that fits, or as many characters of a single word.
_FITTING_WORDS = re.compile(rf"(?s).{{0,{MAX_INSTRUCTION_CHARS}}}(?!\S)|.{{{MAX_INSTRUCTION_CHARS}}}")


def heard_ms(player: PlaybackEstimate, now: float) -> float:
    """Return the playback position, at `now` in seconds, of a client that reports none.

    The client is assumed to play in real time from its first audio on. If it reads faster, to fill a file or a buffer,
    all but the last `KEPT_MS` of the audio that it took counts as played.

    So the engine produces speech as fast as it is read, with the usual priority if time is short, and stops a few
    seconds ahead of a client that does not read.
    """
    taken_ms = 1000 * player.sent_s
    return max(1000 * player.position_s(now), taken_ms - KEPT_MS)


class HttpSpeech:
    """Speech of one text for one client: a `SlotOwner` of a slot; `chunks` may be iterated once.

    The caller must call `left` at the end; it does not block.

    Attributes:
        outcome: done, failed or cancelled (the client has gone); None before the end.

    Raises (at construction):
        EngineLost: no worker has become ready yet.
        TextTooLong, VoiceNotFound, ModelNotFound, InvalidRequest: the text or the parameters cannot be used.
    """

    lost_at = None

    def __init__(self, gateway: Gateway, client: Client, request: SpeechRequest) -> None:
        self.client, self.request = client, request
        self._gateway = gateway
        settings = _resolve(gateway, client, request)
        self.voice = settings.voice  # by its name
        self._settings = dataclasses.replace(settings, voice=gateway.voices.engine_id(settings.voice, client.tenant))
        self.voices = (self._settings.voice,)
        self.outcome: str | None = None
        self._begun_s = time.monotonic()
        self._ttfa_ms: float | None = None
        self._audio_ms = self._taken_ms = 0.0
        self._player, self._is_behind = PlaybackEstimate(), False
        self._aligner = WordAligner(settings.params["speed"])
        self._added_chars = 0  # by lexicons
        self._error: RealtimeTTSError | None = None
        self._planner = gateway.catalogue.defaults.make_planner(self._settings, client.tenant, fill_empty=True)
        context_id = "h_" + secrets.token_urlsafe(9)
        self._speaker = Speaker(gateway.engine, context_id, self._settings, tenant=client.tenant)

    # ---- as the owner of a slot -----------------------------------------------------------------------------------

    @property
    def num_speaking(self) -> int:
        return max(1, self._speaker.num_streams) if self.outcome is None else 0

    def drain(self) -> None:
        """Do nothing: the text is complete, so the speech ends by itself."""

    def voice_removed(self, voice_id: str) -> None:
        if self._settings.voice == voice_id:
            self._error = self._error or VoiceNotFound("the voice was removed", field="voice")
            self._speaker.close()

    def close(self, code: int, reason: str) -> None:
        """Stop at once, since the server is shutting down."""
        self._error = self._error or Draining("the server is shutting down")
        self._speaker.close()

    # ---- the speech ----------------------------------------------------------------------------------------------

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Yield the speech as it is produced; count and log its end.

        Raises:
            RealtimeTTSError: the engine could not produce it.
        """
        gateway, text, planner, speaker = self._gateway, self.request.text, self._planner, self._speaker
        # The encoder is set up in a thread, while the engine makes the first patch.
        rate_hz, audio = speaker.sample_rate_hz, self.request.audio
        provenance = gateway.provenance(self._settings.voice)
        making = gateway.encoders.run(lambda: SpeechStream(rate_hz, audio, provenance))
        try:
            await check_whole(text, self._settings.params["text_type"])
            is_begun = asyncio.Event() if planner.may_skip(text) else None
            work = speak_text(TextSource(text), planner, speaker, is_begun, self._charge_added)
            async with speaking(speaker, work):
                async for piece in speaker:
                    if is_begun is not None:
                        await is_begun.wait()
                    stream = await making
                    data = await self._encoded(functools.partial(stream.push, piece.pcm)) if piece.pcm else b""
                    self._audio_ms += 1000 * len(piece.pcm) / 2 / rate_hz
                    yield Chunk(data, self._place(piece))
                if self._error is None and self.outcome is None:
                    stream = await making
                    yield Chunk(await self._encoded(stream.finish), ())
            if self._error is not None:
                raise self._error
        except Exception as error:
            failure = error if isinstance(error, RealtimeTTSError) else InternalError("speaking failed")
            if failure is not error:
                log_crash("speech_crashed", error)
            self._ended("failed", failure)
            raise failure from (None if failure is error else error)
        finally:
            making.cancel()
        self._ended("done")

    def take_notices(self) -> list[str]:
        """Return the notices about text that is not spoken and markup without effect, in the part planned so far.

        The beginning is planned when the first chunk arrives.
        """
        skipped, ignored = self._planner.take_skipped(), self._planner.take_ignored()
        if skipped == [(0, len(self.request.text))]:
            return ["nothing in the text can be spoken, the answer is silence"]
        told = [describe_skipped(skipped)] if skipped else []
        return [*told, describe_ignored(ignored)] if ignored else told

    @property
    def total(self) -> Total:
        ready = self._gateway.catalogue.ready
        made_ms = self._audio_ms * self._settings.params["speed"]
        patches = round(made_ms / 1000 * ready.sample_rate / ready.patch_samples)
        return Total(len(self.request.text), self._audio_ms, patches)

    def _charge_added(self, segment: Segment) -> None:
        """Charge the characters that lexicons have added to a segment.

        Raises:
            TextTooLong: they have added too many to this text.
        """
        self._added_chars += segment.added_chars
        check_added(self._added_chars, self._gateway.settings.server.limits.max_text_chars)
        self._gateway.admission.charge_accepted(self.client, segment.added_chars)

    async def _encoded(self, encode: Callable[[], bytes]) -> bytes:
        # Resampling costs less than a change to a thread and back.
        return encode() if self.request.audio.is_plain else await self._gateway.encoders.run(encode)

    def _place(self, piece: Piece) -> tuple[TimedWord, ...]:
        if not self.request.rendering.wants_words:
            return ()
        self._aligner.put_segment(piece.segment)
        self._aligner.progress(piece.segment.index, piece.audio_ms, piece.done, piece.reached)
        return tuple(self._aligner.commit_until(self._audio_ms))

    # ---- the listener --------------------------------------------------------------------------------------------

    def taken(self) -> None:
        """Note that the socket has taken all the audio so far."""
        duration_s = (self._audio_ms - self._taken_ms) / 1000
        if not duration_s:
            return
        now, self._taken_ms = time.monotonic(), self._audio_ms
        if self._ttfa_ms is None:
            self._ttfa_ms = 1000 * (now - self._begun_s)
        is_late = self._player.sent(duration_s, now)
        self._tell_playback(now)
        self._gateway.metrics.sent_packets(self.request.audio.codec, 1, duration_s, is_late)

    def listens(self, keeps_up: bool) -> None:
        """Note whether the client reads fast enough."""
        self._is_behind = not keeps_up
        self._tell_playback(time.monotonic())

    def left(self) -> None:
        """Stop, since the client has disconnected. No effect after the end."""
        self._ended("cancelled")
        self._speaker.close()

    def _ended(self, outcome: str, error: RealtimeTTSError | None = None) -> None:
        """Count and log the end of the speech; only the first call has an effect."""
        if self.outcome is not None:
            return
        self.outcome, metrics = outcome, self._gateway.metrics
        code, num_chars = None if error is None else error.code, len(self.request.text)
        metrics.ended(outcome, num_chars=num_chars, ttfa_ms=self._ttfa_ms, code=code)
        metrics.barge_ins.inc(outcome == "cancelled")
        figures = {"audio_ms": self._audio_ms, "ttfa_ms": self._ttfa_ms, "characters": num_chars}
        log_event("http_speech_ended", outcome=outcome, code=code, **figures)

    def _tell_playback(self, now: float) -> None:
        if self._audio_ms:
            self._speaker.playback(heard_ms(self._player, now), self._is_behind)


def _resolve(gateway: Gateway, client: Client, request: SpeechRequest) -> ContextSettings:
    config = gateway.settings.server
    if (num_chars := len(request.text)) > (max_chars := config.limits.max_text_chars):
        raise TextTooLong(f"a text has at most {max_chars} characters, got {num_chars}", field="text")
    adapter = gateway.adapter_of(request.model)
    params = request.params | {"mode": "clause"}  # the text is whole
    if adapter is not None:
        params.setdefault("adapter", adapter)
    if ignores_instructions(gateway, request):
        del params["instructions"]
    elif "instructions" in params:
        params["instructions"] = _cut_instructions(params["instructions"])
    return gateway.catalogue.defaults.resolve(
        Choices(),
        Choices(request.voice, params=params),
        tenant=client.tenant,
        permissive=not config.voices.strict_ids,
        only_voices=client.voices,
    )


def ignores_instructions(gateway: Gateway, request: SpeechRequest) -> bool:
    """Return whether the request's instructions are ignored: the model takes none, and `strict_ids` is off."""
    takes_them = gateway.catalogue.ready.takes_instructions or gateway.settings.server.voices.strict_ids
    return "instructions" in request.params and not takes_them


def _cut_instructions(text: str) -> str:
    """Return instructions up to the last word that fits: other services take style guides of several paragraphs."""
    return next(_FITTING_WORDS.finditer(text.strip()))[0]
