"""The evaluation: word errors and chance, formants, ends, drift, what is kept between runs, the table it becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.drift import EDGE, Wandering
from training.evaluate import identity, run_sections
from training.evaluation_pool import speak_jobs
from training.flite import VOICES
from training.formants import Reading, log_warp
from training.generation import Line
from training.report import lines, table
from training.speech_metrics import align, ending, jumps_at
from training.word_errors import Difference, WordErrors

GRID_STEP = np.log(6500 / 250) / 325


def word_errors(errors: list[int], words: int = 10) -> WordErrors:
    none = np.zeros(len(errors), np.int64)
    return WordErrors(np.array(errors), np.full(len(errors), words), none.astype(bool), none)


def test_errors_are_counted_by_sentence_and_the_end_is_looked_at() -> None:
    texts = ["one two three.", "four five", "six seven", "eight nine"]
    counted = WordErrors.count(texts, ["one three", "four", "six seven and then", "eight five"])
    assert counted.errors.tolist() == [1, 1, 2, 1]
    assert counted.words.tolist() == [3, 2, 2, 2]
    assert counted.last_missed.tolist() == [False, True, False, True]
    assert counted.words_after.tolist() == [0, 0, 2, 0]
    assert counted.percent == pytest.approx(100 * 5 / 9)
    twice = WordErrors.together([counted, counted])
    assert twice.errors.tolist() == [2, 2, 4, 2]
    assert twice.percent == counted.percent


def test_silence_is_all_words_missed() -> None:
    counted = WordErrors.count(["one two"], [""])
    assert (counted.errors[0], counted.last_missed[0], counted.words_after[0]) == (2, True, 0)


def test_the_interval_of_a_difference_tells_a_real_one_from_chance() -> None:
    rng = np.random.default_rng(1)
    errors = rng.integers(0, 4, 300)
    same = Difference.between(word_errors(errors.tolist()), word_errors(rng.permutation(errors).tolist()))
    assert same.points == 0
    assert same.low < 0 < same.high
    worse = Difference.between(word_errors((errors + 1).tolist()), word_errors(errors.tolist()))
    assert (worse.points, worse.low, worse.high) == pytest.approx((10, 10, 10))


def reading(shift: int, seed: int = 0) -> Reading:
    """40 frames of smooth envelopes, moved up by `shift` steps of the logarithmic frequency axis."""
    rng = np.random.default_rng(seed)
    bumps = rng.normal(0, 1, (40, 500))
    smooth = np.apply_along_axis(np.convolve, 1, bumps, np.hanning(31), "same")
    return Reading(rng.normal(size=(40, 25)), smooth[:, 80 - shift : 80 - shift + 326], np.zeros(40))


@pytest.mark.parametrize("shift", [-12, 0, 5])
def test_a_warp_of_the_frequency_axis_is_found(shift: int) -> None:
    assert log_warp([reading(shift)], [reading(0)]) == pytest.approx(shift * GRID_STEP, abs=0.1 * GRID_STEP)


def tones(*hertz: float) -> np.ndarray:
    """0.2 s of each pitch, rich in harmonics and each of another colour."""
    t = np.arange(3200) / 16000
    parts = [sum(np.sin(2 * np.pi * hz * k * t) / (1 + abs(k - i)) for k in range(1, 9)) for i, hz in enumerate(hertz)]
    return (3000 * np.concatenate(parts)).astype(np.int16)


def test_a_cut_end_is_missing_and_babble_is_extra() -> None:
    theirs = tones(120, 310, 200, 450, 150)
    assert ending(theirs, theirs) == (0, 0)
    missing, extra = ending(theirs[:-3200], theirs)
    assert missing > 0.12
    assert extra == 0
    missing, extra = ending(tones(120, 310, 200, 450, 150, 290, 90), theirs)
    assert missing == 0
    assert extra > 0.25
    assert ending(np.zeros(16000, np.int16), theirs)[0] == pytest.approx(1.0, abs=0.02)


def test_alignment_is_the_cheapest_path() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 3)), rng.normal(size=(9, 3))
    cost = np.linalg.norm(a[:, None] - b[None], axis=-1)
    total = np.full((8, 10), np.inf)
    total[0, 0] = 0
    for i in range(7):
        for j in range(9):
            total[i + 1, j + 1] = cost[i, j] + min(total[i, j], total[i, j + 1], total[i + 1, j])
    assert cost[align(a, b)].sum() == pytest.approx(total[-1, -1])


def test_a_click_is_found_at_any_seam_even_near_the_edges() -> None:
    wave = tones(120, 120).astype(int)
    wave[40:] += 9000
    assert jumps_at(wave.astype(np.int16), [40])[0] > 0.5
    assert jumps_at(tones(120, 120), [40, 1600])[1] < 0.1


def test_drift_is_last_over_first_and_chance_is_of_the_scatter() -> None:
    logs = np.log(np.linspace(1, 1.1, 20))[None].repeat(2, axis=0)
    steady = np.zeros((4, 20))
    expected = 100 * (np.exp(logs[0, -EDGE:].mean() - logs[0, :EDGE].mean()) - 1)
    assert Wandering.of(logs).percent == pytest.approx(expected)
    assert Wandering.of(steady) == Wandering(0, 0, 0)
    noise = np.random.default_rng(0).normal(0, 0.04, (2000, 20))
    found = Wandering.of(noise)
    changes = 100 * (noise[:, -EDGE:].mean(1) - noise[:, :EDGE].mean(1))
    assert np.mean(np.abs(changes) > found.chance_of_one) == pytest.approx(0.05, abs=0.02)
    assert found.chance == pytest.approx(found.chance_of_one / np.sqrt(2000))


def test_jobs_cover_all_lines_longest_first_each_with_its_own_seed() -> None:
    lines = [Line("a" * n) for n in (3, 9, 1, 5, 7)]
    jobs, order = speak_jobs(lines, steps=4, cfg=2.0, batch=2)
    assert order == [1, 4, 3, 0, 2]
    assert [seed for job in jobs for seed in job.seeds] == order
    assert [part for job in jobs for part in job.lines] == [lines[index] for index in order]
    given, _ = speak_jobs(lines, steps=4, cfg=2.0, batch=2, seeds=[10, 20, 30, 40, 50])
    assert [seed for job in given for seed in job.seeds] == [20, 50, 40, 10, 30]


def test_finished_sections_are_kept_for_the_same_checkpoint_only(tmp_path: Path) -> None:
    calls: list[str] = []
    sections: dict[str, Any] = {name: lambda name=name: calls.append(name) or {"value": 1} for name in ("wer", "sound")}
    path = tmp_path / "out" / "evaluation.json"
    run_sections(path, {"sha256": "a"}, ["wer"], sections, again=False)
    results = run_sections(path, {"sha256": "a"}, ["wer", "sound"], sections, again=False)
    assert calls == ["wer", "sound"]
    assert results == json.loads(path.read_text())
    run_sections(path, {"sha256": "a"}, ["sound"], sections, again=True)
    assert calls == ["wer", "sound", "sound"]
    assert run_sections(path, {"sha256": "b"}, ["wer"], sections, again=False).keys() == {"checkpoint", "wer"}


def test_a_checkpoint_is_known_by_its_files(tmp_path: Path) -> None:
    texts = {"sentences": ["a"], "words": [], "pairs": []}
    (tmp_path / "model.safetensors").write_bytes(b"1" * 1000)
    first = identity(tmp_path, texts)
    assert first["megabytes"] == pytest.approx(0.001)
    (tmp_path / "model.safetensors").write_bytes(b"2" * 1000)
    assert identity(tmp_path, texts)["sha256"] != first["sha256"]
    assert identity(tmp_path, {**texts, "words": ["b"]})["texts_sha256"] != first["texts_sha256"]


def results() -> dict[str, Any]:
    difference = {"points": 2.0, "low": -1.0, "high": 5.0}
    kind = {
        "count": 951,
        "within": 0.997,
        "teacher_within": 0.998,
        "within_by_voice": dict.fromkeys(VOICES, 0.995),
        "end_missing": 0.01,
        "end_extra": 0.0,
    }
    voice = {
        "teacher": 8.0,
        "model": 10.0,
        "difference": difference,
        "teacher_through_vae": 9.0,
        "vae_difference": difference,
        "last_word_missed_percent": {"model": 3.0, "teacher": 2.0},
        "words_after_the_last": {"model": 4.0, "teacher": 4.0},
    }
    return {
        "checkpoint": {"megabytes": 24.2},
        "wer": {"sentences": 317, **dict.fromkeys((*VOICES, "all"), voice)},
        "duration": dict.fromkeys(("sentences", "words", "pairs"), kind),
        "cloning": {
            "speakers": 30,
            "pitch_rho": 0.9,
            "formants_rho": 0.79,
            "ceiling": {"pitch_rho": 0.993, "formants_rho": 0.996},
        },
    }


def test_the_table_marks_what_misses_its_bar_and_says_what_was_not_measured() -> None:
    text = table(results())
    assert (
        "| word error rate of 317 sentences, model − teacher, rms | ≤ 3 points | 10.0 − 8.0 = +2.0 [-1.0, +5.0] |"
        in text
    )
    assert "| **0.79 (0.996)** |" in text
    assert "| drift | – | not measured |" in text
    assert [line.measure for line in lines(results()) if line.met is False] == [
        "30 unseen speakers: rank correlation of formants (the speakers themselves on other texts)"
    ]


def test_each_voice_has_to_reach_its_bar() -> None:
    slow = results()
    slow["duration"]["words"] = {
        **slow["duration"]["words"],
        "within_by_voice": {**dict.fromkeys(VOICES, 1.0), "awb": 0.98},
    }
    assert [line.met for line in lines(slow) if "single words" in line.measure] == [False, None]


def test_durations_of_all_kinds_together_are_weighted_by_their_counts() -> None:
    mixed = results()
    mixed["duration"]["words"] = {
        **mixed["duration"]["words"],
        "count": 300,
        "within_by_voice": {**dict.fromkeys(VOICES, 1.0), "awb": 0.9},
    }
    (together,) = [line for line in lines(mixed) if line.measure.endswith("together") and "duration" in line.measure]
    # awb: (951 * 0.995 * 2 + 300 * 0.9) / 2202
    assert together.measured == "99.1 % of 2202 (slt 99.6 %, rms 99.6 %, awb 98.2 %)"
    assert together.met is False
