from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from realtime_tts.model.checkpoint import load_model
from training.flite import Flite
from training.plots import curve, panels_of, plot_losses, plot_spectrograms, smoothed

STARTER = Path(__file__).parents[2] / "realtime_tts" / "starter_voice"


def write_log(run: Path, entries: list[dict[str, float]]) -> None:
    run.mkdir(parents=True)
    (run / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_a_curve_has_the_steps_at_which_its_loss_was_logged(tmp_path: Path) -> None:
    write_log(tmp_path / "tts", [{"step": 50, "flow": 0.7}, {"step": 60, "val_flow": 0.8}, {"step": 100, "flow": 0.6}])
    assert curve(tmp_path / "tts" / "log.jsonl", "flow") == ([50, 100], [0.7, 0.6])
    assert curve(tmp_path / "tts" / "log.jsonl", "val_flow") == ([60], [0.8])


def test_smoothing_keeps_length_and_level_at_the_ends() -> None:
    assert smoothed([2.0] * 20) == pytest.approx([2.0] * 20)
    ramp = smoothed([float(value) for value in range(30)])
    assert len(ramp) == 30
    assert ramp[15] == pytest.approx(15)


@pytest.mark.slow
def test_losses_are_drawn_of_the_runs_that_there_are(tmp_path: Path) -> None:
    entries = [
        {"step": 50.0 * n, "flow": 1 / n, "stop": 0.1 / n, "val_flow": 1 / n, "val_stop": 0.1} for n in (1, 2, 3)
    ]
    write_log(tmp_path / "tts", entries)
    assert [panel[0] for panel in panels_of(tmp_path)] == ["tts", "tts"]
    plot_losses(tmp_path, tmp_path / "tts_only.png")
    write_log(tmp_path / "vae" / "joint", [{"step": 50.0, "mel": 0.4}, {"step": 100.0, "mel": 0.3}])
    plot_losses(tmp_path, tmp_path / "both.png")
    two, three = imread(tmp_path / "tts_only.png"), imread(tmp_path / "both.png")
    assert three.shape[1] == pytest.approx(1.5 * two.shape[1], abs=2)
    first_curve = np.abs(two[..., :3] - np.array([31, 119, 180]) / 255).max(2) < 0.02
    # in both panels, at the left and the right of each: more than the legend's short sample
    columns = np.flatnonzero(first_curve.any(0)) / two.shape[1]
    assert np.histogram(columns, 8, (0, 1))[0].astype(bool).sum() >= 6


def test_losses_that_are_not_there_yet_are_left_out(tmp_path: Path) -> None:
    write_log(tmp_path / "vae" / "decoder", [{"step": 50.0, "mel": 0.1}, {"step": 100.0, "mel": 0.09}])
    plot_losses(tmp_path, tmp_path / "losses.png")
    assert (tmp_path / "losses.png").exists()


def test_a_folder_without_a_run_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        plot_losses(tmp_path, tmp_path / "losses.png")


@pytest.mark.slow
def test_spectrograms_show_speech_in_all_three_rows(flite: Flite, tmp_path: Path) -> None:
    plot_spectrograms(load_model(STARTER), flite, tmp_path / "speech.png")
    image = imread(tmp_path / "speech.png")[..., :3]
    green = (image[..., 1] > 0.4) & (image[..., 1] - image[..., 0] > 0.15)  # loud; silence is violet, margins are white
    assert [bool(row.mean() > 0.1) for row in np.array_split(green, 3)] == [True, True, True]
