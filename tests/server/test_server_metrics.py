"""The estimate of what a listener without a buffer would have missed."""

from __future__ import annotations

from realtime_tts.server.metrics import PlaybackEstimate


def test_packets_in_time_are_no_underrun() -> None:
    estimate = PlaybackEstimate()
    assert not any(estimate.packet(0.02, now) for now in (5.0, 5.0, 5.01, 5.03, 5.05, 5.12))


def test_a_gap_is_one_underrun_and_moves_the_clock() -> None:
    estimate = PlaybackEstimate()
    assert not estimate.packet(0.02, 1.0)
    assert estimate.packet(0.02, 2.0)
    assert not estimate.packet(0.02, 2.02)


def test_a_lead_covers_a_pause() -> None:
    estimate = PlaybackEstimate()
    for _ in range(50):
        estimate.packet(0.02, 1.0)
    assert not estimate.packet(0.02, 1.9)
    assert not estimate.packet(0.02, 2.05)
    assert estimate.packet(0.02, 2.5)
