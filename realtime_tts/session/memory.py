"""Approximate memory cost of messages and strings, in bytes, exact enough to bound what one client occupies."""

from __future__ import annotations

from sys import getsizeof

from realtime_tts.audio.packets import Packets
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    ContextCancelled,
    ContextFailed,
    ErrorMessage,
    Flushed,
    KeepAlive,
    Pong,
    ServerMessage,
    SessionResumed,
    WarningMessage,
    Words,
)

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


def message_bytes(message: ServerMessage) -> int:
    """Return the memory that a message holds. Ids of open contexts count once, with their context."""
    if isinstance(message, AudioPackets):
        return packets_bytes(message.packets)
    if isinstance(message, Words):
        return OBJECT_BYTES + ITEM_BYTES * len(message.words)
    return OBJECT_BYTES + _carried_bytes(message)


def kept_bytes(message: ServerMessage) -> int:
    """Return an upper bound of the memory that sending the message adds. Audio was counted before it was sent."""
    if isinstance(message, AudioPackets):
        return RETAINED_BYTES + OBJECT_BYTES  # it may be a part of a larger queue entry
    return 2 * message_bytes(message) + RETAINED_BYTES


def _carried_bytes(message: ServerMessage) -> int:
    if isinstance(message, ContextCancelled | ContextFailed):
        return text_bytes(message.spoken_text)
    if isinstance(message, CancelAcknowledged):
        return text_bytes(message.context_id) + text_bytes(message.spoken_text)
    if isinstance(message, ErrorMessage):
        return text_bytes(message.context_id) + text_bytes(message.message) + text_bytes(message.field)
    if isinstance(message, Flushed):
        return text_bytes(message.flush_id)
    if isinstance(message, Pong):
        return text_bytes(message.id)
    if isinstance(message, WarningMessage):
        return ITEM_BYTES * len(message.spans)
    if isinstance(message, SessionResumed):
        return sum(ITEM_BYTES + text_bytes(found.context_id) for found in message.contexts)
    return ITEM_BYTES * len(message.context_ids) if isinstance(message, KeepAlive) else 0
