"""What of a live turn's times is the text's, and what is the server's."""

from __future__ import annotations

import pytest

from benchmarks.devices import longest_gaps_ms, written_s
from realtime_tts.bench.streams import Heard

WRITTEN = [(0.1, 9), (0.5, 20), (1.0, 60)]  # seconds, characters


def turn(*chunks: tuple[float, float]) -> Heard:
    return Heard(chunks=list(chunks), written=WRITTEN, words=[(0.0, 0), (6.0, 60)])


def test_speech_needs_its_beginning_and_then_text_in_front() -> None:
    places_s = {0.0: 0.1, 0.09: 0.1, 0.32: 0.5, 0.6: 0.5, 0.64: 1.0, 5.9: 1.0}
    assert {begins_s: written_s(turn(), begins_s) for begins_s in places_s} == places_s


def test_a_gap_is_the_texts_if_text_was_missing_when_it_began() -> None:
    late_text = turn((0.15, 0.0), (1.1, 0.64))  # due at 0.79, its text came at 1.0
    assert longest_gaps_ms(late_text, 0) == (0.0, pytest.approx(310))
    late_audio = turn((0.15, 0.0), (1.5, 1.28))  # due at 1.43
    assert longest_gaps_ms(late_audio, 0) == (pytest.approx(70), 0.0)
    assert longest_gaps_ms(late_audio, 60) == (pytest.approx(10), 0.0)
    assert longest_gaps_ms(late_audio, 100) == (0.0, 0.0)


def test_a_turn_without_speech_is_ours() -> None:
    assert longest_gaps_ms(turn(), 100)[0] == float("inf")
