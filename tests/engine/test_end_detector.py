"""Made-up tracks through a text: what they say of an end, and of what was left out or said twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from realtime_tts.engine import end_detector, proofreader
from realtime_tts.engine.end_detector import EndDetector, PatchReading

END = 48.0  # of the text, whose last token is a full stop
LOUD, SILENT = 0.01, 0.01 * 10**-7.5
PACE = 2.4  # characters a patch
SPOKEN = [PACE * number for number in range(21)]  # up to the end, which the last of them has come to


class Patch(NamedTuple):
    position: float
    mass: float = 1.0
    power: float = LOUD
    stop: bool = False


def speak(
    patches: Iterable[Patch],
    *,
    reach: float = 1.0,
    patch_s: float = 0.16,
    end: float = END,
    length: float = END + 1,
    may_stop: bool = True,
) -> tuple[EndDetector, int | None]:
    """→ the detector, and how many patches it took to the last one; None if none was the last."""
    detector, furthest = EndDetector(reach, patch_s), 0.0
    for number, patch in enumerate(patches, start=1):
        furthest = max(furthest, patch.position)
        heard = PatchReading(patch.position, furthest, patch.mass, patch.power, end, length)
        if detector.observe(heard, stop=patch.stop, may_stop=may_stop):
            return detector, number
    return detector, None


def patches(*positions: float, mass: float = 1.0, power: float = LOUD) -> list[Patch]:
    return [Patch(position, mass, power) for position in positions]


def with_stop(track: list[Patch], *numbers: int) -> list[Patch]:
    return [patch._replace(stop=number in numbers) for number, patch in enumerate(track)]


def corrections(detector: EndDetector) -> dict[str, int]:
    return {name: count for name, count in detector.faults.items() if count}


@pytest.mark.parametrize("num_after", [0, 1, 2, 4])
def test_speech_that_stops_when_its_text_is_used_up_is_as_the_stop_head_says(num_after: int) -> None:
    track = [*patches(*SPOKEN), *patches(*[END] * num_after, mass=0.5, power=SILENT)]
    detector, length = speak(with_stop(track, len(track) - 1))
    assert length == len(track)
    assert corrections(detector) == {}
    assert detector.num_sound == min(length, len(SPOKEN) + 2)


def test_a_text_that_is_used_up_ends_some_patches_after_the_head_looks_elsewhere() -> None:
    detector, length = speak([*patches(*SPOKEN), *patches(*[END] * 20, mass=0.69, power=SILENT)])
    assert length == len(SPOKEN) + 4
    assert corrections(detector) == {"ends_cut": 1}
    # A head whose mass is never more than that is not said to look elsewhere, and time decides.
    detector, length = speak([*patches(*SPOKEN, mass=0.69), *patches(*[END] * 20, mass=0.69, power=SILENT)])
    assert length == len(SPOKEN) + 9  # 1.2 s, and the last token's character
    assert corrections(detector) == {"ends_cut": 1}


def test_the_last_token_gets_its_time() -> None:
    """The position within a long word, and within the only word of many texts, is the word's beginning."""
    track = patches(*[0.0] * 40)
    for length, expected in ((0.0, 8), (1.0, 9), (15.0, 23)):
        assert speak(track, end=0.0, length=length)[1] == expected


def test_a_stop_in_time_is_no_correction_though_the_text_was_used_up_for_long() -> None:
    track = [*patches(*SPOKEN), *patches(*[END] * 20, mass=0.5, power=SILENT)]
    detector, length = speak(with_stop(track, len(SPOKEN) + 3))
    assert length == len(SPOKEN) + 4
    assert corrections(detector) == {}


def test_sound_behind_the_text_is_babble_and_not_what_the_next_one_continues_from() -> None:
    for power, babbles in ((LOUD, True), (1.1 * 1e-4 * LOUD, True), (0.9 * 1e-4 * LOUD, False)):
        detector, length = speak([*patches(*SPOKEN), *patches(*[END] * 20, mass=0.2, power=power)])
        assert detector.faults["babbles"] == babbles
        assert (length, detector.num_sound) == (len(SPOKEN) + 4, len(SPOKEN) + 2)


def test_nothing_ends_and_nothing_counts_before_the_text_is_known_to_its_end() -> None:
    track = [*patches(*SPOKEN), *patches(*[END] * 20, mass=0.5)]
    detector, length = speak(with_stop(track, 3, 30), may_stop=False)
    assert length is None
    assert corrections(detector) == {}


@pytest.mark.parametrize("at", [4, 10, 16])
def test_a_stop_with_words_left_is_not_believed_and_the_next_one_is(at: int) -> None:
    track = [*patches(*SPOKEN), *patches(END, END)]
    detector, length = speak(with_stop(track, at, at + 1, len(SPOKEN)))
    assert length == len(SPOKEN) + 1
    assert corrections(detector) == {"ends_continued": 1}


def test_a_stop_that_takes_no_word_away_is_believed() -> None:
    left = [END - position for position in SPOKEN]
    (last_doubted, first_believed) = next(
        (n, n + 1) for n in range(20) if left[n] > end_detector.MIN_LEFT_CHARS >= left[n + 1]
    )
    assert speak(with_stop(patches(*SPOKEN), last_doubted))[1] is None
    assert speak(with_stop(patches(*SPOKEN), first_believed))[1] == first_believed + 1


def test_what_the_head_never_reaches_is_not_held_against_a_stop() -> None:
    assert speak(with_stop(patches(*SPOKEN), 16), reach=0.79)[1] == 17  # 9.6 of 48 left
    assert speak(with_stop(patches(*SPOKEN), 15), reach=0.79)[1] is None


def test_a_stop_is_believed_where_the_head_does_not_look_at_the_text() -> None:
    track = with_stop(patches(*SPOKEN), 10)
    track[10] = track[10]._replace(mass=0.6)
    detector, length = speak(track)
    assert length == 11
    assert corrections(detector) == {}


def test_speech_that_does_not_advance_after_a_stop_has_stopped() -> None:
    """A position that is wrong costs a second of silence, not speech without an end."""
    stuck = patches(*SPOKEN[:11], *[SPOKEN[10]] * 50)
    detector, length = speak(with_stop(stuck, 10))
    assert length == 11 + 6
    assert corrections(detector) == {"ends_continued": 1}
    slow = patches(*SPOKEN[:11], *[SPOKEN[10] + 0.66 * n for n in range(1, 50)])
    assert speak(with_stop(slow, 10))[1] == length
    faster = patches(*SPOKEN[:11], *[SPOKEN[10] + 0.67 * n for n in range(1, 20)])
    assert speak(with_stop(faster, 10))[1] is None


def test_a_stop_head_that_always_fires_is_held_back_as_long_as_there_is_speech() -> None:
    track = [*patches(*SPOKEN), *patches(END, END)]
    detector, length = speak(with_stop(track, *range(4, 23)))
    assert length == next(n for n, place in enumerate(SPOKEN, 1) if END - place <= end_detector.MIN_LEFT_CHARS)
    assert corrections(detector) == {"ends_continued": 1}


def test_a_stretch_that_no_voice_could_have_spoken_was_left_out() -> None:
    jump = proofreader.SKIPS[0][1]
    for leap, num_skips in ((jump + 0.01, 1), (jump - 0.01, 0)):
        after = [4.8 + leap + PACE * n for n in range(12)]
        detector, _ = speak(with_stop(patches(*SPOKEN[:3], *after), 14))
        assert detector.faults["skips"] == num_skips
    detector, _ = speak(patches(14.0, 16.0, 18.0))  # it began in the middle
    assert detector.faults["skips"] == 1
    detector, _ = speak(patches(0.0, 2.0, 20.0, 22.0, 40.0, 42.0))
    assert detector.faults["skips"] == 2


def test_one_reading_by_itself_says_nothing() -> None:
    stray = patches(*SPOKEN[:8], END, *SPOKEN[9:14], 2.0, *SPOKEN[15:], END)
    detector, length = speak(with_stop(stray, len(stray) - 1))
    assert length == len(stray)
    assert corrections(detector) == {}
    wild = patches(*SPOKEN[:6], *[END, 14.4] * 12, mass=0.5)  # at the end every other patch
    assert speak(wild)[1] is None


def test_a_stretch_that_is_gone_back_to_was_said_again() -> None:
    again = patches(*SPOKEN[:11], *SPOKEN[5:])
    detector, _ = speak(with_stop(again, len(again) - 1))
    assert corrections(detector) == {"repeats": 1}
    twice = patches(*SPOKEN[:11], *SPOKEN[5:15], *SPOKEN[9:])
    assert speak(twice)[0].faults["repeats"] == 2
    back = proofreader.REPEATS[1][1]
    for place, count, num_repeats in ((-back - 0.01, 3, 1), (-back - 0.01, 2, 0), (-back + 0.01, 9, 0)):
        detector, _ = speak(patches(*SPOKEN[:11], SPOKEN[10], *[SPOKEN[10] + place] * count, *SPOKEN[11:]))
        assert detector.faults["repeats"] == num_repeats
    elsewhere = [patch._replace(mass=0.5) if 11 <= number < 16 else patch for number, patch in enumerate(again)]
    assert speak(elsewhere)[0].faults["repeats"] == 0


def test_what_counts_is_time_and_not_patches() -> None:
    """With patches of 80 ms, each number of them is twice as large."""
    halves = [PACE / 2 * number for number in range(41)]
    track = [*patches(*halves), *patches(*[END] * 40, mass=0.5)]
    detector, length = speak(track, patch_s=0.08)
    assert length == len(halves) + 7
    assert corrections(detector) == {"ends_cut": 1, "babbles": 1}
    stuck = patches(*halves[:21], *[halves[20]] * 50)
    assert speak(with_stop(stuck, 20), patch_s=0.08)[1] == 21 + 12
