"""Made-up tracks through a text: faults in them, and where each began."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from realtime_tts.engine.proofreader import Fault, Finding, Proofreader

END = 60.0
PACE = 2.4  # characters a patch
RIGHT = [PACE * number for number in range(25)]


def read(
    places: Iterable[float], *, attends_text: bool = True, sounds: bool = True, patch_s: float = 0.16
) -> list[tuple[int, Finding]]:
    """Return the findings, each with the number of patches made by then."""
    proofreader, found = Proofreader(patch_s), []
    for number, place in enumerate(places, start=1):
        finding = proofreader.observe(place, end=END, attends_text=attends_text, sounds=sounds)
        if finding is not None:
            found.append((number, finding))
    return found


def test_speech_from_the_first_character_to_the_last_has_no_fault() -> None:
    assert read([*RIGHT, *[END] * 30]) == []
    assert read([*RIGHT[:8], END, *RIGHT[9:14], 2.0, *RIGHT[15:]]) == []  # single readings that are wrong


@pytest.mark.parametrize(("leap", "num_made"), [(14.0, 12), (9.0, None)])
def test_a_skip_is_found_when_a_second_reading_confirms_it(leap: float, num_made: int | None) -> None:
    found = read([*RIGHT[:10], *[place + leap for place in RIGHT[10:15]]])
    assert found == ([] if num_made is None else [(num_made, Finding(Fault.SKIP, 9))])


def test_a_skip_over_two_patches_is_found_once() -> None:
    assert read([*RIGHT[:8], *[place + 9 for place in RIGHT[8:9]], *[place + 18 for place in RIGHT[9:15]]]) == [
        (11, Finding(Fault.SKIP, 7))
    ]
    assert [finding.fault for _, finding in read([0.0, 2.0, 20.0, 22.0, 40.0, 42.0])] == [Fault.SKIP, Fault.SKIP]


def test_a_text_that_begins_in_the_middle_is_said_from_its_beginning() -> None:
    assert read([20.0, 22.0, 24.0]) == [(2, Finding(Fault.SKIP, 0))]


@pytest.mark.parametrize(("back", "found"), [(4, [(14, Finding(Fault.REPEAT, 11))]), (3, [])], ids=["far", "near"])
def test_a_repeat_is_found_while_it_is_behind(back: int, found: list[tuple[int, Finding]]) -> None:
    assert read([*RIGHT[:11], RIGHT[10], *RIGHT[11 - back : 20]]) == found


def test_a_repeat_counts_once_and_each_of_two_counts() -> None:
    assert len(read([*RIGHT[:11], *RIGHT[3:20]])) == 1
    assert len(read([*RIGHT[:11], *RIGHT[5:15], *RIGHT[9:20]])) == 2


def test_where_the_head_looks_elsewhere_nothing_is_said_again() -> None:
    assert read([*RIGHT[:11], *RIGHT[3:20]], attends_text=False) == []


@pytest.mark.parametrize(("patch_s", "num_patches"), [(0.16, 10), (0.08, 20)])
def test_sound_that_goes_on_without_the_text_is_stuck(patch_s: float, num_patches: int) -> None:
    places = [*RIGHT[:8], *[RIGHT[7]] * 60]
    found = read(places, patch_s=patch_s)
    number, finding = found[0]
    assert finding == Finding(Fault.STUCK, number - 1 - num_patches)
    assert number == 9 + num_patches  # the last place is certain with its second reading
    assert len(found) > 1  # again as long as it goes on
    assert read(places, patch_s=patch_s, sounds=False) == []  # a pause


def test_what_is_said_again_is_followed_from_where_it_was_cut() -> None:
    proofreader = Proofreader(0.16)
    for place in [*RIGHT[:10], *[place + 20 for place in RIGHT[10:12]]]:
        finding = proofreader.observe(place, end=END, attends_text=True, sounds=True)
    assert finding == Finding(Fault.SKIP, 9)
    proofreader.rewind(9)
    assert proofreader.certain == proofreader.places[-1] == RIGHT[7]
    assert not any(proofreader.observe(place, end=END, attends_text=True, sounds=True) for place in RIGHT[9:])
    proofreader.rewind(0)
    assert (proofreader.certain, proofreader.places) == (0.0, [])


@pytest.mark.parametrize(
    ("places", "has_followed"),
    [([*RIGHT, END], True), (RIGHT[:20], False), ([50.0] * 20, False), ([*RIGHT[:8], *RIGHT[14:], END], False)],
    ids=["right", "not to the end", "not moved", "skipped"],
)
def test_a_head_follows_if_it_goes_through_a_whole_text(places: list[float], has_followed: bool) -> None:
    proofreader = Proofreader(0.16)
    for place in [*places, places[-1]]:
        proofreader.observe(place, end=END, attends_text=True, sounds=True)
    assert proofreader.has_followed == has_followed


def test_a_head_that_never_moves_finds_nothing() -> None:
    assert read([7.0 + number % 2 for number in range(60)]) == []
