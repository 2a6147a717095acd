"""Holds of a listener to the starter voice, by the audio alone."""

from __future__ import annotations

import pytest

from benchmarks.holds import measure
from realtime_tts.bench.server_process import RunningServer


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hold_stops_at_the_end_of_a_word_without_a_click(server: RunningServer) -> None:
    """The lab's figures are of 200 holds: 98 % at a word's end, silence after 448 ms (p95), no jump."""
    figures = measure(server.url.replace("http", "ws"), num_holds=60, seed=1)
    assert figures["at_word_end"] >= 0.92
    assert figures["silence_p95_ms"] <= 650
    assert figures["word_end_p50_ms"] <= 35
    assert figures["jump_max"] <= 0.1
