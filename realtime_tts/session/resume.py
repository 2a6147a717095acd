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
        entry = _Entry(message, now, RETAINED_BYTES + message_bytes(message))
        self._entries.setdefault(message.context_id, deque()).append(entry)
        self.num_bytes += entry.num_bytes
        while (oldest := self._oldest()) is not None and self._entries[oldest][0].at < now - self._retain_s:
            self._drop_first(oldest)

    def acknowledge(self, context_id: str, played_samples: float) -> None:
        """Drop the messages up to the last one whose audio ends before this playback position (samples at the output
        rate): they have arrived."""
        num_over = 0
        for index, entry in enumerate(self._entries.get(context_id, ()), 1):
            if isinstance(entry.message, AudioPackets):
                if entry.message.packets.end_samples > played_samples:
                    break
                num_over = index
        for _ in range(num_over):
            self._drop_first(context_id)

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
        entries = self.forget(context_id)
        messages = [rest for entry in entries if (rest := _after(entry.message, first - 1)) is not None]
        return Missing(first, messages, first < (messages[0].sequence if messages else next_sequence))

    def clear(self) -> None:
        self._entries.clear()
        self.num_bytes = 0

    def shrink(self, max_bytes: int) -> int:
        """Drop the oldest messages until at most `max_bytes` are kept. Return the number of bytes dropped."""
        before = self.num_bytes
        while self.num_bytes > max_bytes and (oldest := self._oldest()) is not None:
            self._drop_first(oldest)
        return before - self.num_bytes

    def forget(self, context_id: str) -> deque[_Entry]:
        """Remove the context and return what was kept of it."""
        entries = self._entries.pop(context_id, deque())
        self.num_bytes -= sum(entry.num_bytes for entry in entries)
        return entries

    def _oldest(self) -> str | None:
        """Return the context whose first kept message was sent before those of all others."""
        return min(self._entries, key=lambda context_id: self._entries[context_id][0].at, default=None)

    def _drop_first(self, context_id: str) -> None:
        entries = self._entries[context_id]
        self.num_bytes -= entries.popleft().num_bytes
        if not entries:
            del self._entries[context_id]
