"""The player, the load and what is counted of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.load_result import load_result
from realtime_tts.bench.native_stream import CUT_OFF
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard, gaps, mean_and_peak
from realtime_tts.bench.usage import Usage

CHUNK_S = 0.16
# When each chunk comes after the one before it, in ms.
GAPS = st.lists(st.integers(0, 600), min_size=1, max_size=30)


def chunks_of(gaps_ms: list[int]) -> list[tuple[float, float]]:
    arrived_s, chunks = 0.0, []
    for index, gap_ms in enumerate(gaps_ms):
        arrived_s += gap_ms / 1000
        chunks.append((arrived_s, index * CHUNK_S))
    return chunks


def stalls_s(chunks: list[tuple[float, float]], pre_buffer_s: float) -> list[float]:
    return [length_s for _, length_s, _ in gaps(chunks, pre_buffer_s)]


@given(GAPS, st.integers(0, 500))
def test_a_player_stands_still_as_long_as_its_latest_chunk_is_late(gaps_ms: list[int], pre_buffer_ms: int) -> None:
    chunks = chunks_of(gaps_ms)
    found_s = stalls_s(chunks, pre_buffer_ms / 1000)
    start_s = chunks[0][0] + pre_buffer_ms / 1000
    latest_s = max(arrived_s - start_s - begins_s for arrived_s, begins_s in chunks)
    assert sum(found_s) == pytest.approx(max(0.0, latest_s), abs=1.1e-3)
    assert all(length_s > 0 for length_s in found_s)


@given(GAPS, st.integers(0, 500), st.integers(0, 500))
def test_a_larger_buffer_never_stalls_longer(gaps_ms: list[int], one_ms: int, other_ms: int) -> None:
    small, large = sorted((one_ms, other_ms))
    chunks = chunks_of(gaps_ms)
    assert sum(stalls_s(chunks, large / 1000)) <= sum(stalls_s(chunks, small / 1000)) + 1.1e-3


@given(GAPS, st.integers(0, 500))
def test_what_a_stream_keeps_of_its_chunks_is_played_as_all_of_them(gaps_ms: list[int], pre_buffer_ms: int) -> None:
    chunks = chunks_of(gaps_ms)
    stream = Heard()
    for chunk in chunks:
        stream.hear(*chunk)
    assert stream.stalls_s(pre_buffer_ms / 1000) == stalls_s(chunks, pre_buffer_ms / 1000)
    assert (stream.num_chunks, stream.last_s, stream.position_s) == (len(chunks), *chunks[-1])


def test_known_playbacks() -> None:
    late = [(0.10, 0.0), (0.20, 0.16), (0.50, 0.32), (0.61, 0.48)]  # the third is due at 0.42, the fourth at 0.66 then
    assert stalls_s(late, 0.0) == pytest.approx([0.08])
    assert stalls_s(late, 0.1) == []
    twice = [(0.0, 0.0), (0.26, 0.16), (0.62, 0.32)]  # late by 0.1; due then at 0.42, late by 0.2
    assert stalls_s(twice, 0.0) == pytest.approx([0.1, 0.2])
    with pytest.raises(ValueError):
        gaps([], 0.1)
    assert Heard().stalls_s(0.1) == [math.inf]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5)), max_size=20))
def test_mean_and_peak_concurrency_are_within_their_bounds(spans: list[tuple[float, float]]) -> None:
    mean, peak = mean_and_peak([(start_s, start_s + long_s) for start_s, long_s in spans], 2.0, 8.0)
    assert 0 <= mean <= peak + 1e-9 <= len(spans) + 1e-9
    assert mean * 6.0 <= sum(long_s for _, long_s in spans) + 1e-6


def test_known_concurrency() -> None:
    assert mean_and_peak([(0, 4), (2, 6), (6, 7)], 0, 8) == (9 / 8, 2)
    assert mean_and_peak([(0, 2), (2, 4)], 0, 4) == (1.0, 1)
    with pytest.raises(ValueError):
        mean_and_peak([], 1, 1)


def stream(first_s: float, gap_s: float = CHUNK_S, num_chunks: int = 4, **fields: object) -> Heard:
    chunks = [(first_s + index * gap_s, index * CHUNK_S) for index in range(num_chunks)]
    ended_s = chunks[-1][0] if chunks else 0.5
    return Heard(chunks=chunks, audio_s=num_chunks * CHUNK_S, ended_s=ended_s, **fields)  # type: ignore[arg-type]


def test_the_bar_allows_a_twentieth_late_and_a_thousandth_stalled() -> None:
    bar = Bar()
    good, late, stalls = stream(0.05), stream(0.2), stream(0.05, gap_s=0.2)
    assert bar.holds([good] * 19 + [late])
    assert not bar.holds([good] * 18 + [late] * 2)
    assert bar.holds([good] * 999 + [stalls])
    assert not bar.holds([good] * 998 + [stalls])
    assert not bar.holds([good] * 900 + [stream(0.05, num_chunks=0)])
    assert not bar.holds([])
    for error in (GAVE_UP, CUT_OFF, "engine_lost", "connection_lost"):  # after audio without a stall
        assert bar.holds([good] * 999 + [stream(0.05, error=error)])
        assert not bar.holds([good] * 999 + [stream(0.05, error=error)] * 2)
    assert Bar(pre_buffer_ms=200).holds([stalls])


def test_a_result_counts_what_is_judged_and_shows_what_failed() -> None:
    streams = [
        stream(0.05),
        stream(0.05, gap_s=0.24, scheduled_s=1.0),
        stream(9.0, judged=False),
        stream(0.0, num_chunks=0, error="engine_lost"),
    ]
    result = load_result(streams, OpenLoad(rate_per_s=1.0, turn_s=0.0, window_s=2.0), Usage(), [])
    assert result.streams == 3
    assert result.errors == {"engine_lost": 1}
    assert result.first_audio_ms.p50 == pytest.approx(50)
    assert result.first_audio_ms.max == math.inf
    assert result.stalls["0"].num_streams == 2
    assert result.stalls["200"].num_streams == 2  # late by 240 ms in all, the last chunk
    assert result.stalls["0"].share == pytest.approx(2 / 3)
    assert result.listening_peak == 3


def test_a_stream_is_heard_until_its_last_sample_was_played() -> None:
    start_s, end_s = stream(0.1, gap_s=0.2, scheduled_s=3.0).span
    assert (start_s, end_s) == (3.0, pytest.approx(3.0 + 0.1 + 4 * CHUNK_S + 3 * 0.04))
    assert stream(0.0, num_chunks=0, scheduled_s=1.0).span == (1.0, 1.5)


def test_a_listener_whose_connection_was_lost_has_listened_until_then() -> None:
    lost = Heard(3.0, [(0.1, 0.0)], num_chunks=100, last_s=2.08, position_s=1.98, ended_s=2.1, error="connection_lost")
    assert lost.span == (3.0, pytest.approx(3.0 + 0.1 + 1.98))
