"""How often the bots' hold policy is wrong, on a made set of nods and interruptions.

    python agents/nods.py

Syllables are bursts of noise over background noise of -60 dB (of full scale). A nod ("mhm", "yeah") has 1, 2 or 3
syllables (35, 50, 15 %) at -32 dB, an interruption ("stop", "no, wait, I meant the other one") 1 and a geometric number
with mean 7, at -26 dB; levels have a standard deviation of 4 dB within a set and 2 dB within a sound. A syllable lasts
160 ms (median, log-normal, sigma 0.3), the dip after it 20 to 70 ms. After the first three syllables of an interruption
a hesitation of 150 to 500 ms follows with 10 % each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parent))  # for any way of starting this file

import numpy as np
import numpy.typing as npt
from hold_policy import DECIDE_MS, QUIET_MS, HoldPolicy
from speech_detector import SpeechDetector

RATE_HZ = 8_000
STEP = RATE_HZ // 50  # packets of 20 ms
BEFORE_S, AFTER_S = 0.3, 1.0
Kind = Literal["nod", "interruption"]


@dataclass(frozen=True)
class Mistakes:
    """Shares of wrong decisions, and delays from the beginning of a sound in ms: until the bot is held, until it goes
    on after a nod, until an interruption ends its turn (median, 95th percentile)."""

    nods_that_cancel: float
    interruptions_missed: float
    hold_ms: tuple[float, float]
    release_ms: tuple[float, float]
    cancel_ms: tuple[float, float]


def sound(kind: Kind, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Return samples of one sound at `RATE_HZ`, which begins after `BEFORE_S`."""
    is_nod = kind == "nod"
    num_syllables = rng.choice([1, 2, 3], p=[0.35, 0.5, 0.15]) if is_nod else 1 + rng.geometric(1 / 7)
    level_db = rng.normal(-32 if is_nod else -26, 4)
    envelope = [np.zeros(int(BEFORE_S * RATE_HZ))]
    for number in range(num_syllables):
        num_samples = int(0.16 * np.exp(rng.normal(0, 0.3)) * RATE_HZ)
        shape = np.sin(np.linspace(0, np.pi, num_samples)) ** 0.5
        gap_s = rng.uniform(0.02, 0.07)
        if not is_nod and number < 3 and rng.random() < 0.1:
            gap_s = rng.uniform(0.15, 0.5)
        envelope += [shape * 10 ** ((level_db + rng.normal(0, 2)) / 20), np.zeros(int(gap_s * RATE_HZ))]
    gain = np.concatenate([*envelope, np.zeros(int(AFTER_S * RATE_HZ))]) + 1e-3
    return np.clip(rng.normal(0, 32768, len(gain)) * gain, -32768, 32767).astype(np.int16)


def decide(samples: npt.NDArray[np.int16], policy: HoldPolicy) -> Iterator[tuple[str, float]]:
    """Yield the policy's actions for a sound, each with its time after the beginning of the sound in ms."""
    detector, is_cancelled = SpeechDetector(RATE_HZ), False
    for start in range(0, len(samples), STEP):
        detector.feed(samples[start : start + STEP])
        if action := policy.update(detector, bot_speaks=not is_cancelled):
            is_cancelled = is_cancelled or action == "cancel"
            yield action, ((start + STEP) / RATE_HZ - BEFORE_S) * 1000


def measure(decide_ms: float = DECIDE_MS, num_sounds: int = 1000, seed: int = 0) -> Mistakes:
    """Return the mistakes of the policy on as many nods as interruptions."""
    rng = np.random.default_rng(seed)
    times_ms: dict[str, list[float]] = {"hold": [], "release": [], "cancel": []}
    num_cancelled = dict.fromkeys(("nod", "interruption"), 0)
    for kind in ("nod", "interruption"):
        for _ in range(num_sounds):
            actions = list(decide(sound(kind, rng), HoldPolicy(decide_ms)))
            times = dict(reversed(actions))  # the first of each kind
            num_cancelled[kind] += "cancel" in times
            times_ms["hold"] += [times["hold"]] if "hold" in times else []
            ends_well = "release" if kind == "nod" else "cancel"
            times_ms[ends_well] += [times[ends_well]] if ends_well in times else []
    delays = [(float(np.median(times)), float(np.percentile(times, 95))) for times in times_ms.values()]
    return Mistakes(num_cancelled["nod"] / num_sounds, 1 - num_cancelled["interruption"] / num_sounds, *delays)


if __name__ == "__main__":
    print(
        f"quiet after a nod: {QUIET_MS:.0f} ms\n{'decide ms':>9} {'nods that end':>14} {'missed':>8} {'delays, ms':>12}"
    )
    for decide_ms in (400.0, 500.0, 600.0, 700.0):
        found = measure(decide_ms)
        delays = ", ".join(
            f"{name} {median:.0f} ({p95:.0f})"
            for name, (median, p95) in zip(
                ("hold", "release", "cancel"), (found.hold_ms, found.release_ms, found.cancel_ms), strict=True
            )
        )
        print(f"{decide_ms:9.0f} {found.nods_that_cancel:13.1%} {found.interruptions_missed:9.1%}  {delays}")
