"""A gateway's connection to its host process: sockets of the workers, and slots that its peers use."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from realtime_tts.errors import EngineLost
from realtime_tts.server.admission.peers import Charge, Peers, owner_of
from realtime_tts.server.admission.slots import Grant, Slot, SlotCounts, SlotRequest
from realtime_tts.server.host import messages
from realtime_tts.server.host.handover import hand_over
from realtime_tts.server.host.pause import pause
from realtime_tts.workers.pool import Workers
from realtime_tts.workers.recovery import DeviceReport

_LOOK_EVERY_S = 0.02  # interval of checks for changes to report
SIGN_OF_LIFE_S = 0.5


def receiver_path(directory: str, source: str, index: int) -> str:
    """Return the path of the socket at which a gateway takes connections. `source`: ``gateway`` or ``metrics``."""
    return os.path.join(directory, f"{source}-{index}.sock")


class HostLink(Workers, Peers):
    """The host's workers for `EngineClient`, and the other gateways for this one.

    Args:
        begin: the host's first message.
        directory: directory of the host's sockets.
    """

    num_restarts = 0
    devices: Sequence[DeviceReport] = ()

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: messages.Begin, directory: str
    ) -> None:
        Workers.__init__(self, begin.worker_names)
        Peers.__init__(self)
        self.begin = begin
        self.index = begin.index
        self._reader, self._writer, self._directory = reader, writer, directory
        self._slot_requests: deque[tuple[Slot, asyncio.Future[None]]] = deque()  # without an answer yet
        self._num_answers = 0
        self._look: Callable[[], messages.Report] = messages.Report
        self._told, self._told_at = messages.Report(), -math.inf  # the last report, without charges
        self._reachable: set[str] = set()  # names of the ready workers
        self._charges: Counter[tuple[str, str, int]] = Counter()
        self._untold_adapters: Counter[str] = Counter()  # own changes without an echo yet, by name

    @classmethod
    async def open(cls, control: int, directory: str) -> HostLink:
        """Return the link over a connected socket, given by its descriptor.

        Raises:
            EngineLost: the host is gone.
        """
        reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=control))
        if not isinstance(begin := await messages.read(reader), messages.Begin):
            raise EngineLost("the host process is gone")
        return cls(reader, writer, begin, directory)

    # ---- Workers -------------------------------------------------------------------------------------------------

    def load(self) -> None:
        if self.is_unloaded:
            self.send(messages.LoadModel())

    # ---- Peers ----------------------------------------------------------------------------------------

    async def request_slot(self, slot: Slot, request: SlotRequest, decide: Callable[[SlotRequest], Grant]) -> None:
        self._report()
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slot_requests.append((slot, answered))
        self.send(request)
        await answered

    def charge(self, charge: Charge) -> None:
        self._charges[charge.tenant, charge.token, charge.max_chars_per_minute] += charge.num_chars

    def voices_changed(self) -> None:
        self.send(messages.VoicesChanged())

    def adapter_changed(self, name: str, directory: str) -> None:
        self._untold_adapters[name] += 1
        self.send(messages.AdapterChanged(name, directory, self.index))

    def give(self, session_id: str, connection: int, received: bytes) -> bool:
        owner = owner_of(session_id)
        if owner is None or owner == self.index or owner >= self.begin.settings.server.gateways:
            return False
        try:
            return hand_over(receiver_path(self._directory, "gateway", owner), connection, received)
        except OSError:
            return False

    # ---- the conversation ----------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Process the host's messages until the connection ends."""
        while (message := await messages.read(self._reader)) is not None:
            self._take(message)

    async def report(self, look: Callable[[], messages.Report], connected: asyncio.Event) -> None:
        """Report to the host until cancelled.

        Args:
            look: returns a report without charges and answers, which are added here.
            connected: set when a connection arrives; this method clears it. A gateway without connections checks for
                changes only then, and every `SIGN_OF_LIFE_S`.
        """
        self._look = look
        while True:
            has_charged = bool(self._charges)
            self._report()
            if has_charged or self._told.num_open or self._told.counts != SlotCounts():
                await asyncio.sleep(_LOOK_EVERY_S)
            else:
                await pause(SIGN_OF_LIFE_S, connected)

    def _report(self) -> None:
        """Report to the host if there is a change, or if the last report is old."""
        charges, self._charges = self._charges, Counter()
        told, now = dataclasses.replace(self._look(), num_answers=self._num_answers), time.monotonic()
        if charges or told != self._told or now - self._told_at > SIGN_OF_LIFE_S:
            self._told, self._told_at = told, now
            news = [Charge(*owner, num_chars) for owner, num_chars in charges.items()]
            self.send(dataclasses.replace(told, charges=news))

    def _take(self, message: messages.Message) -> None:
        if isinstance(message, messages.WorkerReady):
            self._reachable.add(message.name)
            self.on_ready(message.name, message.path)
            self.is_unloaded = False
        elif isinstance(message, messages.WorkerLost):
            if message.name in self._reachable:
                self._reachable.remove(message.name)
                self.on_lost(message.name)
        elif isinstance(message, messages.PeerNews):
            self.num_restarts, self.totals = message.num_restarts, dict(message.totals)
            self.devices, self.others = message.devices, message.counts
            self.is_unloaded = message.is_unloaded
            for charge in message.charges:
                self.on_charged(charge)
        elif isinstance(message, messages.SlotAnswer):
            slot, answered = self._slot_requests.popleft()
            slot.grant = message.grant
            self._num_answers += 1
            if not answered.done():  # else the connection has ended
                answered.set_result(None)
        elif isinstance(message, messages.VoicesChanged):
            self.voices_stale.set()
        elif isinstance(message, messages.AdapterChanged):
            self._adapter_changed(message)

    def _adapter_changed(self, message: messages.AdapterChanged) -> None:
        """Apply another gateway's change, unless a later one of this gateway is on its way.

        All gateways receive all changes in the host's order. A change that arrives before the echo of this gateway's
        own change is older than it, and is ignored.
        """
        if message.index == self.index:
            self._untold_adapters[message.name] -= 1
        elif not self._untold_adapters[message.name]:
            self.adapter_changes.put_nowait((message.name, message.directory))

    def send(self, message: messages.Message) -> None:
        """Send a message to the host; dropped while the connection is closing."""
        if not self._writer.transport.is_closing():
            self._writer.write(messages.encode(message))
