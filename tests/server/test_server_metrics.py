"""What is counted: contexts and interruptions, and what a listener without a buffer would have missed."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract import frames
from realtime_tts.server.metrics import Metrics, PlaybackEstimate
from realtime_tts.server.stream.account import SessionAccount
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    ContextCancelled,
    ContextDone,
    ContextReleased,
    ContextStarted,
)
from realtime_tts.workers.pool import COUNTED
from realtime_tts.workers.recovery import DeviceReport
from realtime_tts.workers.worker_view import WorkerView


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def account(metrics: Metrics) -> SessionAccount:
    return SessionAccount(metrics, "s")


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"realtime_tts_{name}", labels) or 0.0


def started(context_id: str, number: int) -> ContextStarted:
    return ContextStarted(context_id, 0, number, "slt", 1, AudioFormat())


class Workers:
    """An `EngineClient`, as far as the exposition reads it."""

    num_ready, num_restarts, ready = 1, 0, None

    def __init__(self) -> None:
        self.stats: list[frames.Stats] = []
        self.devices: list[DeviceReport] = []
        self.workers: list[WorkerView] = []
        self.totals = dict.fromkeys(COUNTED, 0)
        self.keeper = self


def test_text_faults_are_counted_by_kind(metrics: Metrics) -> None:
    engine: Any = Workers()
    metrics.exposition(engine)
    faults = {"ends_cut": 5, "ends_continued": 1, "babbles": 2, "skips": 3, "repeats_mended": 4, "stuck": 6}
    engine.totals.update(faults)
    for _ in range(2):  # twice read is not twice counted
        text = metrics.exposition(engine).decode()
    kinds = {"end_cut": "mended", "end_continued": "mended", "babble": "heard", "skip": "heard", "repeat": "mended"}
    for (kind, result), count in zip([*kinds.items(), ("stuck", "heard")], faults.values(), strict=True):
        assert f'realtime_tts_engine_text_faults_total{{kind="{kind}",result="{result}"}} {count}.0' in text
    assert 'realtime_tts_engine_text_faults_total{kind="skip",result="mended"} 0.0' in text


def test_names_follow_prometheus_conventions(metrics: Metrics) -> None:
    engine: Any = Workers()
    engine.stats = [frames.Stats(step_ms=12.0)]
    engine.workers = [WorkerView("worker-0", stats=frames.Stats(fixed_ms=5.0), num_others=1)]
    engine.totals.update(busy_ms=1500.0, gap_ms=250.0)
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition(engine).decode())}
    for name, family in families.items():
        assert not name.endswith(("_ms", "_milliseconds", "_total")), "base units; the suffix is the sample's"
        assert len(family.documentation) > 5, name
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples), name

    def value_of(name: str) -> float:
        return families[f"realtime_tts_{name}"].samples[0].value

    assert value_of("engine_busy_seconds") == 1.5
    assert value_of("engine_gap_seconds") == 0.25
    assert value_of("engine_step_seconds") == 0.012
    assert value_of("engine_step_cost_seconds") == 0.005


def test_a_cancel_of_what_was_sent_but_not_heard_is_an_interruption(metrics: Metrics, account: SessionAccount) -> None:
    for message in (
        started("a", 1),
        ContextDone("a", 1, 3000.0, 40, 20.0),
        CancelAcknowledged("a", "done", 1200.0, "One", 3),
        CancelAcknowledged("a", "done", 1200.0, "One", 3),  # said again it is the same one
        CancelAcknowledged(None, "all"),
    ):
        account.sent(message, 1.0)
    assert value(metrics, "barge_ins_total") == 1
    assert value(metrics, "contexts_total", outcome="done") == 1


def test_a_cancel_of_what_was_heard_is_none(metrics: Metrics, account: SessionAccount) -> None:
    for message in (
        started("a", 1),
        ContextDone("a", 1, 3000.0, 40, 20.0),
        CancelAcknowledged("a", "done", 3000.0, "One two", 7),
        started("b", 2),
        ContextCancelled("b", 1, 100.0, "", 0),
        CancelAcknowledged("b", "cancelled", 100.0, "", 0),
        CancelAcknowledged("x", "unknown"),
    ):
        account.sent(message, 1.0)
    assert value(metrics, "barge_ins_total") == 1  # b's own cancel


def test_a_cancel_by_the_server_itself_is_no_interruption(metrics: Metrics, account: SessionAccount) -> None:
    for message in (started("a", 1), ContextCancelled("a", 1, 100.0, "", 0, by_client=False)):
        account.sent(message, 1.0)
    assert value(metrics, "contexts_total", outcome="cancelled") == 1
    assert value(metrics, "barge_ins_total") == 0


def test_only_the_contexts_done_lately_are_remembered(metrics: Metrics, account: SessionAccount) -> None:
    for number in range(100):
        account.sent(started(f"c{number}", number + 1), 1.0)
        account.sent(ContextDone(f"c{number}", 1, 3000.0, 40, 20.0), 1.0)
    for number in range(100):
        account.sent(CancelAcknowledged(f"c{number}", "done", 0.0), 1.0)
    assert value(metrics, "barge_ins_total") == 16


def test_messages_sent_again_after_a_resume_are_not_counted_again(metrics: Metrics, account: SessionAccount) -> None:
    done = ContextDone("a", 1, 3000.0, 40, 20.0)
    for message in (started("a", 1), done, done, started("a", 1), done):
        account.sent(message, 1.0)
        account.sent(CancelAcknowledged("a", "done", 100.0), 1.0)
    assert value(metrics, "contexts_total", outcome="done") == 1
    assert value(metrics, "barge_ins_total") == 1
    account.abandoned()
    assert value(metrics, "contexts_total", outcome="abandoned") == 0


def test_packets_that_leave_together_are_each_counted_and_late_once(metrics: Metrics, account: SessionAccount) -> None:
    account.sent(started("a", 1), 1.0)
    for patch, now in ((0, 1.0), (1, 1.1), (2, 2.0)):
        packets = Packets((b"",) * 8, 960 * 8 * patch, 960)
        account.sent(AudioPackets("a", 1 + 8 * patch, 1, packets), now)
    assert value(metrics, "packets_total", codec="opus") == 24
    assert value(metrics, "audio_seconds_total") == pytest.approx(0.48)
    assert value(metrics, "underruns_estimated_total") == 1


def test_packets_sent_again_after_a_resume_are_not_counted_again(metrics: Metrics, account: SessionAccount) -> None:
    account.sent(started("a", 1), 1.0)
    for first, num_packets in ((0, 8), (4, 4), (6, 10)):
        account.sent(AudioPackets("a", 1 + first, 1, Packets((b"",) * num_packets, 960 * first, 960)), 1.0)
    assert value(metrics, "packets_total", codec="opus") == 16
    assert value(metrics, "audio_seconds_total") == pytest.approx(0.32)


def test_a_hold_is_no_underrun(metrics: Metrics, account: SessionAccount) -> None:
    account.sent(started("a", 1), 1.0)
    account.sent(AudioPackets("a", 1, 1, Packets((b"",), 0, 960)), 1.0)
    account.sent(ContextReleased("a", 20.0), 9.0)
    account.sent(AudioPackets("a", 2, 1, Packets((b"",), 960, 960)), 9.0)
    assert value(metrics, "underruns_estimated_total") == 0


def test_packets_in_time_are_no_underrun() -> None:
    estimate = PlaybackEstimate()
    assert not any(estimate.sent(0.02, now) for now in (5.0, 5.0, 5.01, 5.03, 5.05, 5.12))


def test_a_gap_is_one_underrun_and_moves_the_clock() -> None:
    estimate = PlaybackEstimate()
    assert not estimate.sent(0.02, 1.0)
    assert estimate.sent(0.02, 2.0)
    assert not estimate.sent(0.02, 2.02)


def test_a_lead_covers_a_pause() -> None:
    estimate = PlaybackEstimate()
    for _ in range(50):
        estimate.sent(0.02, 1.0)
    assert not estimate.sent(0.02, 1.9)
    assert not estimate.sent(0.02, 2.05)
    assert estimate.sent(0.02, 2.5)
