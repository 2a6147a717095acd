"""What the gateway counts, for Prometheus. One `Metrics` per gateway, with its own registry: nothing global."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from realtime_tts import __version__
from realtime_tts.session import messages
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFA_BUCKETS_S = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)
# Less than this is inside any player's jitter buffer.
UNDERRUN_SLACK_S = 0.1
_ENGINE_GAUGES = (
    "running",
    "waiting",
    "parked",
    "awaiting_text",
    "free_blocks",
    "num_blocks",
    "cached_blocks",
    "free_slots",
    "busy_ms",
    "rss_bytes",
    "kept_bytes",
)
_FAULTS = {
    "end_cut": "ends_cut",
    "end_continued": "ends_continued",
    "babble": "babbles",
    "skip": "skips",
    "repeat": "repeats",
}


@dataclasses.dataclass(slots=True)
class PlaybackEstimate:
    """A listener who plays a context's packets as they come, without a buffer: does it ever run dry?"""

    started_s: float | None = None
    sent_s: float = 0.0

    def sent(self, duration_s: float, now: float) -> bool:
        """Account for packets sent at `now`; True if the listener had waited for the first of them."""
        if self.started_s is None:
            self.started_s = now
        late_s = now - self.started_s - self.sent_s
        self.sent_s += duration_s
        if late_s <= UNDERRUN_SLACK_S:
            return False
        self.started_s += late_s
        return True


class Metrics:
    """Counters and gauges of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self.registry, "namespace": "realtime_tts"}
        self.sessions = Gauge("sessions", "Sessions alive, those waiting for their client included", **named)
        self.sessions_total = Counter("sessions_opened", "Sessions opened", **named)
        self.http_speeches = Gauge("http_speeches", "Texts that are being spoken over plain HTTP", **named)
        self.refused = Counter("handshakes_refused", "Connections refused at the handshake", ["code"], **named)
        self.contexts = Counter("contexts", "Contexts ended", ["outcome"], **named)
        self.ttfa = Histogram(
            "ttfa_seconds", "Text received to first packet sent, of contexts done", buckets=_TTFA_BUCKETS_S, **named
        )
        self.audio = Counter("audio_seconds", "Audio sent", **named)
        self.packets = Counter("packets", "Audio packets sent", ["codec"], **named)
        self.characters = Counter("characters", "Characters of contexts done", **named)
        self.barge_ins = Counter("barge_ins", "Contexts that clients cancelled before all of them was heard", **named)
        self.underruns = Counter("underruns_estimated", "Packets sent later than an unbuffered player needed", **named)
        self.slow_consumers = Counter("slow_consumers", "Sockets closed because the peer did not read", **named)
        self.resumed = Counter("sessions_resumed", "Sessions taken up again on a new connection", **named)
        self.lateness = Gauge("lateness_seconds", "How late a packet leaves that is due, typically", **named)
        self.late = Gauge("late", "1 while the gateway is late and takes nobody new", **named)
        self.errors = Counter("errors", "Errors sent to clients", ["code"], **named)
        self._workers = Gauge("engine_workers_ready", "Engine workers that take requests", **named)
        self._restarts = Counter("engine_worker_restarts", "Engine workers started again", **named)
        self._counted_restarts = 0
        faults = Counter(
            "engine_text_faults", "What its place in the text told of speech; docs/operation.md", ["kind"], **named
        )
        self._totals = {
            "extensions": Counter("engine_extensions", "Times that more text was read into running speech", **named),
            "extended_positions": Counter("engine_extended_positions", "Positions prefilled for that", **named),
            "text_waits": Counter("engine_text_waits", "Times that speech waited for text, heard or not", **named),
            **{name: faults.labels(kind) for kind, name in _FAULTS.items()},
        }
        self._counted = dict.fromkeys(self._totals, 0)
        self._step_ms = Gauge("engine_step_ms", "Mean duration of a step, the slowest worker's", **named)
        self._build = Info("build", "What runs here; model and device once a worker is ready", **named)
        self._engine = {
            name: Gauge(f"engine_{name}", f"Sum over workers of {name}", **named) for name in _ENGINE_GAUGES
        }

    def ended(self, message: messages.TerminalMessage) -> None:
        """Count a context, by its terminal message."""
        if isinstance(message, messages.ContextDone):
            self.context_done(message.characters, message.ttfa_ms)
        elif isinstance(message, messages.ContextCancelled):
            self.context_cancelled(message.by_client)
        else:
            self.context_failed(message.code)

    def context_done(self, num_chars: int, ttfa_ms: float | None) -> None:
        self.contexts.labels("done").inc()
        self.characters.inc(num_chars)
        if ttfa_ms is not None:
            self.ttfa.observe(ttfa_ms / 1000)

    def context_cancelled(self, by_client: bool) -> None:
        self.contexts.labels("cancelled").inc()
        self.barge_ins.inc(by_client)

    def context_failed(self, code: str) -> None:
        self.contexts.labels("failed").inc()
        self.errors.labels(code).inc()

    def sent_packets(self, codec: str, num_packets: int, duration_s: float, late: bool) -> None:
        self.packets.labels(codec).inc(num_packets)
        self.audio.inc(duration_s)
        if late:
            self.underruns.inc()

    def exposition(self, engine: EngineClient) -> bytes:
        """The text that Prometheus scrapes; the engine's figures are read at this moment."""
        stats = engine.stats
        self._workers.set(engine.num_ready)
        self._restarts.inc(engine.num_restarts - self._counted_restarts)
        self._counted_restarts = engine.num_restarts
        for name, counter in self._totals.items():
            counter.inc(engine.totals[name] - self._counted[name])
            self._counted[name] = engine.totals[name]
        self._step_ms.set(max((stat.step_ms for stat in stats), default=0.0))
        for name, gauge in self._engine.items():
            gauge.set(sum(getattr(stat, name) for stat in stats))
        self._build.info(_build_labels(engine.ready))
        return generate_latest(self.registry)


def _build_labels(ready: frames.Ready | None) -> dict[str, str]:
    """Labels of `build_info`; `ready` is what a worker said of itself, once one has."""
    labels = {"version": __version__, "python": platform.python_version()}
    if ready is not None:
        labels |= {"model": ready.model, "device": ready.device}
    return labels
