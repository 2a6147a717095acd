"""The judgement that drives beside an attack rest on."""

from __future__ import annotations

import pytest
from honest_client import Comparison, Turns

from realtime_tts.bench.streams import Heard


def turns(first_s: float, *, late_s: float = 0.0, error: str = "", number: int = 5) -> Turns:
    """Turns of two pieces of audio each, the second of which comes `late_s` after it was due in one turn."""
    heard = [Heard(chunks=[(first_s, 0.0), (first_s + 0.1, 0.2)]) for _ in range(number)]
    heard[0].chunks[1] = (first_s + 0.2 + late_s, 0.2)
    heard[0].error = error
    return Turns(heard)


HELD_UP = turns(0.02, late_s=0.11)


@pytest.mark.parametrize(
    ("rounds", "suffers"),
    [
        ([turns(0.099, late_s=0.09)], False),
        ([turns(0.11)], True),
        ([HELD_UP], True),
        ([turns(0.02, error="overloaded")], True),
        ([Turns(turns(0.02, late_s=0.01).heard[:1] * 3)], True),
        ([HELD_UP, turns(0.02), turns(0.02, error="overloaded")], False),
        ([HELD_UP, HELD_UP, HELD_UP], True),
        ([turns(0.02), Turns(HELD_UP.heard[:1] * 5)], True),
    ],
    ids=[
        "served",
        "late",
        "one long stall",
        "refused",
        "three short stalls",
        "by the machine",
        "in each round",
        "most turns",
    ],
)
def test_an_honest_client_that_suffers_is_seen(rounds: list[Turns], suffers: bool) -> None:
    comparison = Comparison(turns(0.02), rounds, num_attacks=1)
    if suffers:
        with pytest.raises(AssertionError):
            comparison.check()
    else:
        comparison.check()


def test_an_attack_that_did_nothing_shows_nothing() -> None:
    with pytest.raises(AssertionError):
        Comparison(turns(0.02), [turns(0.02)]).check()


def test_a_machine_that_is_busy_is_one_for_both() -> None:
    Comparison(Turns(HELD_UP.heard[:1] * 5), [turns(0.02), Turns(HELD_UP.heard[:1] * 5)], num_attacks=1).check()
