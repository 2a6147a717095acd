"""Messages between a host process and its gateways: for each its length, then an array in msgpack."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import get_args

import msgpack
from pydantic import TypeAdapter

from realtime_tts.config import Settings
from realtime_tts.errors import WireError
from realtime_tts.server.admission.peers import Charge
from realtime_tts.server.admission.slots import Grant, SlotCounts, SlotRequest
from realtime_tts.server.run import Address
from realtime_tts.workers.recovery import DeviceReport

_LENGTH_BYTES = 4
_MAX_BYTES = 16 * 1024 * 1024


# ---- host → gateway ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """First message. `index`: of this gateway."""

    settings: Settings
    worker_names: list[str]
    index: int
    address: Address


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
    """Charges and slots of the other gateways, the engine's counters, and the state of the devices.

    is_unloaded: the model is unloaded; it is not after a failure. `WorkerReady` ends it too.
    """

    charges: list[Charge]
    counts: SlotCounts
    num_restarts: int
    totals: dict[str, float]
    devices: list[DeviceReport]
    is_unloaded: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SlotAnswer:
    """Answer to a `SlotRequest`, in their order."""

    grant: Grant


# ---- gateway → host ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class LoadModel:
    """Load the model if it is unloaded."""


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """The gateway is ready for clients; `rows`: rows that the host prints once at the start."""

    rows: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayFailed:
    """The gateway ends because of an error, such as a setting that only a gateway reads."""

    code: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """State of a gateway, sent at each change, and at least twice a second as a sign of life.

    Attributes:
        charges: characters charged since the last report.
        num_given: connections that the host has given it so far.
        num_open: connections that are open now.
        counts: slots that it uses; they include those granted by the first `num_answers` answers.
    """

    num_given: int = 0
    num_open: int = 0
    counts: SlotCounts = dataclasses.field(default_factory=SlotCounts)
    num_answers: int = 0
    charges: list[Charge] = dataclasses.field(default_factory=list)


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
    | LoadModel
    | PeerNews
    | SlotAnswer
    | Serving
    | GatewayFailed
    | Report
    | SlotRequest
    | VoicesChanged
    | AdapterChanged
)
_TYPES: dict[str, TypeAdapter[Message]] = {cls.__name__: TypeAdapter(cls) for cls in get_args(Message)}


def encode(message: Message) -> bytes:
    name = type(message).__name__
    packed: bytes = msgpack.packb([name, _TYPES[name].dump_python(message)])
    return len(packed).to_bytes(_LENGTH_BYTES, "big") + packed


async def read(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; None at the end of the connection.

    Raises:
        WireError: invalid data.
    """
    try:
        num_bytes = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        name, fields = msgpack.unpackb(await reader.readexactly(min(num_bytes, _MAX_BYTES)))
        return _TYPES[name].validate_python(fields)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except Exception as error:
        raise WireError(f"invalid message: {type(error).__name__}") from error
