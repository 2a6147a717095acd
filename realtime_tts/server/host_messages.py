"""What a host process and its gateways tell each other. Bytes in, messages out; msgpack, one array a message."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import msgpack

from realtime_tts.errors import WireError
from realtime_tts.server.logs import log_event
from realtime_tts.workers.recovery import DeviceReport, DeviceState

logger = logging.getLogger(__name__)

_MAX_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Charge:
    """Characters that a key, and a token of it, have used since the last time this was told."""

    tenant: str
    token: str
    max_chars_per_minute: int  # of the token
    num_chars: int


# ---- host → gateway ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """First of all. Settings as maps of the fields of `EngineConfig` and `ServerConfig`; `index`: of this gateway."""

    engine: dict[str, Any]
    server: dict[str, Any]
    worker_names: list[str]
    index: int
    num_gateways: int
    url: str
    metrics_port: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker takes clients at this socket."""

    name: str
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerLost:
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Others:
    """What all other gateways have used, told when it changes, the engine's counters, and how the devices are."""

    charges: list[Charge]
    num_restarts: int
    totals: dict[str, float]
    devices: list[DeviceReport]


# ---- gateway → host ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """Ready for clients; `rows`: what a person at the terminal is told of the server, once."""

    rows: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What this gateway has been given and has used, told when it changes, and twice a second as a sign of life.

    Attributes:
        num_given: connections that it was given so far.
        num_open: those that are open now.
    """

    charges: list[Charge]
    num_given: int
    num_open: int


# ---- both ways ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class VoicesChanged:
    """There is news in the directory of voices."""


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterChanged:
    """An adapter was loaded from a directory or, where that is "", unloaded. The host tells it to him too from whom it
    comes: all gateways hear of all changes in one order. `index`: of the gateway that has changed it; −1: of none."""

    name: str
    directory: str
    index: int


Message = Begin | WorkerReady | WorkerLost | Others | Serving | Report | VoicesChanged | AdapterChanged
_TYPES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (Begin, WorkerReady, WorkerLost, Others, Serving, Report, VoicesChanged, AdapterChanged)
}


def encode(message: Message) -> bytes:
    packed: bytes = msgpack.packb([type(message).__name__, _fields(message)], default=_fields)
    return packed


def encode_or_log(message: Message) -> bytes:
    """Return the encoded message, or b"" for one that cannot be encoded, which is logged.

    A fault in one message must not end the process that sends it.
    """
    try:
        return encode(message)
    except (OverflowError, TypeError, ValueError) as error:  # e.g. an integer of more than 64 bits, a lone surrogate
        kind, reason = type(message).__name__, type(error).__name__
        log_event(logger, logging.ERROR, "message_not_sent", kind=kind, error=reason)
        return b""


def _fields(item: Any) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


class Decoder:
    """Incremental: `feed` any split of the byte stream, get whole messages.

    Raises:
        WireError: what is no message. The connection cannot be used after it.
    """

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=_MAX_BYTES)

    def feed(self, data: bytes) -> list[Message]:
        try:
            self._unpacker.feed(data)
            return [_message(*item) for item in self._unpacker]
        except Exception as error:
            raise WireError(f"what cannot be understood: {type(error).__name__}") from error


def _message(name: str, fields: dict[str, Any]) -> Message:
    if "charges" in fields:
        fields["charges"] = [Charge(**charge) for charge in fields["charges"]]
    if "devices" in fields:
        fields["devices"] = [DeviceReport(**{**raw, "state": DeviceState(raw["state"])}) for raw in fields["devices"]]
    message: Message = _TYPES[name](**fields)
    return message
