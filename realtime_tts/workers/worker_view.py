"""State of one worker as reported to one client, with that client's requests there."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from realtime_tts.contract import frames
from realtime_tts.workers.link import WorkerLink
from realtime_tts.workers.placement import Candidate
from realtime_tts.workers.stream import RequestStream

_SUSPECT_AFTER_S = 1.5  # without a step despite work, or without a heartbeat: three are missing


@dataclasses.dataclass(slots=True)
class WorkerView:
    """Attributes:
    link, ready, stats: None while it cannot be reached.
    requests: this client's running requests, by their ids.
    num_others: contexts of other clients that have work there.
    prefixes: number of cached positions by prefix key.
    encodings: waiting encodings by voice id.
    adapters: its answers about the adapters that it was sent, by their names; None: no answer yet.
    last_progress_s: time of its last sign of life.
    """

    name: str
    link: WorkerLink | None = None
    ready: frames.Ready | None = None
    stats: frames.Stats | None = None
    requests: dict[str, RequestStream] = dataclasses.field(default_factory=dict)
    num_others: int = 0
    prefixes: dict[bytes, int] = dataclasses.field(default_factory=dict)
    last_progress_s: float = 0.0
    encodings: dict[str, asyncio.Future[frames.VoiceEncoded]] = dataclasses.field(default_factory=dict)
    adapters: dict[str, frames.AdapterAdded | frames.AdapterFailed | None] = dataclasses.field(default_factory=dict)

    def send(self, message: frames.Message) -> None:
        """Send a message; dropped while the worker cannot be reached: its requests have been ended already."""
        if self.link is not None and self.ready is not None:
            self.link.send(message)

    def note(self, message: frames.Stats | frames.Load | frames.Prefixes, now: float) -> None:
        """Store a report of the worker about its state."""
        if isinstance(message, frames.Stats):
            if self.stats is None or message.num_steps != self.stats.num_steps or message.running == 0:
                self.last_progress_s = now
            self.stats = message
        elif isinstance(message, frames.Load):
            self.num_others = message.others
        else:
            self.prefixes.update(message.cached)
            for key in message.lost:
                self.prefixes.pop(key, None)

    def forget(self) -> None:
        """Reset the state that a process has reported which has ended."""
        self.ready = self.stats = None
        self.num_others = 0
        self.prefixes.clear()
        self.adapters.clear()

    @property
    def is_loading(self) -> bool:
        """True if it has not answered about each adapter yet."""
        return None in self.adapters.values()

    @property
    def takes_contexts(self) -> bool:
        """True if it takes new contexts."""
        return self.ready is not None and not (self.stats is not None and self.stats.leaving)

    @property
    def num_streams(self) -> int:
        """Number of streams it can carry in real time; 0 if it takes no new contexts."""
        if self.ready is None or not self.takes_contexts:
            return 0
        max_streams = max(1, self.ready.max_streams)
        learned = self.stats.real_time_streams if self.stats is not None else 0
        return min(max_streams, learned or max_streams)

    @property
    def num_working(self) -> int:
        """Number of contexts of all clients that have work there."""
        return len({stream.context_id for stream in self.requests.values()}) + self.num_others

    def candidate(self, keys: Sequence[bytes], num_contexts: int, now: float) -> Candidate:
        """Return its state as a candidate for a context with these input prefixes. num_contexts: this client's open
        contexts there."""
        stats = self.stats or frames.Stats()
        return Candidate(
            self.name,
            num_working=self.num_working,
            num_streams=self.num_streams,
            num_contexts=num_contexts,
            num_cached=max((self.prefixes.get(key, 0) for key in keys), default=0),
            fixed_s=stats.fixed_ms / 1000,
            stream_s=stats.stream_ms / 1000,
            position_s=stats.position_ms / 1000,
            is_suspect=now - self.last_progress_s > _SUSPECT_AFTER_S,
        )
