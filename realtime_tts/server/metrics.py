"""Metrics of a gateway for Prometheus. One `Metrics` per gateway, with its own registry.

With several gateways, prometheus_client keeps their values in files of a directory that the host process makes, and
each gateway reports the sum. Files are named by a gateway's index: a restarted gateway continues the counts of its
predecessor, so the number of files does not grow.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from realtime_tts import __version__
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.recovery import DeviceState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFA_BUCKETS_S = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)
# Lateness below this is inside any player's jitter buffer.
UNDERRUN_SLACK_S = 0.1
# Each value is the sum over all workers.
_ENGINE_GAUGES = {
    "running": "Streams that the engine produces now",
    "waiting": "Requests that wait for memory of a worker or for their turn",
    "parked": "Streams far enough ahead of their listeners to wait",
    "awaiting_text": "Streams whose text is still being written, and has been spoken as far as it goes",
    "free_blocks": "Free blocks of the KV cache",
    "num_blocks": "Blocks of the KV cache",
    "cached_blocks": "Blocks that hold prefixes and can be evicted",
    "free_slots": "Streams that there is still room for",
    "opening_bytes": "Memory of openings and drafts",
    "rss_bytes": "Resident memory of the workers",
    "kept_bytes": "Anonymous memory that the workers hold when no step is due; 0: unknown",
}
_FAULTS = {
    ("end_cut", "mended"): "ends_cut",
    ("end_continued", "mended"): "ends_continued",
    ("babble", "heard"): "babbles",
    ("skip", "heard"): "skips",
    ("skip", "mended"): "skips_mended",
    ("repeat", "heard"): "repeats",
    ("repeat", "mended"): "repeats_mended",
    ("stuck", "heard"): "stuck",
    ("stuck", "mended"): "stuck_mended",
}
_TOTALS = {
    "extensions": "Extensions of running speech with more text",
    "extended_positions": "Positions prefilled for extensions",
    "opening_hits": "Contexts that began with speech from memory",
    "draft_hits": "Contexts that began with their draft",
    "text_waits": "Waits of running speech for more text, audible or not",
}
_TIMES = {
    "busy": "Time that workers spent in steps",
    "gap": "Time in which a device with streams waited for its next step",
}
_FAULTS_TEXT = "Faults of speech, found by the spoken position in the text; docs/operate/operation.md"
_STREAMS_TEXT = "Streams that a worker can carry in real time; 0: it takes no new contexts"
_COST_TEXT = "Learned duration of a step: fixed part, part of each stream, part of each position of a prefill"
_NAMESPACE = "realtime_tts"
_FIGURES_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # set by the host process, before this module is imported


def count_as(index: int) -> None:
    """Keep this process's metrics under a gateway's index. Must be called before a `Metrics` is made."""
    values.ValueClass = values.MultiProcessValue(process_identifier=lambda: index)


@dataclasses.dataclass(slots=True)
class PlaybackEstimate:
    """Model of a player without a buffer that plays a context's packets as they arrive; it detects underruns."""

    started_s: float | None = None
    sent_s: float = 0.0

    def sent(self, duration_s: float, now: float) -> bool:
        """Account for packets sent at `now` (seconds). Return True if the player ran out of audio before them."""
        if self.started_s is None:
            self.started_s = now
        late_s = now - self.started_s - self.sent_s
        self.sent_s += duration_s
        if late_s <= UNDERRUN_SLACK_S:
            return False
        self.started_s += late_s
        return True

    def position_s(self, now: float) -> float:
        """Return how much of the audio the player has played at `now`, seconds."""
        return 0.0 if self.started_s is None else min(self.sent_s, now - self.started_s)


class Metrics:
    """Counters and gauges of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = functools.partial(Counter, registry=self.registry, namespace=_NAMESPACE)
        gauge = functools.partial(Gauge, registry=self.registry, namespace=_NAMESPACE)
        self.sessions = gauge(
            "sessions", "Sessions alive, those waiting for their client included", multiprocess_mode="livesum"
        )
        self.sessions_total = counter("sessions_opened", "Sessions opened")
        self.http_speeches = gauge(
            "http_speeches", "Requests for speech over plain HTTP that are running", multiprocess_mode="livesum"
        )
        self.refused = counter("handshakes_refused", "Handshakes and requests that were refused", ["code"])
        self.contexts = counter("contexts", "Contexts ended", ["outcome"])
        self.ttfa = Histogram(
            "ttfa_seconds",
            "Text received to first packet sent, of contexts done",
            buckets=_TTFA_BUCKETS_S,
            registry=self.registry,
            namespace=_NAMESPACE,
        )
        self.audio = counter("audio_seconds", "Audio sent")
        self.packets = counter("packets", "Audio packets sent", ["codec"])
        self._packets_of: dict[str, Counter] = {}  # by codec
        self.characters = counter("characters", "Characters of contexts done")
        self.barge_ins = counter("barge_ins", "Contexts that clients cancelled before the end of their playback")
        self.underruns = counter("underruns_estimated", "Packets sent later than an unbuffered player needed")
        self.slow_consumers = counter("slow_consumers", "Sockets closed because the peer did not read")
        self.resumed = counter("sessions_resumed", "Sessions resumed on a new connection")
        self.lateness = gauge(
            "lateness_seconds",
            "Median delay of the latest probes through the event loop and an encoder thread",
            multiprocess_mode="livemax",
        )
        self.late = gauge("late", "1 while the gateway is late and admits no new speech", multiprocess_mode="livemax")
        self.errors = counter("errors", "Errors sent to clients", ["code"])

    def ended(self, outcome: str, *, num_chars: int = 0, ttfa_ms: float | None = None, code: str | None = None) -> None:
        """Count a context that is done, cancelled or failed (with the error's code). The characters and the time to
        first packet count if it is done."""
        self.contexts.labels(outcome).inc()
        if outcome == "done":
            self.characters.inc(num_chars)
            if ttfa_ms is not None:
                self.ttfa.observe(ttfa_ms / 1000)
        if code is not None:
            self.errors.labels(code).inc()

    def sent_packets(self, codec: str, num_packets: int, duration_s: float, late: bool) -> None:
        if (packets := self._packets_of.get(codec)) is None:
            packets = self._packets_of[codec] = self.packets.labels(codec)
        packets.inc(num_packets)
        self.audio.inc(duration_s)
        if late:
            self.underruns.inc()

    def exposition(self, engine: EngineClient) -> bytes:
        """Return the text that Prometheus scrapes.

        It includes all gateways of the host, also those that have ended, and the engine's current values.
        """
        gateways = MultiProcessCollector(None) if _FIGURES_DIRECTORY in os.environ else self.registry
        return generate_latest(gateways) + generate_latest(_EngineFigures(engine))


class _EngineFigures(Collector):
    """Collector of the values that the workers report; they are the same at every gateway."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine, workers, totals = self._engine, self._engine.workers, self._engine.keeper.totals
        yield _gauge("workers_ready", "Engine workers that take requests", engine.num_ready)
        yield _counter("worker_restarts", "Engine workers started again", engine.keeper.num_restarts)
        for name, text in _TOTALS.items():
            yield _counter(name, text, totals[name])
        for name, text in _TIMES.items():
            yield _counter(f"{name}_seconds", text, totals[f"{name}_ms"] / 1000)
        faults = [(labels, totals[name]) for labels, name in _FAULTS.items()]
        yield _counter("text_faults", _FAULTS_TEXT, faults, "kind", "result")
        devices = [((report.worker, report.device), report) for report in engine.keeper.devices]
        states = [((*device, state), report.state is state) for device, report in devices for state in DeviceState]
        yield _gauge("device_state", "1 for the state that a device is in", states, "worker", "device", "state")
        losses = [(device, report.losses) for device, report in devices]
        yield _counter("device_losses", "Workers of a device that were lost", losses, "worker", "device")
        working = [((worker.name,), worker.num_working) for worker in workers]
        yield _gauge("device_contexts", "Contexts that have work at a worker", working, "worker")
        streams = [((worker.name,), worker.num_streams) for worker in workers]
        yield _gauge("device_streams", _STREAMS_TEXT, streams, "worker")
        costs = [
            ((worker.name, part), getattr(worker.stats, f"{part}_ms") / 1000)
            for worker in workers
            for part in ("fixed", "stream", "position")
            if worker.stats is not None
        ]
        yield _gauge("step_cost_seconds", _COST_TEXT, costs, "worker", "part")
        slowest = max((stats.step_ms for stats in engine.stats), default=0.0)
        yield _gauge("step_seconds", "Mean duration of a step, the slowest worker's", slowest / 1000)
        for name, text in _ENGINE_GAUGES.items():
            yield _gauge(name, text, sum(getattr(stats, name) for stats in engine.stats))
        build = {"version": __version__, "python": platform.python_version()}
        if engine.ready is not None:
            build |= {"model": engine.ready.model, "device": engine.ready.device}
        yield InfoMetricFamily(f"{_NAMESPACE}_build", "Version; model and device once a worker is ready", build)


_Rows = float | Sequence[tuple[Sequence[str], float]]  # the value, or values and their labels


def _gauge(name: str, text: str, rows: _Rows, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"{_NAMESPACE}_engine_{name}", text, labels=labels), rows)


def _counter(name: str, text: str, rows: _Rows, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"{_NAMESPACE}_engine_{name}", text, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: _Rows) -> Metric:
    for row, value in rows if isinstance(rows, Sequence) else [((), rows)]:
        family.add_metric(row, value)
    return family
