"""The engine of one device. `step()` takes messages in, runs one step and sends messages out."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from realtime_tts.contract import frames
from realtime_tts.engine.adapters import AdapterStore
from realtime_tts.engine.continuity import Continuity
from realtime_tts.engine.core.block_pool import BLOCK_SIZE, CachedPrefixes, chain_hashes, prefix_root
from realtime_tts.engine.core.request import Finished, FinishReason, Request, StepFlags, StepPlan
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.end_detector import AUDIBLE_FAULTS
from realtime_tts.engine.opening_list import OpeningList
from realtime_tts.engine.opening_memory import OpeningMemory
from realtime_tts.engine.runtime.layout import StepLayout
from realtime_tts.engine.runtime.outputs import SentOutputs
from realtime_tts.engine.runtime.runner import ModelRunner, StepResult
from realtime_tts.engine.runtime.stages import StageClock
from realtime_tts.engine.segment import EngineSegment, content_of, make_segment, spoken_chars, text_size
from realtime_tts.engine.speech_output import SpeechOutput
from realtime_tts.engine.voices import EngineVoiceCache
from realtime_tts.errors import (
    AdapterNotFound,
    Draining,
    EngineOutOfMemory,
    InvalidRequest,
    RealtimeTTSError,
)
from realtime_tts.model.adapted import AdapterBank
from realtime_tts.model.adapter_file import AdapterWeights
from realtime_tts.model.attention import AttentionBackend
from realtime_tts.model.checkpoint import LoadedModel

logger = logging.getLogger(__name__)

_OOM_LIMIT, _OOM_WINDOW_S = 3, 60.0
_NAP_S = 0.001  # interval of the checks whether a step is over
_LEAD_RATE = 0.05  # rate at which an unused lead shrinks
_DRAFT = "/draft"  # added to a context's id for its draft's


@dataclasses.dataclass(frozen=True, slots=True)
class _Flight:
    """A step that was launched on the device."""

    plan: StepPlan
    layout: StepLayout
    segments: dict[str, EngineSegment]
    sent: SentOutputs
    started_s: float


class Engine:
    """Engine of one device. Not thread-safe except for `post`: one thread calls `step`.

    Args:
        emit: called with each outgoing message, on the engine's thread; must not block.
        clock: seconds, monotonic.
        stages: receives the stages of the steps.
        backend: attention backend; None: plain torch.
        bank: the model's room for adapters; None: it has none.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        config: SchedulerConfig,
        emit: Callable[[frames.Message], None],
        clock: Callable[[], float] = time.monotonic,
        stages: StageClock | None = None,
        backend: AttentionBackend | None = None,
        bank: AdapterBank | None = None,
    ) -> None:
        self.loaded, self.config = loaded, config
        self.runner = ModelRunner(loaded, config, backend, stages, bank)
        self._begin(emit)
        self.listed = OpeningList()
        self.voices = EngineVoiceCache(loaded)
        self.adapters = AdapterStore(bank)
        self.continuity = Continuity(loaded)
        self.is_draining = False  # set by the worker: no new context from now on
        self._clock = clock
        self._inbox: queue.SimpleQueue[frames.Message | AdapterWeights] = queue.SimpleQueue()
        self._segments: dict[str, EngineSegment] = {}
        self._flight: _Flight | None = None  # a step that was launched before the previous one was accounted for
        self._over_s: float | None = None  # end of the last step, if streams have waited for the next one since then
        self._lead_s = 0.0  # time to lay out and launch a step
        self._out_of_memory_s: collections.deque[float] = collections.deque(maxlen=_OOM_LIMIT)

    # ---- the loop ------------------------------------------------------------------------------------------------

    def post(self, message: frames.Message | AdapterWeights) -> None:
        """Queue a message, or an adapter that was read, from any thread; the next `step` takes it in."""
        self._inbox.put(message)

    def step(self) -> bool:
        """Take messages in, advance every scheduled stream by one patch, and send the results.

        Returns whether there was a step; if not, `idle_s` returns how long there will be none.

        Raises:
            EngineOutOfMemory: for the third time within a minute; the worker must be restarted.
        """
        self._handle_messages()
        self.output.send_due(self._clock())
        self._speak_listed()
        if news := self._prefixes.news(self._clock()):
            self.output.emit(frames.Prefixes(*news))
        flight, self._flight = self._flight, None
        if flight is None:
            plan = self.scheduler.schedule(self._clock())
            self._end_all(self.scheduler.take_ended())
            if not plan:
                self._over_s = None
                return self.listed.is_due or not self._inbox.empty()
            flight = self._launch(plan)
        if flight is not None:
            self._complete(flight)
        return True

    def _complete(self, flight: _Flight) -> None:
        """Wait for a step and account for it; before that, launch the next one if it is known already."""
        over_s = self._launch_next(flight) if self.runner.is_asynchronous else None
        try:
            result = self.runner.result(flight.layout, flight.sent)
        except EngineOutOfMemory as error:
            self._fail_step(flight.plan, error)
            return
        now = self._clock()
        over_s = now if over_s is None else over_s
        elapsed_s = over_s - self._began_s(flight)
        if self._over_s is not None:
            self.gap_s += max(0.0, flight.started_s - self._over_s) if result.gap_s is None else result.gap_s
        self._over_s = over_s
        self.num_steps += 1
        self.busy_s += elapsed_s
        self._step_times_s.append(elapsed_s)
        with self.output.together():
            flags = self._send_audio(result, flight.segments, now)
        self._end_all(self.scheduler.finish_step(flight.plan, flags, now, elapsed_s))
        while self.output.faulty:
            segment, finding = self.output.faulty.pop()
            name = segment.message.request_id
            if self._segments.get(name) is segment and (cut := self.output.cut(segment, finding, now)) is not None:
                self._segments[name] = cut
                self._memory.forget(cut)
                self.scheduler.rewind(cut.request, len(cut.patches), now)

    def _launch_next(self, flight: _Flight) -> float | None:
        """Launch the next step while the device computes one, so that it is never idle. This is done as late as
        possible, since a request that arrives later waits for two steps.

        Returns None, or, if the first step was over when the second had been launched, an early estimate of its end: a
        late one would lengthen the estimated step time and delay the next launch, too.
        """
        plan, cost, inbox = flight.plan, self.scheduler.cost, self._inbox
        if self.scheduler.owes_drafts:
            return None  # the next step is to have some
        size = plan.size
        began_s = self._began_s(flight)
        due_s = began_s + cost.lower_bound_s(size) - self._lead_s
        while (left_s := due_s - self._clock()) > 0 and not flight.sent.is_complete:
            with contextlib.suppress(queue.Empty):
                self._handle(inbox.get(timeout=min(left_s, _NAP_S)))
        now = self._clock()
        ahead = self.scheduler.ahead(plan, now, max(0.0, began_s + cost.step_s(*size) - now))
        self._end_all(self.scheduler.take_ended())
        if ahead:
            self._flight = self._launch(ahead)
            took_s = self._clock() - now
            self._lead_s = max(took_s, self._lead_s + _LEAD_RATE * (took_s - self._lead_s))
        return now if flight.sent.is_complete else None

    def _began_s(self, flight: _Flight) -> float:
        """Return when the device began with it: at its launch or at the end of the previous step, the later of both."""
        return flight.started_s if self._over_s is None else max(flight.started_s, self._over_s)

    def _launch(self, plan: StepPlan) -> _Flight | None:
        """Launch a step. Return None if there was no memory for it; its requests have then ended."""
        layout = self.runner.prepare(plan, self._segments)
        started_s = self._clock()
        segments = {name: self._segments[name] for name in plan.request_ids}
        try:
            return _Flight(plan, layout, segments, self.runner.launch(layout), started_s)
        except EngineOutOfMemory as error:
            self._fail_step(plan, error)
            return None

    def reset_statistics(self) -> None:
        """Reset counters, times and cached prefixes, but keep the cost of a step; no request may be running."""
        self._begin(self.output.emit, self.scheduler.cost.restarted())

    def _begin(self, emit: Callable[[frames.Message], None], cost: StepCost | None = None) -> None:
        """Begin without requests, cached prefixes, openings and counts."""
        self.scheduler = Scheduler(self.config, self._prepare, cost, self._remembered)
        self.output = SpeechOutput(self.loaded, self.scheduler, emit)
        self._prefixes = CachedPrefixes(self.scheduler.pool)
        self._memory = OpeningMemory(self.loaded.name, self.config.max_opening_bytes, self.config.patch_s)
        self.num_steps = 0
        self.busy_s = 0.0  # time of all steps together
        self.gap_s = 0.0  # idle time of the device between steps while streams waited
        self._step_times_s: collections.deque[float] = collections.deque(maxlen=256)

    def idle_s(self) -> float | None:
        """Return, after a `step` without work, the seconds until there may be some; None: not before a message."""
        now = self._clock()
        wakeups_s = self.output.due_in_s(now)
        if (wakeup_s := self.scheduler.next_wakeup_s(now)) is not None:
            wakeups_s.append(wakeup_s)
        return max(0.0, min(wakeups_s)) if wakeups_s else None

    @property
    def is_idle(self) -> bool:
        """True if nothing is running, waiting or unread."""
        return not self._segments and self._flight is None and self._inbox.empty()

    # ---- messages in ---------------------------------------------------------------------------------------------

    def _handle_messages(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._handle(self._inbox.get_nowait())

    def _handle(self, message: frames.Message | AdapterWeights) -> None:
        if isinstance(message, frames.Generate):
            self._end_draft(message.context_id)
            self._submit(_draft_of(message, self._memory.drafts.max_patches) if message.draft else message)
        elif isinstance(message, frames.Extend):
            self._extend(message)
        elif isinstance(message, frames.Cancel):
            if finished := self.scheduler.cancel(message.request_id):
                self._end(finished)
        elif isinstance(message, frames.CloseContext):
            self._end_all(self.scheduler.close_context(message.context_id))
            self._end_draft(message.context_id)
            self.continuity.forget(message.context_id)
        elif isinstance(message, frames.Playback):
            self.scheduler.playback(message.context_id, message.played_ms / 1000, message.paused, self._clock())
        elif isinstance(message, frames.SetPriority):
            self.scheduler.set_priority(message.context_id, message.priority)
        else:
            self._handle_voice_or_adapter(message)

    def _handle_voice_or_adapter(self, message: frames.Message | AdapterWeights) -> None:
        if isinstance(message, frames.AddVoice):
            self._add_voice(message)
        elif isinstance(message, frames.RemoveVoice):
            self._remove_voice(message)
        elif isinstance(message, AdapterWeights):
            self._add_adapter(message)
        elif isinstance(message, frames.RemoveAdapter):
            self._remove_adapter(message)
        elif isinstance(message, frames.Opening):
            *parts, whole = message.texts or [""]
            begins = [part for part in parts if spoken_chars(part) >= self.config.begin_chars]
            self.listed.add(dataclasses.replace(message, texts=[*begins, whole]))

    def _submit(self, message: frames.Generate, *, is_listed: bool = False) -> None:
        try:
            if message.request_id in self._segments:
                raise InvalidRequest("the request id is in use", field="request_id")
            if self.is_draining and not self.scheduler.has_context(message.context_id):
                raise Draining("the worker is shutting down")
            segment = make_segment(
                message, self.loaded, self.voices, self.adapters, self.continuity, self.config.patch_s
            )
            if segment is None:  # nothing in the text can be spoken
                self.output.answer(message, frames.Done(message.request_id, FinishReason.STOP.value))
                return
            begins = not self.scheduler.has_context(message.context_id)
            self.scheduler.add(segment.request, self._clock())
        except Exception as error:  # one unusual text must not end all other streams
            reason = refusal(error, RealtimeTTSError("the request could not be taken"))
            self.output.answer(message, frames.Failed(message.request_id, *reason))
            return
        self._segments[message.request_id] = segment
        if begins:
            segment.opening = self._memory.place(segment, is_ahead=is_listed or message.draft)
        if segment.opening is not None and not message.draft:
            segment.request.may_recall = True
            self._recall()

    def _end_draft(self, context_id: str) -> None:
        """End a context's draft; what was made of it stays in memory."""
        self._end_all(self.scheduler.close_context(context_id + _DRAFT))

    def _extend(self, message: frames.Extend) -> None:
        segment = self._segments.get(message.request_id)
        if segment is not None:
            self._take_text(segment, message.text, message.final)
            if segment.request.may_recall:
                self._recall()

    def _take_text(self, segment: EngineSegment, text: str, final: bool) -> None:
        """Note more text of a request; the scheduler decides when it is read."""
        request_id, supply = segment.request.request_id, segment.request.supply
        try:
            if supply.is_final or not text.startswith(segment.text):
                raise InvalidRequest("a text can only be extended, and until it is final", field="text")
            size = text_size(segment.message, text, self.loaded, segment.alone, self.continuity)
            self.scheduler.extend(request_id, size.num_chars, final, size.min_prefill, size.max_patches)
        except Exception as error:
            reason = refusal(error, RealtimeTTSError("the text could not be extended"))
            self._end(self.scheduler.end(request_id, FinishReason.FAILED, *reason))
            return
        finally:
            self._end_all(self.scheduler.take_ended())  # drafts that made room, before a message that concerns them
        segment.text = text
        if final and size.num_tokens == 0:  # nothing in it can be spoken
            self._end(self.scheduler.end(request_id, FinishReason.STOP))

    # ---- openings ------------------------------------------------------------------------------------------------

    def _speak_listed(self) -> None:
        """Begin with the next listed opening. One that is in memory to its end needs no step."""
        while self.listed.is_due:
            message = self.listed.next()
            self._submit(message, is_listed=True)
            if self.listed.runs and message.request_id not in self._segments:  # it was refused
                self.listed.ended()

    def _extend_listed(self, segment: EngineSegment) -> None:
        """Give a listed opening the text that arrives after the patch that was just made."""
        if not _is_listed(segment):
            return
        request, num_patches = segment.request, len(segment.patches)
        position = request.supply.position
        bound = self.config.text_bound(num_patches) + (
            num_patches * self.config.chars_per_patch if position is None else position
        )
        may_go_on = num_patches < request.max_patches - 1
        more = self.listed.more(num_patches, lambda text: may_go_on and spoken_chars(text) >= bound)
        if more is not None and more != (segment.text, False):  # the whole text may be no longer than its last part
            self._take_text(segment, *more)

    def _recall(self) -> None:
        """Send what is in memory now."""
        self.scheduler.recall(self._clock())
        self._end_all(self.scheduler.take_ended())

    def _remembered(self, request: Request) -> StepFlags | None:
        """Send a request's next patch from memory and return its flags; None: it is not there."""
        segment = self._segments[request.request_id]
        if (remembered := self._memory.next(segment)) is None:
            return None
        flags = self.output.send(segment, remembered.audio, StepFlags(remembered.stop), self._clock())
        self._extend_listed(segment)
        return flags

    # ---- inputs --------------------------------------------------------------------------------------------------

    def _prepare(self, request: Request) -> None:
        """Lay out a request's input, when its predecessor has ended and it is known what it continues from. Called
        again when more of its text is to be read; the surroundings of the text then stay the same.

        Beyond its beginning, an open text neither adds blocks to the prefix cache nor uses cached ones, since these
        blocks will be overwritten. Speech made in this context is not cached either: no other request can use it.
        """
        segment = self._segments[request.request_id]
        message, voice = segment.message, segment.voice
        if self.scheduler.reads_next(request):
            segment.read_text = segment.text
        text = segment.read_text
        if segment.conditioning is None:
            room = self.config.max_request_positions - request.max_positions + request.min_prefill
            segment.conditioning = self.continuity.next(text, segment.alone, message.context_id, room)
        conditioning = segment.conditioning
        source = self.continuity.lay_out(conditioning, text, segment.patches)
        if not segment.patches:
            segment.first_context = source.context
        elif request.num_remembered == request.num_patches:  # the device begins after these patches
            context = np.concatenate((segment.first_context, np.stack(segment.patches)))
            source = dataclasses.replace(source, context=context[-self.runner.num_context_patches :])
        request.num_kept = _num_common(segment.input.token_ids, source.token_ids) if request.num_prefill else 0
        request.num_prefill = source.num_positions
        segment.input = source
        num_fixed = source.num_positions - len(segment.patches) if request.supply.is_final else source.text_start
        if conditioning.prompt is not voice.conditioning.prompt:
            num_fixed = min(num_fixed, source.spoken_end)
        adapter = segment.adapter.digest if segment.adapter is not None else ""
        root = prefix_root(self.loaded.name, adapter, message.tenant)
        request.hashes = hashes = chain_hashes(root, content_of(source, num_fixed))
        voice.note_hashes(hashes)
        self._note_prefixes(segment)

    def _note_prefixes(self, segment: EngineSegment) -> None:
        """Note the prefixes of this input that other requests may share; not what its own context has added."""
        conditioning, own, source = segment.conditioning, segment.voice.conditioning, segment.input
        assert conditioning is not None
        if conditioning.reference is not own.reference or conditioning.prompt is not own.prompt:
            return
        keys, hashes = frames.prefix_keys(segment.message), segment.request.hashes
        if segment.message.voice:
            end = source.text_start if conditioning.instructions else source.spoken_start
            self._prefixes.note(keys[0], hashes[: end // BLOCK_SIZE])
        if conditioning.instructions:
            self._prefixes.note(keys[-1], hashes[: source.spoken_start // BLOCK_SIZE])

    def _add_voice(self, message: frames.AddVoice) -> None:
        try:
            self.voices.add(message)
        except RealtimeTTSError as error:
            self.output.emit(frames.VoiceFailed(message.voice_id, error.code, error.message))

    def _remove_voice(self, message: frames.RemoveVoice) -> None:
        self._memory.forget_voice(message.voice_id)
        if voice := self.voices.remove(message.voice_id):
            self.scheduler.pool.forget_hashes(voice.hashes)

    def _add_adapter(self, adapter: AdapterWeights) -> None:
        try:
            loaded = self.adapters.add(adapter)
        except RealtimeTTSError as error:
            self.output.emit(frames.AdapterFailed(adapter.name, error.code, error.message))
        else:
            self.output.emit(frames.AdapterAdded(loaded.name, adapter.rank, loaded.digest))

    def _remove_adapter(self, message: frames.RemoveAdapter) -> None:
        """End the requests that use an adapter, since without it the voice would change, and remove it."""
        error = AdapterNotFound(f"the adapter {message.name!r} was unloaded")
        for name, segment in list(self._segments.items()):
            if segment.adapter is not None and segment.adapter.name == message.name:
                self._end(self.scheduler.end(name, FinishReason.FAILED, error.code, error.message))
        self.adapters.remove(message.name)

    # ---- messages out --------------------------------------------------------------------------------------------

    def _send_audio(
        self, result: StepResult, segments: Mapping[str, EngineSegment], now: float
    ) -> dict[str, StepFlags]:
        """Send the audio. Return the step's flags, with each stop corrected by the place in the text. segments: those
        of the step; some may have ended since."""
        flags, present = dict(result.flags), self._segments
        for audio in result.audio:
            name = audio.name
            segment, flag = present.get(name), flags[name]
            if segment is None or segment is not segments[name] or not flag.finite:
                continue
            is_opening = segment.opening is not None
            if is_opening:
                self._memory.keep(segment, audio, flag.stop)
            flags[name] = self.output.send(segment, audio, flag, now)
            if is_opening:
                self._extend_listed(segment)
        return flags

    def _end_all(self, ended: Iterable[Finished]) -> None:
        for finished in ended:
            self._end(finished)

    def _end(self, finished: Finished) -> None:
        request = finished.request
        segment = self._segments.pop(request.request_id)
        self.output.end(segment, is_cancelled=finished.reason is FinishReason.CANCELLED)
        if _is_listed(segment):
            self.listed.ended()
            self._inbox.put(frames.CloseContext(request.context_id))
        if request.is_draft:
            self.scheduler.close_context(request.context_id)
        if segment.voice.is_removed:
            self.scheduler.pool.forget_hashes(request.hashes)
        if finished.reason is FinishReason.FAILED:
            unused = [block for block in request.blocks if self.scheduler.pool.is_free(block)]
            self.runner.clear_blocks(unused)
            reason = finished.error_code, finished.error_message
            self.output.answer(segment.message, frames.Failed(request.request_id, *reason))
            return
        detector = segment.end_detector
        if any(detector.faults[name] for name in AUDIBLE_FAULTS):
            self._memory.forget(segment)
        if request.is_draft:
            return
        self.output.count(segment)
        if finished.reason is not FinishReason.CANCELLED:
            spoken = segment.patches[: detector.num_sound] if detector.faults["ends_cut"] else segment.patches
            self.continuity.spoken(request.context_id, segment.text, segment.voice, spoken)
        self.output.emit(
            frames.Done(
                request.request_id,
                finished.reason.value,
                num_patches=len(segment.patches),
                num_remembered=request.num_remembered,
                num_samples=segment.num_samples,
                prefill_positions=request.num_prefill,
                cached_positions=request.num_cached,
                extensions=request.num_extensions,
                extended_positions=request.num_extended_positions,
                text_waits=request.num_text_waits,
                text_wait_ms=1000 * request.text_wait_s,
                **cast("Any", detector.faults),
            )
        )

    def _fail_step(self, plan: StepPlan, error: EngineOutOfMemory) -> None:
        """End the requests of a step without memory; others continue. Raise at the third time within a minute."""
        logger.error("out of memory in a step over %d streams", len(plan.request_ids))
        self._end_all(self.scheduler.fail(plan.request_ids, error.code, error.message))
        now = self._clock()
        self._out_of_memory_s.append(now)
        if len(self._out_of_memory_s) == _OOM_LIMIT and now - self._out_of_memory_s[0] < _OOM_WINDOW_S:
            raise error

    @property
    def quickest_step_s(self) -> float:
        """Duration of the quickest of the latest steps, of which there must be one, seconds."""
        return min(self._step_times_s)

    def stats(self) -> frames.Stats:
        """Return a heartbeat. May be called from another thread (it reads counters only)."""
        scheduler, times_s = self.scheduler, list(self._step_times_s)
        num_parked, num_awaiting = scheduler.num_parked, scheduler.num_awaiting_text
        fixed_s, stream_s, position_s = scheduler.cost.weights[:3]
        return frames.Stats(
            num_steps=self.num_steps,
            running=scheduler.num_active - num_parked - num_awaiting,
            waiting=scheduler.num_waiting,
            parked=num_parked,
            free_blocks=scheduler.pool.num_available,
            num_blocks=scheduler.pool.num_blocks,
            cached_blocks=scheduler.pool.num_cached,
            free_slots=scheduler.num_free_slots,
            real_time_streams=scheduler.num_real_time_streams,
            contexts=scheduler.num_contexts,
            awaiting_text=num_awaiting,
            step_ms=1000 * sum(times_s) / len(times_s) if times_s else 0.0,
            busy_ms=1000 * self.busy_s,
            gap_ms=1000 * self.gap_s,
            fixed_ms=1000 * fixed_s,
            stream_ms=1000 * stream_s,
            position_ms=1000 * position_s,
            extensions=scheduler.num_extensions,
            extended_positions=scheduler.num_extended_positions,
            text_waits=scheduler.num_text_waits,
            opening_hits=self._memory.openings.num_hits,
            draft_hits=self._memory.drafts.num_hits,
            opening_bytes=self._memory.num_bytes,
            **cast("Any", self.output.faults),
        )


def refusal(error: Exception, otherwise: RealtimeTTSError) -> tuple[str, str]:
    """Return the code and the message that a client receives for an error: those of `otherwise`, and a line in the log,
    for an error that is not typed."""
    if not isinstance(error, RealtimeTTSError):
        logger.error("%s", otherwise.message, exc_info=error)
        error = otherwise
    return error.code, error.message


def _draft_of(message: frames.Generate, max_patches: int) -> frames.Generate:
    """Return the request for a draft, in a context of its own."""
    name = message.context_id + _DRAFT
    return dataclasses.replace(message, request_id=name, context_id=name, paced=False, max_patches=max_patches)


def _is_listed(segment: EngineSegment) -> bool:
    return segment.opening is not None and segment.opening.is_ahead and not segment.opening.is_draft


def _num_common(before: Sequence[int], after: Sequence[int]) -> int:
    """Return the length of the common prefix of two inputs of one segment. They differ first in the text, never in
    audio before it."""
    pairs = zip(before, after, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))
