"""Worker side of its clients: several connections, each the owner of its requests, contexts and encodings.

Two clients may use the same ids. Inside the engine each id is prefixed by the client's number, an internal one.
When a connection ends, all its requests are cancelled at once, and no others. Added voices are shared: their ids are
random, and a voice is kept as long as a client holds it. Adapters are shared in the same way, by their names.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from realtime_tts.contract import frames
from realtime_tts.errors import AdapterExists, AdapterNotFound, VoiceExists, WireError

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 64 * 1024 * 1024  # a working client reads all the time; beyond this it counts as stopped
_CLOSE_S = 2.0  # time for clients to read the last messages
_REPORT_LOAD_AFTER_S = 0.02  # changes within this time are sent as one message
_FOR_ENGINE = (frames.Extend, frames.Cancel, frames.Playback, frames.SetPriority, frames.Opening)


class _Client(asyncio.Protocol):
    """Connection of one client.

    Attributes:
        prefix: what the engine's names have in front of this client's ids.
        contexts: open contexts, under the engine's names. working: number of requests by those contexts.
        closed: done when the connection has ended.
    """

    def __init__(self, channels: ClientChannels, number: int) -> None:
        self.prefix = f"{number}/"
        self.contexts: set[str] = set()
        self.working: Counter[str] = Counter()
        self.reported_others = 0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._channels, self._decoder = channels, frames.Decoder(self.prefix)

    def write(self, message: frames.Message) -> None:
        self.transport.write(frames.encode(message))

    @property
    def num_unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._channels.join(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._channels.receive(self, message)
        except WireError as error:
            logger.error("a client sent an invalid frame: %s", error)
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._channels.leave(self)
        self.closed.set_result(None)


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    """Owner and ids of one request. own_id: the client's id. context: the engine's name of its context."""

    client: _Client
    own_id: str
    context: str


@dataclasses.dataclass(slots=True)
class _Shared:
    """Voice or adapter that clients have added. fingerprint: hash of the message that added it. added: the answer for
    an adapter; None while it is being loaded."""

    fingerprint: int
    holders: set[_Client]
    added: frames.AdapterAdded | None = None


_Key = tuple[type[frames.RemoveVoice] | type[frames.RemoveAdapter], str]  # message that removes it, and its name


class ClientChannels:
    """Clients of one worker. Belongs to the event loop.

    Every frame is passed on in the callback that received it, without a task in between.

    Args:
        ready: first message to each client.
        take: called with the clients' messages for the engine, under the engine's names.
    """

    def __init__(self, ready: frames.Ready, take: Callable[[frames.Message], None]) -> None:
        self._ready, self._take = ready, take
        self._num_clients = 0  # number of clients so far
        self._clients: set[_Client] = set()
        self._requests: dict[str, _Request] = {}  # requests by the engine's name
        self._encodings: dict[str, tuple[_Client, str]] = {}
        self._shared: dict[_Key, _Shared] = {}
        self._prefixes: dict[bytes, int] = {}
        self._stats = frames.Stats()
        self._load_report: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None

    async def listen(self, path: str) -> None:
        """Accept clients at this unix socket."""
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, path)

    def _accept(self) -> _Client:
        self._num_clients += 1
        return _Client(self, self._num_clients)

    async def close(self) -> None:
        """Send what is queued, and close all connections."""
        if self._server is not None:
            self._server.close()
        if self._load_report is not None:
            self._load_report.cancel()
        for client in self._clients:
            client.transport.close()
        if self._clients:
            await asyncio.wait([client.closed for client in self._clients], timeout=_CLOSE_S)

    # ---- to the clients ------------------------------------------------------------------------------------------

    def send(self, messages: Iterable[frames.Message]) -> None:
        """Send each message to the client that it concerns; messages for clients that have left are dropped."""
        unsent: defaultdict[_Client, list[bytes]] = defaultdict(list)
        for message in messages:
            if isinstance(message, frames.Audio):  # by far the most frequent
                if (request := self._requests.get(message.request_id)) is not None:
                    unsent[request.client].append(frames.encode(message, request_id=request.own_id))
                continue
            for client, own in self._addressed(message):
                unsent[client].append(frames.encode(own))
        for client, parts in unsent.items():
            client.transport.write(b"".join(parts))

    def beat(self, stats: frames.Stats) -> None:
        """Send a heartbeat to all clients, and later to each new one at once."""
        self._stats, data = stats, frames.encode(stats)
        for client in self._clients:
            client.transport.write(data)

    def relieve(self) -> bool:
        """Return False while the only client does not read its audio. With several clients, disconnect those that do
        not read and return True, so that the others need not wait."""
        slow = [client for client in self._clients if client.num_unsent_bytes > MAX_UNSENT_BYTES]
        if len(self._clients) == 1:
            return not slow
        for client in slow:
            logger.error("a client of this worker does not read; its connection is closed")
            client.transport.abort()
        return True

    @property
    def num_connected(self) -> int:
        """Number of clients that are connected."""
        return len(self._clients)

    @property
    def is_caught_up(self) -> bool:
        """True if clients have read a large part of their queued audio."""
        return all(client.num_unsent_bytes <= MAX_UNSENT_BYTES // 2 for client in self._clients)

    def _addressed(self, message: frames.Message) -> list[tuple[_Client, frames.Message]]:
        if isinstance(message, frames.Done | frames.Failed):
            request = self._end_request(message.request_id)
            return (
                [] if request is None else [(request.client, dataclasses.replace(message, request_id=request.own_id))]
            )
        if isinstance(message, frames.Prefixes):
            self._prefixes.update(message.cached)
            for prefix in message.lost:
                self._prefixes.pop(prefix, None)
            return [(client, message) for client in self._clients]
        if isinstance(message, frames.AdapterAdded):
            adapter = self._shared.get((frames.RemoveAdapter, message.name))
            if adapter is not None:
                adapter.added = message
            return [(client, message) for client in adapter.holders] if adapter is not None else []
        key: _Key
        if isinstance(message, frames.AdapterFailed):
            key = frames.RemoveAdapter, message.name
        else:
            assert isinstance(message, frames.VoiceEncoded | frames.VoiceFailed)
            if (found := self._encodings.pop(message.voice_id, None)) is not None:
                return [(found[0], dataclasses.replace(message, voice_id=found[1]))]
            key = frames.RemoveVoice, message.voice_id
        refused = self._shared.pop(key, None)
        return [] if refused is None else [(client, message) for client in refused.holders]

    # ---- from the clients ----------------------------------------------------------------------------------------

    def join(self, client: _Client) -> None:
        self._clients.add(client)
        # In one write: no client acts on a worker that is ready before it knows how many streams it carries.
        client.transport.write(frames.encode(self._ready) + frames.encode(self._stats))
        if self._prefixes:
            client.write(frames.Prefixes(dict(self._prefixes)))
        self._load_changed()

    def receive(self, client: _Client, message: frames.Message) -> None:
        """Take in a message; its request and context are under the engine's names already."""
        if isinstance(message, frames.Generate):
            request, context = message.request_id, message.context_id
            if request not in self._requests and not message.draft:
                self._requests[request] = _Request(client, request.removeprefix(client.prefix), context)
                client.working[context] += 1
                self._load_changed()
            client.contexts.add(context)
            self._take(message)
        elif isinstance(message, _FOR_ENGINE):
            self._take(message)
        elif isinstance(message, frames.CloseContext):
            client.contexts.discard(message.context_id)
            self._take(message)
        elif isinstance(message, frames.EncodeVoice):
            name = client.prefix + message.voice_id
            self._encodings[name] = client, message.voice_id
            self._take(dataclasses.replace(message, voice_id=name))
        elif isinstance(message, frames.AddVoice):
            error = VoiceExists(f"the voice id {message.voice_id!r} is taken", field="voice_id")
            refusal = frames.VoiceFailed(message.voice_id, error.code, error.message)
            self._add(client, (frames.RemoveVoice, message.voice_id), message, refusal)
        elif isinstance(message, frames.RemoveVoice):
            self._stop_encoding(client.prefix + message.voice_id)
            self._release(client, (frames.RemoveVoice, message.voice_id))
        elif isinstance(message, frames.AddAdapter):
            exists = AdapterExists(f"another adapter {message.name!r} is loaded", field="adapter")
            failed = frames.AdapterFailed(message.name, exists.code, exists.message)
            self._add(client, (frames.RemoveAdapter, message.name), message, failed)
        elif isinstance(message, frames.RemoveAdapter):
            self._remove_adapter(client, message)

    def _end_request(self, name: str) -> _Request | None:
        """Remove a request that is over and return it."""
        request = self._requests.pop(name, None)
        if request is not None:
            working = request.client.working
            working[request.context] -= 1
            if not working[request.context]:
                del working[request.context]
            self._load_changed()
        return request

    def _load_changed(self) -> None:
        if self._load_report is None:
            self._load_report = asyncio.get_running_loop().call_later(_REPORT_LOAD_AFTER_S, self._report_load)

    def _report_load(self) -> None:
        """Send each client the number of contexts at work of the others, if it has changed."""
        self._load_report = None
        num_working = sum(len(client.working) for client in self._clients)
        for client in self._clients:
            others = num_working - len(client.working)
            if others != client.reported_others:
                client.reported_others = others
                client.write(frames.Load(others))

    def _add(self, client: _Client, key: _Key, message: frames.Message, refusal: frames.Message) -> None:
        """Add a voice or an adapter as a shared one: only the first client's message goes to the engine. A client that
        adds another one under the same name gets `refusal`; one that adds an adapter later, the first one's answer."""
        known = self._shared.get(key)
        if known is None:
            self._shared[key] = _Shared(hash(message), {client})
            self._take(message)
        elif known.fingerprint == hash(message):
            known.holders.add(client)
            if known.added is not None:
                client.write(known.added)
        else:
            client.write(refusal)

    def _release(self, client: _Client, key: _Key) -> None:
        shared = self._shared.get(key)
        if shared is not None and client in shared.holders:
            shared.holders.remove(client)
            if not shared.holders:
                del self._shared[key]
                remove, name = key
                self._take(remove(name))

    def _remove_adapter(self, client: _Client, message: frames.RemoveAdapter) -> None:
        """Remove an adapter for this client, or for all: those that still wait for it get an error."""
        name = message.name
        if not message.everywhere:
            self._release(client, (frames.RemoveAdapter, name))
            return
        adapter = self._shared.pop((frames.RemoveAdapter, name), None)
        if adapter is None:
            return
        if adapter.added is None:
            error = AdapterNotFound("the adapter was unloaded while it was being loaded")
            for other in adapter.holders - {client}:
                other.write(frames.AdapterFailed(name, error.code, error.message))
        self._take(frames.RemoveAdapter(name))

    def _stop_encoding(self, name: str) -> None:
        if self._encodings.pop(name, None) is not None:
            self._take(frames.RemoveVoice(name))

    def leave(self, client: _Client) -> None:
        self._clients.discard(client)
        self._requests = {name: request for name, request in self._requests.items() if request.client is not client}
        self._load_changed()
        for context in client.contexts:
            self._take(frames.CloseContext(context))
        for name in [name for name, found in self._encodings.items() if found[0] is client]:
            self._stop_encoding(name)
        for key in list(self._shared):
            self._release(client, key)
