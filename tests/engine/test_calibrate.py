"""Calibration of whole checkpoints, and where its result is kept."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import resource
from pathlib import Path
from unittest.mock import ANY

import pytest
import torch
from voices import STARTER_DIRECTORY

from realtime_tts.contract.policy import ServingPolicy, TextHead
from realtime_tts.engine import calibrate as calibrate_module
from realtime_tts.engine.calibrate import (
    NUM_SENTENCES,
    SENTENCES,
    Calibration,
    cache_path,
    calibrate,
    calibrate_and_keep,
    read_cache,
    sentences_of,
    with_text_head,
    write_cache,
    write_serving,
)
from realtime_tts.engine.head_choice import expected_loudness
from realtime_tts.errors import CheckpointError
from realtime_tts.model.checkpoint import LoadedModel, load_model

FOUND = TextHead(2, 1, 33.0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "realtime-tts" / "text-heads"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The budgets with which a calibration was asked for; it finds `FOUND`."""
    budgets: list[float | None] = []

    def found(loaded: LoadedModel, budget_s: float | None) -> Calibration:
        budgets.append(budget_s)
        return Calibration(FOUND, [], 12)

    monkeypatch.setattr(calibrate_module, "calibrate", found)
    return budgets


@pytest.fixture
def checkpoint(tiny: LoadedModel, tmp_path: Path) -> LoadedModel:
    """A copy of the small one, whose files may be changed."""
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    for file in tiny.path.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    return dataclasses.replace(tiny, path=directory)


def test_of_the_starter_voices_heads_the_taught_one_follows_best_with_the_lag_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = load_model(STARTER_DIRECTORY)
    monkeypatch.setattr(calibrate_module, "sentences_of", lambda languages: SENTENCES["en"][:8])
    result = calibrate(loaded)
    assert result is not None
    assert result.head is not None
    assert result.num_sentences >= 7
    following = [score for score in result.scores if score.follows]
    sharpest = min(following, key=lambda score: score.spread)
    own = loaded.policy.text_head
    assert own is not None
    assert (sharpest.layer, sharpest.head) == (own.layer, own.head)
    assert sharpest.lag_ms == pytest.approx(own.lag_ms, abs=30)  # by the loudness of letters


def test_heads_of_random_weights_do_not_qualify(tiny_voice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(tiny_voice)
    steps = itertools.count()
    monkeypatch.setattr(loaded.model, "stop_flags", lambda hidden: torch.full((len(hidden),), next(steps) >= 25))
    result = calibrate(loaded)
    assert result is not None
    assert result.num_sentences == NUM_SENTENCES
    assert len(result.scores) == loaded.config.base.num_layers * loaded.config.base.num_heads
    assert result.head is None


def test_a_random_model_is_not_judged_by_sounds_of_a_few_milliseconds(tiny: LoadedModel) -> None:
    assert calibrate(tiny) == Calibration(None, [], ANY)


def test_a_checkpoint_that_cannot_be_judged_can_still_be_served(
    checkpoint: LoadedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_module, "calibrate", lambda loaded, budget_s: 1 / 0)
    assert with_text_head(checkpoint) is checkpoint
    assert not cache.exists()


def test_a_head_that_the_checkpoint_names_is_taken_as_it_is(tiny: LoadedModel, asked: list[float | None]) -> None:
    named = dataclasses.replace(tiny, policy=dataclasses.replace(tiny.policy, text_head=TextHead(1, 1)))
    assert with_text_head(named) is named
    assert asked == []


def test_another_checkpoint_is_listened_to_once(
    checkpoint: LoadedModel, asked: list[float | None], cache: Path
) -> None:
    assert with_text_head(checkpoint).policy.text_head == FOUND
    assert with_text_head(checkpoint).policy.text_head == FOUND
    assert asked == [20.0]
    assert [file.suffix for file in cache.iterdir()] == [".json"]  # nothing half written is left
    weights = checkpoint.path / "model.safetensors"
    os.utime(weights, ns=(0, 0))
    assert with_text_head(checkpoint).policy.text_head == FOUND
    assert len(asked) == 2


def test_a_link_that_leads_nowhere_is_no_part_of_the_checkpoint(
    checkpoint: LoadedModel, asked: list[float | None]
) -> None:
    """Such as to an optimizer's state, deleted from the hub's cache to free the disk."""
    before = cache_path(checkpoint.path)
    (checkpoint.path / "optimizer.pth").symlink_to(checkpoint.path / "deleted")
    assert cache_path(checkpoint.path) == before
    assert with_text_head(checkpoint).policy.text_head == FOUND


def test_that_none_qualifies_is_remembered_too(checkpoint: LoadedModel, asked: list[float | None]) -> None:
    write_cache(cache_path(checkpoint.path), None)
    assert with_text_head(checkpoint).policy.text_head is None
    assert asked == []


@pytest.mark.parametrize("content", ["", "[]", '{"text_head": 3}', '{"text_head": {"layer": -1, "head": 0}}', "\xff"])
def test_a_damaged_cache_is_made_anew(checkpoint: LoadedModel, asked: list[float | None], content: str) -> None:
    path = cache_path(checkpoint.path)
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("latin-1"))
    assert with_text_head(checkpoint).policy.text_head == FOUND
    assert read_cache(path) == (FOUND,)
    assert len(asked) == 1


def test_a_cache_that_cannot_be_written_is_no_error(
    checkpoint: LoadedModel, asked: list[float | None], cache: Path
) -> None:
    cache.parents[1].parent.joinpath("cache").write_text("a file where the directory should be")
    assert with_text_head(checkpoint).policy.text_head == FOUND
    assert with_text_head(checkpoint).policy.text_head == FOUND
    assert len(asked) == 2


def test_a_device_that_is_too_slow_goes_without_and_remembers_nothing(
    checkpoint: LoadedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_module, "START_BUDGET_S", 0.0)
    assert with_text_head(checkpoint).policy.text_head is None
    assert not cache.exists()


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        ((), ["en"]),
        (("en",), ["en"]),
        (("zh-Hans", "yue"), ["zh"]),
        (("pt_BR", "sw", "JA"), ["pt", "ja"]),
        (("sw",), ["en"]),
    ],
)
def test_a_checkpoint_is_asked_in_its_own_languages(languages: tuple[str, ...], expected: list[str]) -> None:
    texts = sentences_of(languages)
    assert len(texts) == len(set(texts)) == NUM_SENTENCES
    spoken = [[code for code, known in SENTENCES.items() if text in known] for text in texts]
    assert spoken == [[expected[number % len(expected)]] for number in range(NUM_SENTENCES)]


def test_what_is_said_in_each_language_has_pauses_by_which_a_head_is_told() -> None:
    for code, texts in SENTENCES.items():
        assert len(texts) == len(set(texts)) == NUM_SENTENCES, code
        for text in texts:
            loudness = expected_loudness(text)
            assert (loudness == 1.0).any(), text
            assert (loudness[:-1] == 0.0).any(), text  # a comma, a consonant or a space within
        assert sum("," in text or "，" in text or "、" in text for text in texts) >= 9, code


def test_the_checkpoints_languages_decide_what_is_said(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(calibrate_module, "_speak", lambda loaded, sentences, budget_s: said.extend(sentences))
    chinese = dataclasses.replace(tiny, policy=dataclasses.replace(tiny.policy, languages=("zh",)))
    assert calibrate(chinese) is None
    assert said == SENTENCES["zh"]


def test_a_serving_json_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "serving.json"
    path.write_text(before := json.dumps({"name": "x" * 1000}))
    path.chmod(0o644)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot be written"):
            write_serving(tmp_path, FOUND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == before
    assert [*tmp_path.iterdir()] == [path]
    write_serving(tmp_path, FOUND)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_result_goes_into_serving_json_beside_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "serving.json").write_text('{"name": "ä", "default_cfg": 1.5}')
    write_serving(tmp_path, FOUND)
    policy = ServingPolicy.load(tmp_path)
    assert policy == ServingPolicy(name="ä", default_cfg=1.5, text_head=FOUND)
    (tmp_path / "serving.json").write_text("[]")
    with pytest.raises(CheckpointError):
        write_serving(tmp_path, FOUND)


def test_the_command_reports_the_head_and_keeps_it(
    checkpoint: LoadedModel, asked: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_module, "calibrate", lambda loaded: Calibration(FOUND, [], 12))
    report = json.loads(json.dumps(calibrate_and_keep(str(checkpoint.path), "cpu", write=True)))
    assert report["text_head"] == dataclasses.asdict(FOUND)
    assert load_model(checkpoint.path).policy.text_head == FOUND


@pytest.mark.parametrize(("model", "write"), [("no/such/model/here", False), ("some/model", True)])
def test_the_command_says_what_is_wrong(model: str, write: bool) -> None:
    with pytest.raises(CheckpointError):
        calibrate_and_keep(model, "auto", write)


def test_the_first_step_is_not_taken_for_the_others() -> None:
    """A fresh device takes seconds for it."""
    assert calibrate_module._expected_s([0.0, 8.0]) == 8.0
    assert calibrate_module._expected_s([0.0, 8.0, 8.1, 8.2]) == pytest.approx(8.2 + 27 * 0.1)
    assert calibrate_module._expected_s([0.0, *[0.1 * n for n in range(1, 61)]]) == pytest.approx(6.0)
