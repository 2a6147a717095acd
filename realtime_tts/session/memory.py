"""What messages and strings cost to keep, in bytes, roughly: enough to bound what one client can make us hold."""

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

OBJECT_BYTES = 250  # of a message beyond what it carries, and of its place in a queue
PACKET_BYTES = 50  # of a packet beyond its bytes: their object, rounded up, and its place among those that go with it
ITEM_BYTES = 250  # of a word, a span, a resumed context in it
RETAINED_BYTES = 150  # of keeping a message for a resume, beyond its own
ID_BYTES = 150  # of an entry in a table beyond the id


def text_bytes(text: str | None) -> int:
    """Short strings differ little, long ones have one, two or four bytes a character."""
    return 0 if text is None else getsizeof(text)


def packets_bytes(packets: Packets) -> int:
    return OBJECT_BYTES + PACKET_BYTES * len(packets.payloads) + packets.num_bytes


def message_bytes(message: ServerMessage) -> int:
    """Memory that a message holds. Ids of open contexts count once, with their context."""
    if isinstance(message, AudioPackets):
        return packets_bytes(message.packets)
    if isinstance(message, Words):
        return OBJECT_BYTES + ITEM_BYTES * len(message.words)
    return OBJECT_BYTES + _carried_bytes(message)


def kept_bytes(message: ServerMessage) -> int:
    """By how much at most more is held once the message has been sent; audio was held before it was."""
    if isinstance(message, AudioPackets):
        return RETAINED_BYTES + OBJECT_BYTES  # it may be part of what waited as one
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
