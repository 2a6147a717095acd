"""The policy for sounds of the caller, and how often it is wrong."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from hold_policy import DECIDE_MS, QUIET_MS, HoldPolicy
from nods import RATE_HZ, measure
from speech_detector import SpeechDetector

PACKET_MS = 20
QUIET, LOUD = 0, 3000  # levels


class Ear:
    """A caller's line: the policy's actions in order, and the time of the last one."""

    def __init__(self) -> None:
        self.policy = HoldPolicy()
        self.actions: list[str] = []
        self.now_ms = self.acted_ms = 0
        self.bot_speaks = True
        self._detector = SpeechDetector(RATE_HZ)
        self._rng = np.random.default_rng(0)

    def hear(self, level: int, for_ms: float) -> None:
        for _ in range(round(for_ms / PACKET_MS)):
            samples = self._rng.normal(0, level, RATE_HZ * PACKET_MS // 1000).astype(np.int16)
            self._detector.feed(samples)
            self.now_ms += PACKET_MS
            if action := self.policy.update(self._detector, self.bot_speaks):
                self.actions.append(action)
                self.acted_ms = self.now_ms
                self.bot_speaks = action != "cancel"


def test_a_short_sound_holds_and_quiet_lets_the_bot_go_on() -> None:
    ear = Ear()
    ear.hear(LOUD, 300)
    assert (ear.actions, ear.policy.is_held) == (["hold"], True)
    ear.hear(QUIET, QUIET_MS)
    assert (ear.actions, ear.acted_ms, ear.policy.is_held) == (["hold", "release"], 300 + QUIET_MS, False)
    ear.hear(QUIET, 2000)
    assert len(ear.actions) == 2
    assert ear.policy.is_nod


def test_a_sound_that_goes_on_ends_the_turn() -> None:
    ear = Ear()
    ear.hear(LOUD, 2000)
    assert ear.actions == ["hold", "cancel"]
    assert ear.acted_ms == DECIDE_MS
    assert not ear.policy.is_nod


def test_speech_with_a_pause_after_its_first_word_ends_the_turn() -> None:
    ear = Ear()
    ear.hear(LOUD, 200)
    ear.hear(QUIET, 300)  # "no …"
    ear.hear(LOUD, 400)
    assert ear.actions == ["hold", "release", "hold", "cancel"]
    assert not ear.policy.is_nod


def test_every_nod_is_a_sound_of_its_own() -> None:
    ear = Ear()
    for _ in range(3):
        ear.hear(LOUD, 300)
        ear.hear(QUIET, 1000)
    assert ear.actions == ["hold", "release"] * 3


def test_a_sound_while_the_bot_is_silent_is_a_turn_however_short() -> None:
    ear = Ear()
    ear.hear(LOUD, 300)
    ear.hear(QUIET, 1000)
    assert ear.policy.is_nod
    ear.bot_speaks = False
    ear.hear(LOUD, 200)
    ear.hear(QUIET, 1000)
    assert ear.actions == ["hold", "release"]
    assert not ear.policy.is_nod


def test_quiet_that_is_heard_at_once_lets_the_bot_go_on() -> None:
    """A packet may be longer than the quiet after which the detector reports the end of the sound."""
    policy, detector = HoldPolicy(), SpeechDetector(RATE_HZ)
    detector.feed(np.random.default_rng(0).normal(0, LOUD, RATE_HZ // 5).astype(np.int16))
    assert policy.update(detector, bot_speaks=True) == "hold"
    assert detector.feed(np.zeros(RATE_HZ, np.int16)) == ["stopped"]
    assert policy.update(detector, bot_speaks=True) == "release"


def test_mistakes_are_as_rare_as_the_guide_says() -> None:
    found = measure(num_sounds=300, seed=1)
    assert found.nods_that_cancel == pytest.approx(0.18, abs=0.06)
    assert found.interruptions_missed == pytest.approx(0.14, abs=0.06)
    assert found.hold_ms[1] <= 120
    assert found.release_ms[1] <= 750
    assert found.cancel_ms[1] <= 1000


def test_a_later_decision_ends_fewer_turns_and_misses_more() -> None:
    early, late = measure(400, num_sounds=200), measure(700, num_sounds=200)
    assert late.nods_that_cancel < early.nods_that_cancel - 0.15
    assert late.interruptions_missed > early.interruptions_missed + 0.05
