"""Holds of a listener to the starter voice, by the audio alone."""

from __future__ import annotations

import pytest

from benchmarks.holds import measure
from realtime_tts.bench.server_process import RunningServer


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hold_stops_at_the_end_of_a_word_without_a_click(server: RunningServer) -> None:
    """Exactly at the end of a word as reported, and by the audio where words end as well as the voice's word times say:
    how exact those are is the voice's matter, and measured in the lab."""
    figures = measure(server.url.replace("http", "ws"), num_holds=60, seed=1)
    assert figures["inside_reported_word"] == 0
    # Of 60 holds three standard deviations; of stops at random half would be at a word's end.
    assert figures["at_word_end"] >= figures["reported_ends_at_word_end"] - 0.12
    assert figures["reported_ends_at_word_end"] >= 0.75
    assert figures["word_end_p50_ms"] <= 80  # ends that are estimated by length are off by 370
    assert figures["jump_max"] <= 0.1
