"""The path from readings to characters."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.engine.text_track import TextTrack, character_at


def test_a_token_begins_at_its_first_character_and_goes_on_to_the_next() -> None:
    chars = [0, 6, 7, 12]
    assert [character_at(index, chars) for index in (0, 0.5, 1, 1.5, 2.2, 3)] == [0, 3, 6, 6.5, 8, 12]
    assert character_at(-1.0, chars) == 0
    assert character_at(99.0, chars) == 12
    assert character_at(0.7, [4]) == 4


def test_a_reading_that_goes_back_or_is_no_number_moves_nothing() -> None:
    track, chars = TextTrack(), list(range(20))
    readings = [1.0, 3.0, 2.0, math.nan, math.inf, 3.5]
    assert [track.advance(reading, chars) for reading in readings] == [1.0, 3.0, 3.0, None, None, 3.5]
    assert track.advance(5.0, []) is None


def test_text_that_grows_and_moves_keeps_what_was_reached() -> None:
    track = TextTrack()
    assert track.advance(2.0, [0, 1, 2]) == 2.0
    assert track.advance(1.5, [0, 1, 2, 3, 4]) == 2.0
    assert track.advance(3.0, [0, 1, 2, 3, 4]) == 3.0


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40),
)
def test_whatever_is_read_the_path_stays_in_the_text_and_never_goes_back(
    gaps: list[int], readings: list[float]
) -> None:
    chars = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    track = TextTrack()
    path = [position for reading in readings if (position := track.advance(reading, chars)) is not None]
    assert path == sorted(path)
    assert all(0 <= position <= chars[-1] for position in path)
