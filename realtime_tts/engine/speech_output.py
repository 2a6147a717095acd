"""Speech on its way out of an engine: where it ends, which patches are kept back, and faults that are mended."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator

from realtime_tts.contract import frames
from realtime_tts.engine.core.request import StepFlags
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.end_detector import PatchReading
from realtime_tts.engine.proofreader import Fault, Finding
from realtime_tts.engine.runtime.outputs import StepAudio, TextReading
from realtime_tts.engine.segment import EngineSegment, faded_out, from_onset, spoken_chars, spoken_position
from realtime_tts.model.checkpoint import LoadedModel


class SpeechOutput:
    """Patches and answers of an engine's requests.

    Attributes:
        emit: called with each outgoing message.
        faults: of all segments that have ended, as in `EndDetector.faults`.
        faulty: faults that the current step has proved, with their segments.
    """

    def __init__(self, loaded: LoadedModel, scheduler: Scheduler, emit: Callable[[frames.Message], None]) -> None:
        self.emit = emit
        self.faults: collections.Counter[str] = collections.Counter()
        self.faulty: list[tuple[EngineSegment, Finding]] = []
        self._loaded, self._config, self._scheduler = loaded, scheduler.config, scheduler
        self._keeping: dict[str, EngineSegment] = {}  # with patches kept back
        self._next_check_s = 0.0  # when these are checked again
        self._head_follows = False  # the text head has followed a whole text; a head that does not, mends nothing

    def answer(self, message: frames.Generate, answer: frames.Message) -> None:
        """Send an answer to a request; a draft gets none."""
        if not message.draft:
            self.emit(answer)

    def send(self, segment: EngineSegment, audio: StepAudio, flag: StepFlags, now: float) -> StepFlags:
        """Send a segment's next patch. Return its flags, with the stop corrected by the place in the text."""
        onset_db, sample_rate = self._loaded.policy.onset_db, self._loaded.config.sample_rate
        pcm, reading = audio.pcm, audio.text
        position = None
        if reading is not None and (position := self._text_position(segment, reading)) is not None:
            flag = flag._replace(stop=self._ends(segment, reading.mass, audio.power, flag.stop))
            if segment.end_detector.faults["ends_cut"]:
                pcm = faded_out(pcm, sample_rate)
        if onset_db is not None and segment.begins_context:
            num_made, pcm = pcm.size, from_onset(pcm, sample_rate, onset_db)
            flag = flag._replace(left_out_s=(num_made - pcm.size) / sample_rate)
        payload = pcm.tobytes()
        name, number = segment.message.request_id, len(segment.patches)
        message = frames.Audio(name, number, position, payload=payload)
        may_wait = position is not None or bool(segment.unsent)  # no patch overtakes one that is kept back
        if not (may_wait and self._keep_back(segment, message, now)):
            self.answer(segment.message, message)
        segment.patches.append(audio.patch.copy())  # a view would keep one step's whole buffer alive
        segment.num_samples += pcm.size
        return flag

    def _text_position(self, segment: EngineSegment, reading: TextReading) -> float | None:
        """Return the character for `Audio`; None without a valid reading."""
        position = segment.track.advance(reading.token, segment.input.spoken_chars)
        if position is not None:
            segment.request.supply.position = spoken_chars(segment.text[: round(position)])
        return position

    def _ends(self, segment: EngineSegment, mass: float, power: float, stop: bool) -> bool:
        """Return whether the current patch is the last, by the stop head and by the place in the text."""
        track, text, request = segment.track, segment.text, segment.request
        latest, furthest, end = track.latest, track.furthest, float(segment.input.spoken_chars[-1])
        if not text.isascii():
            latest, furthest, end = (spoken_position(text, place) for place in (latest, furthest, end))
        heard = PatchReading(latest, furthest, mass, power, end, request.supply.known)
        detector = segment.end_detector
        is_last = detector.observe(heard, stop=stop, may_stop=request.may_stop(self._config.min_patches))
        if detector.finding is not None and not is_last:
            self.faulty.append((segment, detector.finding))
        return is_last

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Emit messages all at once, at the end: the thread that sends them would take turns with this one before."""
        messages: list[frames.Message] = []
        emit, self.emit = self.emit, messages.append
        try:
            yield
        finally:
            self.emit = emit
            for message in messages:
                emit(message)

    # ---- patches kept back ---------------------------------------------------------------------------------------

    def _keep_back(self, segment: EngineSegment, message: frames.Audio, now: float) -> bool:
        """Keep back a segment's new patch if its listener has enough without it; send the oldest one of too many.
        Return False if the patch is to be sent now."""
        config, unsent, request = self._config, segment.unsent, segment.request
        if not unsent:
            may_mend = segment.num_mends < config.max_mends and not (request.may_recall or request.is_draft)
            if not (may_mend and self._head_follows) or self._spare_s(segment, now) < 0:
                return False
            self._keeping[message.request_id] = segment
        unsent.append(message)
        if len(unsent) * config.patch_s > config.keep_back_s:
            self.emit(unsent.popleft())
        return True

    def send_due(self, now: float) -> None:
        """Send patches that were kept back and that their listeners need now."""
        if not self._keeping or now < self._next_check_s:
            return
        self._next_check_s = now + self._config.patch_s / 4  # not in each step, whose streams may be many
        restart_s, lead_s = self._scheduler.restart_s, self._scheduler.lead_s
        for segment in [*self._keeping.values()]:
            while segment.unsent and lead_s(segment.request, now) - segment.unsent_s < restart_s:
                self.emit(segment.unsent.popleft())
            if not segment.unsent:
                del self._keeping[segment.message.request_id]

    def due_in_s(self, now: float) -> list[float]:
        """Return the seconds until `send_due` has something to do, for each segment with patches kept back."""
        return [max(self._spare_s(segment, now), self._next_check_s - now) for segment in self._keeping.values()]

    def _spare_s(self, segment: EngineSegment, now: float) -> float:
        """Return the listener's lead without what is kept back, beyond what a restart takes, in seconds."""
        return self._scheduler.lead_s(segment.request, now) - segment.unsent_s - self._scheduler.restart_s

    def cut(self, segment: EngineSegment, finding: Finding, now: float) -> EngineSegment | None:
        """Cut speech before a fault, if nothing of the fault was sent and the listener has enough until it is said
        again. Return the segment in its place; None: it stays as it is."""
        request, name, num_sent = segment.request, segment.message.request_id, segment.num_sent
        num_patches = max(0, finding.num_good - segment.num_mends)
        if finding.fault is Fault.STUCK:  # the loop ends, even if its beginning was heard
            num_patches = max(num_patches, num_sent)
        dropped_s = (len(segment.patches) - num_patches) * self._config.patch_s / request.speed
        is_late = num_patches < num_sent or self._spare_s(segment, now) + segment.unsent_s < dropped_s
        if is_late or name not in self._keeping or segment.num_mends >= self._config.max_mends:
            return None
        self._keeping[name] = segment = segment.cut(finding, num_patches)
        request.supply.position = spoken_chars(segment.text[: round(segment.track.furthest)])
        return segment

    def end(self, segment: EngineSegment, *, is_cancelled: bool) -> None:
        """Send what was kept back of a segment that is over, unless it was cancelled."""
        self._keeping.pop(segment.message.request_id, None)
        if not is_cancelled:
            for message in segment.unsent:
                self.emit(message)

    def count(self, segment: EngineSegment) -> None:
        """Count the faults of a segment that is over."""
        self.faults.update(segment.end_detector.faults)
        self._head_follows = self._head_follows or segment.end_detector.proofreader.has_followed
