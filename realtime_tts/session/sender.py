"""Send queues of one client: each context's messages in order, numbered when they leave, paced by playback."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from realtime_tts.audio.packets import Packets
from realtime_tts.session import messages
from realtime_tts.session.alignment import WordAligner
from realtime_tts.session.memory import OBJECT_BYTES, message_bytes, packets_bytes
from realtime_tts.session.playback import PlaybackClock
from realtime_tts.session.resume import ResumeBuffer
from realtime_tts.session.settings import SessionConfig

# Packets go in batches, each serialised and written as one. A full batch (BATCH_MS, three patches of the model; a part
# of a short lead limit) leaves as soon as the lead has room for it. Fewer packets leave once the lead has fallen to
# LOW_LEAD_MS, or to a part of a short lead limit.
LOW_LEAD_MS, LOW_LEAD_SHARE = 1500.0, 0.5
BATCH_MS, BATCH_SHARE = 480.0, 0.25
_EPSILON_MS = 0.02


_Waiting = Packets | messages.ContextMessage


class SenderCrash(Exception):
    """A context's next message could not be made; the cause has the exception."""

    def __init__(self, context_id: str) -> None:
        super().__init__(context_id)
        self.context_id = context_id


class ContextSender:
    """Sending side of one context.

    A message gets its number when it leaves. So do messages that a resuming client lacks: they leave in the order in
    which they left before.

    Args:
        speed: tempo factor of the speech; 1 is the model's own tempo.
    """

    def __init__(self, started: messages.ContextStarted, speed: float) -> None:
        self.clock = PlaybackClock()
        self.aligner = WordAligner(speed)
        self._restarted = False
        self.context_id = started.context_id
        self._number = started.number
        self._rate_hz = started.audio.sample_rate
        self._queue: deque[_Waiting] = deque([started])
        self.next_sequence = started.sequence  # number of the next message to leave
        self._next_pts = 0
        self._text_at: float | None = None  # when the first text came

    @property
    def queued_ms(self) -> float:
        """Length of the audio that waits to be sent, in ms: all that was added after what was sent."""
        return max(0.0, self._ms(self._next_pts) - self.clock.sent_ms) if self._queue else 0.0

    @property
    def has_all_to_hold(self) -> bool:
        """True if the audio up to where the context is held was added. Only for a held context: its clock stands
        still, so any time gives its position."""
        return self._ms(self._next_pts) >= self.clock.position_ms(0.0) - _EPSILON_MS

    @property
    def num_bytes(self) -> int:
        """Approximate memory in use, bytes."""
        return self.aligner.num_bytes + sum(map(_waiting_bytes, self._queue))

    # ---- filling -------------------------------------------------------------------------------------------------

    def add_packets(self, packets: Packets) -> None:
        """Queue packets.

        Raises:
            ValueError: they do not continue the ones before; nothing is added.
        """
        if not packets:
            return
        if packets.pts_samples != self._next_pts:
            raise ValueError(f"packets at {packets.pts_samples} samples, expected {self._next_pts}")
        self._queue.append(packets)
        self._next_pts = packets.end_samples

    def add_flushed(self, flush_id: str | None) -> None:
        flushed = messages.Flushed(self.context_id, 0, flush_id, self._ms(self._next_pts))
        # A flush may come when all audio is queued but not yet sent. It goes before `ContextDone`, which is last.
        if self._queue and isinstance(self._queue[-1], messages.ContextDone):
            self._queue.insert(len(self._queue) - 1, flushed)
        else:
            self._queue.append(flushed)

    def add_done(self, characters: int, text_at: float | None, report: messages.SpeechReport) -> None:
        self._text_at = text_at
        audio_ms = self._ms(self._next_pts)
        self._queue.append(messages.ContextDone(self.context_id, 0, audio_ms, characters, None, report))
        self.limit_hold()

    def limit_hold(self) -> None:
        """Limit the position of a hold to the end of the audio, which is complete: a word's end may be an estimate."""
        self.clock.limit_hold(self._ms(self._next_pts))

    def end(self, message: messages.TerminalMessage, next_sequence: int | None) -> None:
        """Queue the terminal message, in place of all that waits but the start. `next_sequence` as in `drop`."""
        self.drop(next_sequence)
        if self._queue and isinstance(self._queue[-1], messages.ContextDone):
            self._queue.pop()
        self._queue.append(message)

    def resend(self, missing: Sequence[messages.ContextMessage], now: float) -> None:
        """Queue messages again that the listener lacks, the last ones sent. The playback clock is set back to before
        them."""
        if missing:
            self.next_sequence = missing[0].sequence
        self._queue.extendleft(m.packets if isinstance(m, messages.AudioPackets) else m for m in reversed(missing))
        first = next((m for m in missing if isinstance(m, messages.AudioPackets)), None)
        if first is not None:
            self.clock.rewind(self._ms(first.packets.pts_samples), now)

    def drop(self, next_sequence: int | None = None) -> None:
        """Drop all queued speech. Later messages reuse the dropped numbers, or count from `next_sequence`."""
        if next_sequence is not None:
            self.next_sequence = next_sequence
        self._queue = deque(
            item for item in self._queue if isinstance(item, messages.ContextStarted | messages.TerminalMessage)
        )
        self.aligner.drop()

    # ---- emptying ------------------------------------------------------------------------------------------------

    def lead_ms(self, now: float) -> float:
        """Return the amount of audio sent and not yet heard, ms."""
        return self.clock.sent_ms - self.clock.position_ms(now)

    @property
    def is_empty(self) -> bool:
        return not self._queue

    @property
    def is_unpaced(self) -> bool:
        """True if the next message is the start, or the end of a context that failed or was cancelled."""
        unpaced = messages.ContextStarted | messages.ContextCancelled | messages.ContextFailed
        return bool(self._queue) and isinstance(self._queue[0], unpaced)

    def pull(self, now: float, max_lead_ms: float, max_bytes: float) -> messages.ContextMessage | None:
        """Return the next message if it may leave now, else None. Audio: all packets that may leave, until soon after
        `max_bytes`."""
        if not self._queue:
            return None
        head = self._queue[0]
        if isinstance(head, Packets):
            if self.clock.is_held:
                max_lead_ms = 0.0
            elif self.clock.position_ms(now) < self._leaves_at_ms(head, max_lead_ms) - _EPSILON_MS:
                return None
            num_leaving = self._num_leaving(self._queue, now, max_lead_ms, max_bytes)
            if not num_leaving:
                return None
            end_ms = self._ms(head.pts_samples + num_leaving * head.packet_samples)
            if (words := self._words_until(end_ms)) is not None:
                self._take_number()
                return words
            return self._pull_packets(head, num_leaving, now)
        if isinstance(head, messages.ContextDone) and (words := self._words_until(math.inf, with_end=True)) is not None:
            self._take_number()
            return words
        self._queue.popleft()
        if isinstance(head, messages.ContextDone):
            head = replace(head, ttfa_ms=self._ttfa_ms())
        return replace(head, sequence=self._take_number())

    def place_late_words(self) -> None:
        """Commit words that became known after their audio left; called before the last query of what was heard."""
        self.aligner.commit_until(self.clock.sent_ms)
        self.aligner.settle_end()

    def send_late_words(self) -> None:
        """Send words and ends that became known after their audio left, ahead of all else."""
        if words := self._words_until(self.clock.sent_ms, with_end=True):
            self._queue.appendleft(words)

    def take_restart(self) -> bool:
        """Return True once after the clock started, or continued after an underrun."""
        restarted = self._restarted
        self._restarted = False
        return restarted

    def next_send_at(self, now: float, max_lead_ms: float) -> float | None:
        """Return when `pull` has something again (`now`: at once); None: not before an acknowledgement or new audio."""
        if not self._queue:
            return None
        head = self._queue[0]
        if isinstance(head, Packets) and self.clock.is_held:
            return now if self._num_leaving(self._queue, now, 0.0, math.inf) else None
        if not isinstance(head, Packets) or self.clock.started_at is None:
            return now
        at_ms = self._leaves_at_ms(head, max_lead_ms)
        return now if self.clock.position_ms(now) >= at_ms - _EPSILON_MS else self.clock.reaches_at(at_ms)

    def _leaves_at_ms(self, packets: Packets, max_lead_ms: float) -> float:
        """Return the playback position at which these packets, the first in the queue, leave if no others are added."""
        batch_ms = max(self._ms(packets.packet_samples), min(BATCH_MS, BATCH_SHARE * max_lead_ms))
        lead_ms = max_lead_ms - batch_ms
        if self.queued_ms < batch_ms - _EPSILON_MS and all(isinstance(waiting, Packets) for waiting in self._queue):
            lead_ms = min(lead_ms, LOW_LEAD_MS, LOW_LEAD_SHARE * max_lead_ms)
        return self.clock.sent_ms - max(0.0, lead_ms)

    def _pull_packets(self, first: Packets, num_packets: int, now: float) -> messages.AudioPackets:
        """Remove the first packets from the queue, which begins with `first`, and return them as one message."""
        payloads: list[bytes] = []
        while (num_wanted := num_packets - len(payloads)) > 0:
            waiting = self._queue.popleft()
            assert isinstance(waiting, Packets), "packets leave before all else that waits"
            payloads += waiting.payloads[:num_wanted]
            if num_wanted < len(waiting):
                self._queue.appendleft(waiting.between(num_wanted))
        packets = Packets(tuple(payloads), first.pts_samples, first.packet_samples)
        message = messages.AudioPackets(self.context_id, self.next_sequence, self._number, packets)
        self.next_sequence += len(packets)
        self._restarted = self.clock.send(self._ms(packets.end_samples), now) or self._restarted
        return message

    def _ttfa_ms(self) -> float | None:
        """Return the time from the first text to the first packet sent, in ms."""
        first_sent_at, text_at = self.clock.started_at, self._text_at
        return None if first_sent_at is None or text_at is None else (first_sent_at - text_at) * 1000

    def _words_until(self, end_ms: float, with_end: bool = False) -> messages.Words | None:
        """Return the words to report, with the next number, which is not taken yet; `with_end`: also if only the end of
        the last one is news."""
        words = self.aligner.commit_until(end_ms)
        previous_end_ms = self.aligner.previous_end_ms
        if with_end and not words:
            previous_end_ms = self.aligner.settle_end()
        if not words and previous_end_ms is None:
            return None
        return messages.Words(self.context_id, self.next_sequence, tuple(words), previous_end_ms)

    def _num_leaving(self, waiting: Iterable[_Waiting], now: float, max_lead_ms: float, max_bytes: float) -> int:
        """Number of packets at the head of the queue, all of one length, that may leave. Stops after the entry of the
        queue with which they exceed `max_bytes`."""
        end_samples, first, num_leaving = 0.0, None, 0
        for packets in waiting:
            if not isinstance(packets, Packets):
                break
            if first is None:
                first = packets
                lead_ms = max(max_lead_ms, self._ms(packets.packet_samples))  # at least one packet, however long
                end_samples = (self.clock.position_ms(now) + lead_ms + _EPSILON_MS) * self._rate_hz / 1000
            elif packets.packet_samples != first.packet_samples:
                break
            num_due = packets.num_until(end_samples)
            num_leaving += num_due
            max_bytes -= packets_bytes(packets)
            if num_due < len(packets.payloads) or max_bytes <= 0:
                break
        return num_leaving

    def _take_number(self) -> int:
        self.next_sequence += 1
        return self.next_sequence - 1

    def _ms(self, num_samples: int) -> float:
        return num_samples * 1000 / self._rate_hz


def _waiting_bytes(waiting: _Waiting) -> int:
    return packets_bytes(waiting) if isinstance(waiting, Packets) else message_bytes(waiting)


class SessionSender:
    """All messages queued for one client, and the sent ones that may have to be sent again.

    Messages of the session go first, in order; then contexts. A sender among the messages stands for its numbered
    messages (its start, its end), so that these keep their place in the order.

    Attributes:
        waiting: messages that are not paced, and senders that stand for theirs, in order.
        retained: messages that were sent and may be sent again.
    """

    def __init__(self, config: SessionConfig) -> None:
        self.retained = ResumeBuffer(config.retain_s)
        self._max_lead_ms = config.max_lead_s * 1000
        self._retains = config.resume_window_s > 0
        self.waiting: deque[messages.SessionMessage | ContextSender] = deque()

    def post(self, item: messages.SessionMessage | ContextSender) -> None:
        self.waiting.append(item)

    @property
    def num_bytes(self) -> int:
        """Approximate memory in use, bytes; messages of contexts are counted by the contexts."""
        waiting_bytes = sum(
            OBJECT_BYTES if isinstance(item, ContextSender) else message_bytes(item) for item in self.waiting
        )
        return waiting_bytes + self.retained.num_bytes

    def retain_no_more(self) -> None:
        """Stop keeping sent messages: the session cannot be resumed any more."""
        self._retains = False
        self.retained.clear()

    def next_send_at(self, senders: Sequence[ContextSender], now: float) -> float | None:
        """Return when `take` has something again; `now` or earlier: at once."""
        if self.waiting:
            return now
        due: float | None = None
        for sender in senders:
            at = sender.next_send_at(now, self._max_lead_ms)
            if at is not None and (due is None or at < due):
                due = at
        return due

    def take(self, senders: Sequence[ContextSender], now: float, max_bytes: float) -> Iterator[messages.ServerMessage]:
        """Yield the messages that may leave now; each counts as sent. Stops soon after `max_bytes`.

        Raises:
            SenderCrash: of one sender; the others are as before.
        """
        num_bytes = 0
        while self.waiting and num_bytes < max_bytes:
            item = self.waiting.popleft()
            if not isinstance(item, ContextSender):
                num_bytes += message_bytes(item)
                yield item
                continue
            while item.is_unpaced and (message := self._pull(item, now, max_bytes - num_bytes)) is not None:
                num_bytes += message_bytes(message)
                yield message
        for sender in senders:
            while num_bytes < max_bytes and (message := self._pull(sender, now, max_bytes - num_bytes)) is not None:
                num_bytes += message_bytes(message)
                yield message

    def _pull(self, sender: ContextSender, now: float, max_bytes: float) -> messages.ContextMessage | None:
        try:
            message = sender.pull(now, self._max_lead_ms, max_bytes)
        except Exception as error:
            raise SenderCrash(sender.context_id) from error
        if message is not None and self._retains:
            self.retained.add(message, now)
        return message
