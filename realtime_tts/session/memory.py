"""Approximate memory of messages and strings, in bytes, exact enough to bound what one client occupies."""

from __future__ import annotations

from sys import getsizeof

from realtime_tts.audio.packets import Packets
from realtime_tts.session.messages import AudioPackets, ClientMessage, ServerMessage

OBJECT_BYTES = 250  # of a message without its fields, and of its entry in a queue
PACKET_BYTES = 50  # of a packet beyond its bytes: their object, rounded up, and its entry in its batch
ITEM_BYTES = 250  # of a word, a span or a resumed context in a message
RETAINED_BYTES = 150  # of keeping a message for a resume, beyond the message itself
ID_BYTES = 150  # of an entry in a table beyond the id


def text_bytes(text: str | None) -> int:
    """Return the memory of a string. Short strings differ little; long ones take one, two or four bytes a character."""
    return 0 if text is None else getsizeof(text)


def packets_bytes(packets: Packets) -> int:
    return OBJECT_BYTES + PACKET_BYTES * len(packets.payloads) + packets.num_bytes


def message_bytes(message: ServerMessage | ClientMessage) -> int:
    """Return the memory of a message. The id of a `ContextMessage` counts once, with its context."""
    if isinstance(message, AudioPackets):
        return packets_bytes(message.packets)
    num_bytes = OBJECT_BYTES
    for name in message.__slots__:  # without the slots of its base class
        value = getattr(message, name)
        if isinstance(value, tuple):
            num_bytes += ITEM_BYTES * len(value)
        elif isinstance(value, str):
            num_bytes += getsizeof(value)
    return num_bytes


class MemoryLimit:
    """Limit of the memory that one client occupies.

    To measure the memory takes long: it is due once as much may have been added as there was room for.

    Attributes:
        max_bytes: the memory has to be reduced when it exceeds this.
    """

    def __init__(self, max_bytes: int) -> None:
        self._slack_bytes = max_bytes // 64  # room after a measurement at least: one is not due at every message
        self._room_bytes = 0
        self.max_bytes = max_bytes - self._slack_bytes

    def add(self, num_bytes: int) -> None:
        """Record that at most so much memory was added."""
        self._room_bytes -= num_bytes

    def add_unknown(self) -> None:
        self._room_bytes = 0

    @property
    def is_due(self) -> bool:
        """True if the memory has to be measured."""
        return self._room_bytes <= 0

    def measured(self, num_bytes: int) -> None:
        """Record the memory in use, after it was reduced."""
        self._room_bytes = max(self.max_bytes - num_bytes, 0) + self._slack_bytes
