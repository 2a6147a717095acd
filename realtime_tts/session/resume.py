"""Sent messages that may not have arrived, kept for a while so that a lost connection loses nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from realtime_tts.session.memory import RETAINED_BYTES, message_bytes
from realtime_tts.session.messages import AudioPackets, ContextMessage


class _Entry(NamedTuple):
    message: ContextMessage
    at: float
    num_bytes: int

    @classmethod
    def of(cls, message: ContextMessage, at: float) -> _Entry:
        return cls(message, at, RETAINED_BYTES + message_bytes(message))


@dataclass(frozen=True, slots=True)
class Missing:
    """Messages of one context that a reconnected client lacks.

    first: number of the first message that it lacks.
    messages: the last ones of these, as far as they were sent and are still kept.
    has_gap: some that were sent are no longer kept.
    """

    first: int
    messages: list[ContextMessage]
    has_gap: bool


def _after(message: ContextMessage, sequence: int) -> ContextMessage | None:
    """Return the part of the message with numbers above `sequence`, or None."""
    if message.sequence > sequence:
        return message
    num_arrived = sequence + 1 - message.sequence
    if isinstance(message, AudioPackets) and num_arrived < len(message.packets):
        return message.between(num_arrived)
    return None


class ResumeBuffer:
    """Sent messages of all contexts of a session, bounded in age and, on request, in bytes; the oldest are dropped
    first.

    Attributes:
        num_bytes: approximate memory in use.
    """

    def __init__(self, retain_s: float) -> None:
        self._retain_s = retain_s
        self._entries: dict[str, deque[_Entry]] = {}
        self.num_bytes = 0

    def add(self, message: ContextMessage, now: float) -> None:
        entry = _Entry.of(message, now)
        self._entries.setdefault(message.context_id, deque()).append(entry)
        self.num_bytes += entry.num_bytes
        while (oldest := self._oldest()) is not None and self._entries[oldest][0].at < now - self._retain_s:
            self._drop_first(oldest)

    def acknowledge(self, context_id: str, played_samples: float) -> None:
        """Drop the messages before this playback position (samples at the output rate): they have arrived."""
        num_over, num_heard = 0, 0  # number of messages dropped whole, and of packets dropped from the next one
        for index, entry in enumerate(self._entries.get(context_id, ())):
            if isinstance(entry.message, AudioPackets):
                packets = entry.message.packets
                num_heard = packets.num_until(played_samples)
                if num_heard:
                    num_over = index
                if num_heard < len(packets):
                    break
                num_over, num_heard = index + 1, 0
        for _ in range(num_over):
            self._drop_first(context_id)
        if num_heard:
            self._drop_packets(context_id, num_heard)

    def drop_from(self, context_id: str, sequence: int) -> None:
        """Drop the context's messages from number `sequence` on."""
        entries = self._entries.get(context_id)
        while entries and entries[-1].message.sequence >= sequence:
            self.num_bytes -= entries.pop().num_bytes
        if not entries:
            self._entries.pop(context_id, None)

    def take_missing(self, context_id: str, last_sequence: int, next_sequence: int) -> Missing:
        """Remove the context and return what a client lacks that has everything up to `last_sequence`.

        Args:
            last_sequence: any integer; more than was sent means everything, less than -1 means nothing.
            next_sequence: number of the context's next new message.
        """
        first = max(-1, min(last_sequence, next_sequence - 1)) + 1
        entries = self._take(context_id)
        messages = [rest for entry in entries if (rest := _after(entry.message, first - 1)) is not None]
        return Missing(first, messages, first < (messages[0].sequence if messages else next_sequence))

    def forget(self, context_id: str) -> None:
        self._take(context_id)

    def clear(self) -> None:
        self._entries.clear()
        self.num_bytes = 0

    def shrink(self, max_bytes: int) -> int:
        """Drop the oldest messages until at most `max_bytes` are kept. Return the number of bytes dropped."""
        before, excess = self.num_bytes, self.num_bytes - max_bytes
        while excess > 0 and (oldest := self._oldest()) is not None:
            first = self._entries[oldest][0]
            num_packets = len(first.message.packets) if isinstance(first.message, AudioPackets) else 1
            excess -= self._drop_packets(oldest, -(-num_packets * excess // first.num_bytes))
        return before - self.num_bytes

    def _take(self, context_id: str) -> deque[_Entry]:
        entries = self._entries.pop(context_id, deque())
        self.num_bytes -= sum(entry.num_bytes for entry in entries)
        return entries

    def _oldest(self) -> str | None:
        """Return the context whose first kept message was sent before those of all others."""
        return min(self._entries, key=lambda context_id: self._entries[context_id][0].at, default=None)

    def _drop_packets(self, context_id: str, num_packets: int) -> int:
        """Drop the first `num_packets` packets of the context's first message, or the whole message. Return the number
        of bytes dropped."""
        entries = self._entries[context_id]
        first = entries[0]
        if not isinstance(first.message, AudioPackets) or num_packets >= len(first.message.packets):
            self._drop_first(context_id)
            return first.num_bytes
        entries[0] = _Entry.of(first.message.between(num_packets), first.at)
        num_bytes = first.num_bytes - entries[0].num_bytes
        self.num_bytes -= num_bytes
        return num_bytes

    def _drop_first(self, context_id: str) -> None:
        entries = self._entries[context_id]
        self.num_bytes -= entries.popleft().num_bytes
        if not entries:
            del self._entries[context_id]
