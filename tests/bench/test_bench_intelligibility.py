"""What is said of two devices' speech, once a recogniser has heard it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.intelligibility import compare


def kept(directory: Path, wrong: list[int], sentences: int = 0) -> Path:
    directory.mkdir()
    errors = {"slt": [(count, 10) for count in wrong]}
    told = {"sentences": [f"number {n}" for n in range(sentences or len(wrong))], "errors": errors, "heard": []}
    (directory / "heard.json").write_text(json.dumps(told))
    return directory


def judged(first: Path, second: Path) -> None:
    compare(argparse.Namespace(first=first, second=second, json=None))


def test_as_many_wrong_words_in_other_places_are_chance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged(kept(tmp_path / "gpu", [1, 0, 2, 0] * 10), kept(tmp_path / "cpu", [0, 2, 0, 1] * 10))
    line = capsys.readouterr().out.splitlines()[2]
    assert line.split()[:5] == ["slt", "400", "7.50%", "7.50%", "+0.00%"]


def test_one_more_wrong_word_in_every_other_sentence_is_worse(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"understood worse by 5\.0%"):
        judged(kept(tmp_path / "gpu", [1, 0] * 20), kept(tmp_path / "cpu", [0] * 40))


def test_speech_of_other_sentences_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="different sentences"):
        judged(kept(tmp_path / "gpu", [0, 0]), kept(tmp_path / "cpu", [0, 0], sentences=3))
