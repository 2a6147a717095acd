"""Messages between a host process and its gateways: msgpack, one array for each message."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from typing import Any, get_args

import msgpack

from realtime_tts.errors import WireError
from realtime_tts.server.admission.peers import Charge
from realtime_tts.server.admission.slots import SlotCounts, SlotRequest
from realtime_tts.server.logs import log_event
from realtime_tts.workers.recovery import DeviceReport, DeviceState

logger = logging.getLogger(__name__)

_MAX_BYTES = 16 * 1024 * 1024


# ---- host → gateway ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """First message. `settings`: values by name, as of `config.flatten`; `index`: of this gateway."""

    settings: dict[str, Any]
    worker_names: list[str]
    index: int
    num_gateways: int
    url: str
    metrics_port: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker accepts connections at this socket."""

    name: str
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerLost:
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class PeerNews:
    """Charges and slots of the other gateways, the engine's counters, and the state of the devices."""

    charges: list[Charge]
    counts: SlotCounts
    num_restarts: int
    totals: dict[str, float]
    devices: list[DeviceReport]


@dataclasses.dataclass(frozen=True, slots=True)
class SlotAnswer:
    """Answer to a `SlotRequest`, in their order. `grant`: value of a `Grant`."""

    grant: str


# ---- gateway → host ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """The gateway is ready for clients; `rows`: rows that the host prints once at the start."""

    rows: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Connections and charges of a gateway, sent at each change, and at least twice a second as a sign of life.

    Attributes:
        charges: characters charged since the last report.
        num_given: connections that it was given so far.
        num_open: connections that are open now.
    """

    charges: list[Charge]
    num_given: int
    num_open: int


@dataclasses.dataclass(frozen=True, slots=True)
class SlotsUsed:
    """Slots that the gateway uses; they include those granted by the first `num_answers` answers."""

    counts: SlotCounts
    num_answers: int


# ---- both ways ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class VoicesChanged:
    """The voices directory has changed."""


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterChanged:
    """An adapter was loaded from a directory or, where that is "", unloaded.

    The host also sends a change back to its origin, so that all gateways receive all changes in one order.
    `index`: index of the gateway that made the change; −1: none.
    """

    name: str
    directory: str
    index: int


Message = (
    Begin
    | WorkerReady
    | WorkerLost
    | PeerNews
    | SlotAnswer
    | Serving
    | Report
    | SlotsUsed
    | SlotRequest
    | VoicesChanged
    | AdapterChanged
)
_TYPES: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Message)}


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


class MessageDecoder:
    """Incremental: `feed` any split of the byte stream, get whole messages.

    Raises:
        WireError: invalid data. The connection cannot be used afterwards.
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
    if "counts" in fields:
        fields["counts"] = SlotCounts(**{of: Counter(counts) for of, counts in fields["counts"].items()})
    if "devices" in fields:
        fields["devices"] = [DeviceReport(**{**raw, "state": DeviceState(raw["state"])}) for raw in fields["devices"]]
    message: Message = _TYPES[name](**fields)
    return message
