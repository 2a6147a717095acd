"""The engine of one device. `step()` takes messages in, runs one step and sends messages out."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from realtime_tts.contract import frames
from realtime_tts.engine.adapters import AdapterStore
from realtime_tts.engine.continuity import Continuity
from realtime_tts.engine.core.block_pool import CachedPrefixes, chain_hashes, prefix_root
from realtime_tts.engine.core.request import Finished, FinishReason, Request, StepFlags, StepPlan
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.end_detector import AUDIBLE_FAULTS, PatchReading, TextFaults
from realtime_tts.engine.opening_list import OpeningList
from realtime_tts.engine.openings import MAX_DRAFT_S, MAX_OPENING_S, OpeningPlace, Openings
from realtime_tts.engine.proofreader import Fault, Finding
from realtime_tts.engine.runtime.layout import StepLayout
from realtime_tts.engine.runtime.outputs import SentOutputs, StepAudio, TextReading
from realtime_tts.engine.runtime.runner import ModelRunner, StepResult
from realtime_tts.engine.runtime.stages import StageClock
from realtime_tts.engine.segment import (
    EngineSegment,
    content_of,
    faded_out,
    from_onset,
    make_segment,
    spoken_chars,
    spoken_position,
    text_size,
)
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
        self.runner = ModelRunner(
            loaded.model,
            config,
            loaded.policy.default_steps,
            backend,
            text_head=loaded.policy.text_head,
            stages=stages,
            bank=bank,
        )
        self.scheduler = Scheduler(config, self._prepare, remembered=self._remembered)
        self._openings, self._drafts = self._memory_for(MAX_OPENING_S), self._memory_for(MAX_DRAFT_S)
        self.listed = OpeningList()
        self._prefixes = CachedPrefixes(self.scheduler.pool)
        self.voices = EngineVoiceCache(loaded)
        self.adapters = AdapterStore(bank)
        self.continuity = Continuity(loaded)
        self.num_steps = 0
        self.busy_s = 0.0  # time of all steps together
        self.gap_s = 0.0  # idle time of the device between steps while streams waited
        self._faults: collections.Counter[str] = collections.Counter()  # of all segments, as in `EndDetector.faults`
        self.is_draining = False
        self.emit, self._clock = emit, clock
        self._inbox: queue.SimpleQueue[frames.Message | AdapterWeights] = queue.SimpleQueue()
        self._segments: dict[str, EngineSegment] = {}
        self._keeping: dict[str, EngineSegment] = {}  # with patches kept back
        self._head_follows = False  # the text head has followed a whole text; a head that does not, mends nothing
        self._looks_at_s = 0.0  # when these are looked at again
        self._faulty: list[tuple[EngineSegment, Finding]] = []  # faults found in the current step
        self._flight: _Flight | None = None  # a step that was launched before the previous one was accounted for
        self._over_s: float | None = None  # end of the last step, if streams have waited for the next one since then
        self._lead_s = 0.0  # time to lay out and launch a step
        self._step_times_s: collections.deque[float] = collections.deque(maxlen=256)
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
        self._send_due()
        self._speak_listed()
        if news := self._prefixes.news(self._clock()):
            self.emit(frames.Prefixes(*news))
        flight, self._flight = self._flight, None
        if flight is None:
            plan = self.scheduler.schedule(self._clock())
            self._end_recalled()
            if not plan:
                self._over_s = None
                return self.listed.is_due or not self._inbox.empty()
            flight = self._launch(plan, self._prepared(plan))
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
        self._count_step(flight.plan, elapsed_s)
        flags = self._send_audio(result, flight.segments)
        for finished in self.scheduler.finish_step(flight.plan, flags, now, elapsed_s):
            self._end(finished)
        while self._faulty:
            segment, finding = self._faulty.pop()
            if self._segments.get(segment.message.request_id) is segment:
                self._mend(segment, finding, now)

    def _launch_next(self, flight: _Flight) -> float | None:
        """Launch the next step while the device computes one, so that it is never idle. This is done as late as
        possible, since a request that arrives later waits for two steps.

        Returns None, or, if the first step was over when the second had been launched, an early estimate of its end: a
        late one would lengthen the estimated step time and delay the next launch, too.
        """
        plan, cost, inbox = flight.plan, self.scheduler.cost, self._inbox
        if not (self.scheduler.others_fill_a_step(plan) or self.scheduler.following(plan, self._clock())):
            return None  # unknown before this one is over
        size = plan.size
        began_s = self._began_s(flight)
        due_s = began_s + cost.lower_bound_s(size) - self._lead_s
        while (left_s := due_s - self._clock()) > 0 and not flight.sent.is_complete:
            with contextlib.suppress(queue.Empty):
                self._handle(inbox.get(timeout=min(left_s, _NAP_S)))
        now = self._clock()
        if self.scheduler.others_fill_a_step(plan):
            ahead = self.scheduler.over_others(plan, now, max(0.0, began_s + cost.step_s(*size) - now))
        else:
            ahead = self.scheduler.following(plan, now)
        self._end_recalled()
        if ahead:
            self._flight = self._launch(ahead, self._prepared(ahead))
            took_s = self._clock() - now
            self._lead_s = max(took_s, self._lead_s + _LEAD_RATE * (took_s - self._lead_s))
        return now if flight.sent.is_complete else None

    def _began_s(self, flight: _Flight) -> float:
        """Return when the device began with it: at its launch or at the end of the previous step, the later of both."""
        return flight.started_s if self._over_s is None else max(flight.started_s, self._over_s)

    def _prepared(self, plan: StepPlan) -> StepLayout:
        is_before_others = self.scheduler.others_fill_a_step(plan)
        return self.runner.prepare(plan, self._segments, is_before_others=is_before_others)

    def _launch(self, plan: StepPlan, layout: StepLayout) -> _Flight | None:
        """Launch a step. Return None if there was no memory for it; its requests have then ended."""
        started_s = self._clock()
        segments = {name: self._segments[name] for name in plan.request_ids if name in self._segments}
        try:
            return _Flight(plan, layout, segments, self.runner.launch(layout), started_s)
        except EngineOutOfMemory as error:
            self._fail_step(plan, error)
            return None

    def _count_step(self, plan: StepPlan, elapsed_s: float) -> None:
        self.num_steps += 1
        self.busy_s += elapsed_s
        self._step_times_s.append(elapsed_s)

    def reset_statistics(self) -> None:
        """Reset counters, times and cached prefixes, but keep the cost of a step; no request may be running."""
        self.num_steps, self.busy_s, self.gap_s = 0, 0.0, 0.0
        self._faults.clear()
        self._step_times_s.clear()
        cost = StepCost(*self.scheduler.cost.weights)
        self.scheduler = Scheduler(self.config, self._prepare, cost, self._remembered)
        self._openings, self._drafts = self._memory_for(MAX_OPENING_S), self._memory_for(MAX_DRAFT_S)
        self._prefixes = CachedPrefixes(self.scheduler.pool)

    def idle_s(self) -> float | None:
        """Return, after a `step` without work, the seconds until there may be some; None: not before a message."""
        now = self._clock()
        wakeups_s = [max(self._spare_s(each, now), self._looks_at_s - now) for each in self._keeping.values()]
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
            self._submit(_draft_of(message, self._drafts.max_patches) if message.draft else message)
        elif isinstance(message, frames.Extend):
            self._extend(message)
        elif isinstance(message, frames.Cancel):
            if finished := self.scheduler.cancel(message.request_id):
                self._end(finished)
        elif isinstance(message, frames.CloseContext):
            for finished in self.scheduler.close_context(message.context_id):
                self._end(finished)
            self._end_draft(message.context_id)
            self.continuity.forget(message.context_id)
        elif isinstance(message, frames.Playback):
            self.scheduler.playback(message.context_id, message.played_ms / 1000, message.paused, self._clock())
        elif isinstance(message, frames.SetPriority):
            self.scheduler.set_priority(message.context_id, message.priority)
        elif isinstance(message, frames.Drain):
            self.is_draining = True
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
                self._tell(message, frames.Done(message.request_id, FinishReason.STOP.value))
                return
            begins = not self.scheduler.has_context(message.context_id)
            self.scheduler.add(segment.request, self._clock())
        except Exception as error:  # one unusual text must not end all other streams
            reason = refusal(error, RealtimeTTSError("the request could not be taken"))
            self._tell(message, frames.Failed(message.request_id, *reason))
            return
        self._segments[message.request_id] = segment
        if begins:
            segment.opening = self._place(segment, is_ahead=is_listed or message.draft)
        if segment.opening is not None and not message.draft:
            segment.request.may_recall = True
            self._recall()

    def _end_draft(self, context_id: str) -> None:
        """End a context's draft; what was made of it stays in memory."""
        for finished in self.scheduler.close_context(context_id + _DRAFT):
            self._end(finished)

    def _tell(self, message: frames.Generate, answer: frames.Message) -> None:
        """Send an answer to a request; a draft gets none."""
        if not message.draft:
            self.emit(answer)

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
            first = self.continuity.first(segment.voice, segment.instructions)
            size = text_size(segment.message, text, self.loaded, first, self.continuity)
            self.scheduler.extend(request_id, size.num_chars, final, size.min_prefill, size.max_patches)
        except Exception as error:
            reason = refusal(error, RealtimeTTSError("the text could not be extended"))
            self._end(self.scheduler.end(request_id, FinishReason.FAILED, *reason))
            return
        segment.text = text
        if final and size.num_tokens == 0:  # nothing in it can be spoken
            self._end(self.scheduler.end(request_id, FinishReason.STOP))

    # ---- openings ------------------------------------------------------------------------------------------------

    def _memory_for(self, audio_s: float) -> Openings:
        return Openings(self.config.max_opening_bytes, math.ceil(audio_s / self.config.patch_s))

    def _place(self, segment: EngineSegment, *, is_ahead: bool) -> OpeningPlace | None:
        """Return the place of a context's first segment among the drafts, or else among the openings if it has one."""
        message, voice = segment.message, segment.voice
        sound = (
            self.loaded.name,
            segment.adapter.digest if segment.adapter is not None else "",
            voice.voice_id,
            segment.instructions,
            repr((segment.noise_key, segment.cfg, segment.flow_steps)),
            message.encoding,
        )
        tenants = dict.fromkeys((message.tenant,) if voice.is_added else (message.tenant, ""))
        roots = tuple(prefix_root(tenant, *sound) for tenant in tenants)
        place = OpeningPlace(roots, voice.voice_id, is_ahead, message.draft)
        place.is_draft = message.draft or self._drafts.begins(place, segment.text)
        return place if place.is_draft or message.openings else None

    def _memory_of(self, place: OpeningPlace) -> Openings:
        return self._drafts if place.is_draft else self._openings

    def _speak_listed(self) -> None:
        """Begin with the next listed opening. One that is in memory to its end needs no step."""
        while self.listed.is_due:
            message = self.listed.next()
            self._submit(message, is_listed=True)
            if self.listed.runs and message.request_id not in self._segments:  # it was refused
                self.listed.ended()

    def _extend_listed(self, segment: EngineSegment) -> None:
        """Give a listed opening the text that arrives after the patch that was just made."""
        request, num_patches = segment.request, len(segment.patches)
        position = request.supply.position
        bound = self.config.text_bound(num_patches) + (
            num_patches * self.config.chars_per_patch if position is None else position
        )
        may_go_on = num_patches < request.max_patches - 1
        more = self.listed.more(num_patches, lambda text: may_go_on and spoken_chars(text) >= bound)
        if more is not None and more[0] != segment.text:
            self._take_text(segment, *more)

    def _recall(self) -> None:
        """Send what is in memory now."""
        self.scheduler.recall(self._clock())
        self._end_recalled()

    def _end_recalled(self) -> None:
        for finished in self.scheduler.take_ended():
            self._end(finished)

    def _remembered(self, request: Request) -> StepFlags | None:
        """Send a request's next patch from memory and return its flags; None: it is not there."""
        segment = self._segments[request.request_id]
        assert segment.opening is not None
        remembered = self._memory_of(segment.opening).next(segment.opening, segment.read_text)
        return remembered and self._send_patch(segment, remembered.audio, StepFlags(remembered.stop))

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
            segment.conditioning = self.continuity.next(text, voice, message.context_id, room, segment.instructions)
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
        if conditioning.prompt is not voice.prompt:
            num_fixed = min(num_fixed, source.spoken_end)
        adapter = segment.adapter.digest if segment.adapter is not None else ""
        root = prefix_root(self.loaded.name, adapter, message.tenant)
        request.hashes = hashes = chain_hashes(root, content_of(source, num_fixed), self.config.block_size)
        voice.note_hashes(hashes)
        self._note_prefixes(segment)

    def _note_prefixes(self, segment: EngineSegment) -> None:
        """Note the prefixes of this input that other requests may share; not what its own context has added."""
        conditioning, voice, source = segment.conditioning, segment.voice, segment.input
        assert conditioning is not None
        if conditioning.reference is not voice.reference or conditioning.prompt is not voice.prompt:
            return
        keys, hashes, size = frames.prefix_keys(segment.message), segment.request.hashes, self.config.block_size
        if segment.message.voice:
            end = source.text_start if conditioning.instructions else source.spoken_start
            self._prefixes.note(keys[0], hashes[: end // size])
        if conditioning.instructions:
            self._prefixes.note(keys[-1], hashes[: source.spoken_start // size])

    def _add_voice(self, message: frames.AddVoice) -> None:
        try:
            self.voices.add(message)
        except RealtimeTTSError as error:
            self.emit(frames.VoiceFailed(message.voice_id, error.code, error.message))

    def _remove_voice(self, message: frames.RemoveVoice) -> None:
        self._openings.forget_voice(message.voice_id)
        self._drafts.forget_voice(message.voice_id)
        if voice := self.voices.remove(message.voice_id):
            self.scheduler.pool.forget_hashes(voice.hashes)

    def _add_adapter(self, adapter: AdapterWeights) -> None:
        try:
            loaded = self.adapters.add(adapter)
        except RealtimeTTSError as error:
            self.emit(frames.AdapterFailed(adapter.name, error.code, error.message))
        else:
            self.emit(frames.AdapterAdded(loaded.name, adapter.rank, loaded.digest))

    def _remove_adapter(self, message: frames.RemoveAdapter) -> None:
        """End the requests that use an adapter, since without it the voice would change, and remove it."""
        names = [
            name
            for name, segment in self._segments.items()
            if segment.adapter is not None and segment.adapter.name == message.name
        ]
        for name in names:
            error = AdapterNotFound(f"the adapter {message.name!r} was unloaded")
            self._end(self.scheduler.end(name, FinishReason.FAILED, error.code, error.message))
        self.adapters.remove(message.name)

    # ---- messages out --------------------------------------------------------------------------------------------

    def _send_audio(self, result: StepResult, segments: Mapping[str, EngineSegment]) -> dict[str, StepFlags]:
        """Send the audio. Return the step's flags, with each stop corrected by the place in the text. segments: those
        of the step; some may have ended since."""
        flags, present = dict(result.flags), self._segments
        for audio in result.audio:
            name = audio.name
            segment, flag = present.get(name), flags[name]
            if segment is None or segment is not segments[name] or not flag.finite:
                continue
            if segment.opening is not None and not segment.voice.is_removed:
                self._memory_of(segment.opening).keep(segment.opening, segment.read_text, audio, flag.stop)
            flags[name] = self._send_patch(segment, audio, flag)
        return flags

    def _send_patch(self, segment: EngineSegment, audio: StepAudio, flag: StepFlags) -> StepFlags:
        """Send a segment's next patch. Return its flags, with the stop corrected by the place in the text."""
        onset_db, sample_rate = self.loaded.policy.onset_db, self.loaded.config.sample_rate
        pcm, reading = audio.pcm, audio.text
        position = mass = None
        if reading is not None and (position := self._text_position(segment, reading)) is not None:
            mass = reading.mass
            flag = flag._replace(stop=self._ends(segment, mass, audio.power, flag.stop))
            if segment.end_detector.faults["ends_cut"]:
                pcm = faded_out(pcm, sample_rate)
        if onset_db is not None and segment.begins_context:
            num_made, pcm = pcm.size, from_onset(pcm, sample_rate, onset_db)
            flag = flag._replace(left_out_s=(num_made - pcm.size) / sample_rate)
        payload = pcm.tobytes()
        name, number = segment.message.request_id, len(segment.patches)
        message = frames.Audio(name, number, position, mass, payload=payload)
        if position is None or not self._keep_back(segment, message):
            self._tell(segment.message, message)
        segment.patches.append(audio.patch.copy())  # a view would keep one step's whole buffer alive
        segment.num_samples += pcm.size
        if _is_listed(segment):
            self._extend_listed(segment)
        return flag

    def _keep_back(self, segment: EngineSegment, message: frames.Audio) -> bool:
        """Keep back a segment's new patch if its listener has enough without it; send the oldest one of too many.
        Return False if the patch is to be sent now."""
        config, unsent, request = self.config, segment.unsent, segment.request
        if not unsent:
            may_mend = segment.num_mends < config.max_mends and not (request.may_recall or request.is_draft)
            if not (may_mend and self._head_follows) or self._spare_s(segment, self._clock()) < 0:
                return False
            self._keeping[message.request_id] = segment
        unsent.append(message)
        if len(unsent) * config.patch_s > config.keep_back_s:
            self.emit(unsent.popleft())
        return True

    def _send_due(self) -> None:
        """Send patches that were kept back and that their listeners need now."""
        now = self._clock()
        if not self._keeping or now < self._looks_at_s:
            return
        self._looks_at_s = now + self.config.patch_s / 4  # not in each step, whose streams may be many
        restart_s, lead_s = self.scheduler.restart_s, self.scheduler.lead_s
        for segment in [*self._keeping.values()]:
            while segment.unsent and lead_s(segment.request, now) - segment.unsent_s < restart_s:
                self.emit(segment.unsent.popleft())
            if not segment.unsent:
                del self._keeping[segment.message.request_id]

    def _spare_s(self, segment: EngineSegment, now: float) -> float:
        """Return the listener's lead without what is kept back, beyond what a restart takes, in seconds."""
        return self.scheduler.lead_s(segment.request, now) - segment.unsent_s - self.scheduler.restart_s

    def _mend(self, segment: EngineSegment, finding: Finding, now: float) -> None:
        """Cut speech before a fault and have it said again, if nothing of the fault was sent and the listener has
        enough until then."""
        request, name, num_sent = segment.request, segment.message.request_id, segment.num_sent
        num_patches = max(0, finding.num_good - segment.num_mends)
        if finding.fault is Fault.STUCK:  # the loop ends, even if its beginning was heard
            num_patches = max(num_patches, num_sent)
        dropped_s = (len(segment.patches) - num_patches) * self.config.patch_s / request.speed
        is_late = num_patches < num_sent or self._spare_s(segment, now) + segment.unsent_s < dropped_s
        if is_late or name not in self._keeping or segment.num_mends >= self.config.max_mends:
            return
        self._segments[name] = self._keeping[name] = segment = segment.cut(finding, num_patches)
        request.supply.position = spoken_chars(segment.text[: round(segment.track.furthest)])
        if segment.opening is not None:
            self._memory_of(segment.opening).forget(segment.opening.first)
            segment.opening.keeps = False
        self.scheduler.rewind(request, num_patches, now)

    def _ends(self, segment: EngineSegment, mass: float, power: float, stop: bool) -> bool:
        """Return whether the current patch is the last, by the stop head and by the place in the text."""
        track, text, request = segment.track, segment.text, segment.request
        latest, furthest, end = track.latest, track.furthest, float(segment.input.spoken_chars[-1])
        if not text.isascii():
            latest, furthest, end = (spoken_position(text, place) for place in (latest, furthest, end))
        heard = PatchReading(latest, furthest, mass, power, end, request.supply.known)
        detector = segment.end_detector
        is_last = detector.observe(heard, stop=stop, may_stop=request.may_stop(self.config.min_patches))
        if detector.finding is not None and not is_last:
            self._faulty.append((segment, detector.finding))
        return is_last

    def _text_position(self, segment: EngineSegment, reading: TextReading) -> float | None:
        """Return the character for `Audio`; None without a valid reading."""
        position = segment.track.advance(reading.token, segment.input.spoken_chars)
        if position is not None:
            segment.request.supply.position = spoken_chars(segment.text[: round(position)])
        return position

    def _end(self, finished: Finished) -> None:
        request = finished.request
        segment = self._segments.pop(request.request_id)
        self._keeping.pop(request.request_id, None)
        if finished.reason is not FinishReason.CANCELLED:
            for message in segment.unsent:
                self.emit(message)
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
            self._tell(segment.message, frames.Failed(request.request_id, *reason))
            return
        detector = segment.end_detector
        if segment.opening is not None and any(detector.faults[name] for name in AUDIBLE_FAULTS):
            self._memory_of(segment.opening).forget(segment.opening.first)
        if request.is_draft:
            return
        self._faults.update(detector.faults)
        self._head_follows = self._head_follows or detector.proofreader.has_followed
        if finished.reason is not FinishReason.CANCELLED:
            spoken = segment.patches[: detector.num_sound] if detector.faults["ends_cut"] else segment.patches
            self.continuity.spoken(request.context_id, segment.text, segment.voice, spoken)
        self.emit(
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
                **cast(TextFaults, detector.faults),
            )
        )

    def _fail_step(self, plan: StepPlan, error: EngineOutOfMemory) -> None:
        """End the requests of a step without memory; others continue. Raise at the third time within a minute."""
        logger.error("out of memory in a step over %d streams", len(plan.request_ids))
        names = plan.request_ids
        for finished in self.scheduler.fail(names, error.code, error.message):
            self._end(finished)
        now = self._clock()
        self._out_of_memory_s.append(now)
        if len(self._out_of_memory_s) == _OOM_LIMIT and now - self._out_of_memory_s[0] < _OOM_WINDOW_S:
            raise error

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
            opening_hits=self._openings.num_hits,
            draft_hits=self._drafts.num_hits,
            opening_bytes=self._openings.num_bytes + self._drafts.num_bytes,
            **cast(TextFaults, self._faults),
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
