"""Word times of recordings, and their errors about the medians."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from voices import STARTER_DIRECTORY

from realtime_tts.model.checkpoint import load_model
from training.generation import Line, generate
from training.teacher import AudioChunk
from training.word_times import depth_ms, read_recordings, segment_of, table, word_times

TEXT = "the river runs down, and the boats come home."


def test_words_of_a_recording_that_begins_later_are_later() -> None:
    loaded = load_model(STARTER_DIRECTORY)
    (patches,) = generate(loaded, [Line(TEXT, "heart")], [1], steps=4, cfg=2.0)
    num_silent = 4
    size = round(num_silent * loaded.config.patch_samples * loaded.config.encode_rate_hz / loaded.config.sample_rate)
    with torch.inference_mode():
        silence = loaded.model.encode_recording(torch.zeros(size)).numpy()[:num_silent]
    later = np.concatenate((silence, patches))
    plain, shifted = word_times(loaded, "heart", [TEXT, TEXT], [patches, later])
    assert len(plain) == len(shifted) == len(TEXT.split())
    assert (np.diff(plain, axis=0) >= 0).all()
    assert (plain[:, 0] < plain[:, 1]).all()
    shift_ms = 1000 * num_silent * loaded.config.patch_samples / loaded.config.sample_rate
    assert shifted[1:] - plain[1:] == pytest.approx(np.full((len(plain) - 1, 2), shift_ms), abs=120)


def test_words_end_before_the_marks_behind_them() -> None:
    words = segment_of("well, it's five o'clock.").words
    assert [(word.text, word.spoken_start, word.spoken_end) for word in words] == [
        ("well,", 0, 4),
        ("it's", 6, 10),
        ("five", 11, 15),
        ("o'clock.", 16, 23),
    ]


def test_recordings_of_mixtures_and_of_other_texts_are_left_out(tmp_path: Path) -> None:
    audio, ends = np.arange(40, dtype=np.int16), np.array([10, 20, 30, 40])
    words = np.array([[0, 24], [24, 48], [0, 48], [24, 96], [0, 9]], np.int32)
    texts = ["one two", "three", "four", "five"]
    AudioChunk(audio, ends, np.array([1, 1, 0, 9], np.int32), texts, words).save(tmp_path / "a.npz")
    found = read_recordings(tmp_path, {"one two", "four", "five"}, None)
    assert {voice: [one.text for one in own] for voice, own in found.items()} == {
        "michael": ["one two"],
        "heart": ["four"],
    }
    assert found["michael"][0].times_ms.tolist() == [[0, 1], [1, 2]]
    assert found["heart"][0].times_ms.tolist() == [[1, 4]]
    assert found["heart"][0].samples.tolist() == list(range(20, 30))
    with pytest.raises(ValueError, match="no recording"):
        read_recordings(tmp_path, {"six"}, None)


def test_errors_are_about_the_medians_of_all_voices() -> None:
    taught = np.array([[100.0, 400.0], [500.0, 900.0]])
    usual, other = taught + np.array([10, -50]), taught + np.array([40, -150])
    read = {"heart": [usual] * 3, "emma": [usual, other]}
    lines = table(read, {voice: [taught] * len(own) for voice, own in read.items()}).splitlines()
    assert lines[2] == "| heart | 6 | 0 / 0 | 0 / 0 | 100.0 % |"
    assert lines[3] == "| emma | 4 | 15 / 30 | 50 / 100 | 50.0 % |"
    assert lines[-1] == "medians, ms: starts +10, ends -50"


def test_between_words_is_inside_none() -> None:
    words = np.array([[100.0, 400.0], [500.0, 900.0]])
    assert [depth_ms(words, ms) for ms in (50, 130, 390, 450, 560, 950)] == [0, 30, 10, 0, 60, 0]
