"""Metrics and logs of the messages that a session sends: contexts opened and ended, packets, errors."""

from __future__ import annotations

import collections
import dataclasses

from realtime_tts.server.logs import log_event
from realtime_tts.server.metrics import Metrics, PlaybackEstimate
from realtime_tts.session import messages
from realtime_tts.session.contexts import MAX_FINISHED

_HEARD_SLACK_MS = 0.5  # a playback position this close to the end counts as the end
_LOGGED = ("characters", "audio_ms", "ttfa_ms", "played_ms", "code")
_OUTCOMES = {messages.ContextDone: "done", messages.ContextCancelled: "cancelled", messages.ContextFailed: "failed"}


@dataclasses.dataclass(slots=True)
class _Open:
    """A context that was announced to the client. end_samples: end of the audio that was counted."""

    started: messages.ContextStarted
    estimate: PlaybackEstimate = dataclasses.field(default_factory=PlaybackEstimate)
    end_samples: int = 0


class SessionAccount:
    """Account of one session: counts its messages and logs the ends of its contexts. A message that is sent again after
    a resume counts once."""

    def __init__(self, metrics: Metrics, session_id: str) -> None:
        self._metrics, self._session_id = metrics, session_id
        self._open: dict[str, _Open] = {}
        self._last_number = 0  # highest number of a context so far
        # Length of the audio by context, of those that were done and whose playback may still be cancelled.
        self._done_ms: collections.OrderedDict[str, float] = collections.OrderedDict()

    def sent(self, message: messages.ServerMessage, now: float) -> None:
        """Count a message that is sent at `now` (monotonic time in seconds)."""
        if isinstance(message, messages.AudioPackets):
            self._sent_packets(message, now)
            return
        if isinstance(message, messages.ContextStarted):
            self._started(message)
        elif isinstance(message, messages.ContextDone | messages.ContextCancelled | messages.ContextFailed):
            self._ended(message)
        elif isinstance(message, messages.CancelAcknowledged):
            self._acknowledged(message)
        elif isinstance(message, messages.ContextReleased):
            if entry := self._open.get(message.context_id):
                entry.estimate = PlaybackEstimate()  # playback stood still
        elif isinstance(message, messages.ErrorMessage):
            self._metrics.errors.labels(message.code).inc()

    def abandoned(self) -> None:
        """Count the open contexts as abandoned: no client is left to receive their terminal messages."""
        self._metrics.contexts.labels("abandoned").inc(len(self._open))
        self._open.clear()

    def _started(self, message: messages.ContextStarted) -> None:
        if message.number > self._last_number:  # otherwise sent again
            self._last_number = message.number
            self._open[message.context_id] = _Open(message)

    def _ended(self, message: messages.TerminalMessage) -> None:
        if self._open.pop(message.context_id, None) is None:
            return  # sent again
        outcome = _OUTCOMES[type(message)]
        figures = {name: getattr(message, name, None) for name in _LOGGED}
        log_event("context_ended", session=self._session_id, outcome=outcome, **figures)
        if isinstance(message, messages.ContextFailed):
            self._metrics.ended(outcome, code=message.code)
        elif isinstance(message, messages.ContextCancelled):
            self._metrics.ended(outcome)
            self._metrics.barge_ins.inc(message.by_client)
        else:
            self._metrics.ended(outcome, num_chars=message.characters, ttfa_ms=message.ttfa_ms)
            self._done_ms[message.context_id] = message.audio_ms
            if len(self._done_ms) > MAX_FINISHED:
                self._done_ms.popitem(last=False)

    def _acknowledged(self, message: messages.CancelAcknowledged) -> None:
        """Count a barge-in if a context was sent completely but not played completely; once for each context."""
        if message.context_id is None or (audio_ms := self._done_ms.pop(message.context_id, None)) is None:
            return
        if message.played_ms < audio_ms - _HEARD_SLACK_MS:
            self._metrics.barge_ins.inc()

    def _sent_packets(self, message: messages.AudioPackets, now: float) -> None:
        entry, packets = self._open.get(message.context_id), message.packets
        if entry is None or packets.end_samples <= entry.end_samples:
            return  # sent again, or the end of a stream codec, whose packets have no length: `packet_samples` is 0
        audio, num_samples = entry.started.audio, packets.end_samples - max(entry.end_samples, packets.pts_samples)
        entry.end_samples = packets.end_samples
        duration_s = num_samples / audio.sample_rate
        late = entry.estimate.sent(duration_s, now)
        self._metrics.sent_packets(audio.codec, num_samples // packets.packet_samples, duration_s, late)
