"""Silence at the beginning of a context's speech is not sent, where the checkpoint's policy says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_harness import EngineHarness, patch_duration_s

from realtime_tts.engine.segment import from_onset
from realtime_tts.model.checkpoint import LoadedModel

RATE_HZ = 16_000
PER_MS = RATE_HZ // 1000


def patch(silent_ms: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """160 ms: noise at -75 dB of full scale, then a tone at -20 dB."""
    num_samples = 160 * PER_MS
    quiet = np.random.default_rng(1).normal(0.0, 10 ** (-75 / 20), num_samples)
    tone = 0.1 * np.sqrt(2) * np.sin(2 * np.pi * 200 * np.arange(num_samples) / RATE_HZ)
    pcm = np.where(np.arange(num_samples) < silent_ms * PER_MS, quiet, tone)
    return pcm.astype(np.float32) if dtype is np.float32 else np.round(pcm * 32767).astype(np.int16)


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
@pytest.mark.parametrize(("silent_ms", "left_out_ms"), [(0, 0), (5, 0), (10, 0), (20, 10), (55, 45), (90, 80)])
def test_what_is_left_out_ends_shortly_before_the_sound(dtype: Any, silent_ms: int, left_out_ms: int) -> None:
    pcm = patch(silent_ms, dtype)
    begun = from_onset(pcm, RATE_HZ, -50.0)
    rest = pcm[left_out_ms * PER_MS :]
    assert begun.dtype == pcm.dtype
    assert len(begun) == len(rest)
    faded = 10 * PER_MS if left_out_ms else 0
    assert np.array_equal(begun[faded:], rest[faded:])  # not a bit is another
    assert np.all(np.abs(begun[:faded]) <= np.abs(rest[:faded]))
    assert faded == 0 or begun[0] == 0


@pytest.mark.parametrize("silent_ms", [91, 120, 160])
def test_half_of_the_patch_is_kept_however_late_it_sounds(silent_ms: int) -> None:
    assert len(from_onset(patch(silent_ms), RATE_HZ, -50.0)) == 80 * PER_MS


def test_what_is_louder_than_the_bound_is_sound() -> None:
    assert len(from_onset(patch(55), RATE_HZ, -80.0)) == 160 * PER_MS
    assert len(from_onset(patch(55), RATE_HZ, -15.0)) == 80 * PER_MS


@pytest.fixture
def silent_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch of the random model is 1.5 ms, less than a window: as if its first half had been found to be silent."""
    monkeypatch.setattr(
        "realtime_tts.engine.speech_output.from_onset", lambda pcm, rate_hz, onset_db: pcm[pcm.size // 2 :]
    )


def spoken(tiny: LoadedModel, onset_db: float | None) -> EngineHarness:
    harness = EngineHarness(tiny, {"onset_db": onset_db})
    harness.say("first", "hello", context="c", seed=3)
    harness.say("second", "world", context="c", seed=3, segment=1)
    harness.run()
    return harness


@pytest.mark.usefixtures("silent_half")
def test_only_the_first_patch_of_a_context_is_cut_and_only_where_the_policy_says_so(tiny: LoadedModel) -> None:
    whole, cut = spoken(tiny, None), spoken(tiny, -50.0)
    half = tiny.config.patch_samples // 2
    assert np.array_equal(cut.pcm("first"), whole.pcm("first")[half:])
    assert np.array_equal(cut.pcm("second"), whole.pcm("second"))
    assert cut.end("first").num_samples == len(cut.pcm("first"))  # type: ignore[union-attr]
    assert cut.end("second") == whole.end("second")


@pytest.mark.usefixtures("silent_half")
def test_the_scheduler_counts_what_the_listener_gets(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, {"onset_db": -50.0})
    harness.say("x", "hello", paced=True)
    harness.engine.step()
    lead = harness.engine.scheduler._contexts["x"].lead
    assert lead.produced_s == pytest.approx(patch_duration_s(tiny) / 2)
