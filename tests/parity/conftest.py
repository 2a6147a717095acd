from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from random_checkpoints import CONFIGS, write_checkpoint
from safetensors import safe_open
from torch import Tensor

from realtime_tts.model.checkpoint import LoadedModel, load_model

GOLDENS = Path(__file__).parent / "goldens"


class Golden(NamedTuple):
    """A random checkpoint, loaded, and what the reference computed with it: tensors by `<mode>.<name>`."""

    name: str
    loaded: LoadedModel
    tensors: dict[str, Tensor]


@pytest.fixture(autouse=True)
def inference_mode():
    with torch.inference_mode():
        yield


MODES = {
    "voxcpm": ["zero_shot", "continuation", "short_continuation"],
    "voxcpm2": [
        *("zero_shot", "continuation", "short_continuation", "reference"),
        *("reference_and_continuation", "reference_and_short_continuation"),
    ],
}


def pytest_generate_tests(metafunc):
    """`golden`: every generation. `golden` and `mode`: every input mode that each of them knows."""
    if "mode" in metafunc.fixturenames:
        pairs = [(name, mode) for name, raw in CONFIGS.items() for mode in MODES[raw["architecture"]]]
        metafunc.parametrize(("golden", "mode"), pairs, indirect=["golden"], scope="session")
    elif "golden" in metafunc.fixturenames and not any(
        "golden" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
    ):
        metafunc.parametrize("golden", list(CONFIGS), indirect=True, scope="session")


@pytest.fixture(scope="session")
def golden(request, tmp_path_factory) -> Golden:
    name = request.param
    with safe_open(GOLDENS / f"{name}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a mapping
        shapes = json.loads(file.metadata()["shapes"])
    directory = write_checkpoint(tmp_path_factory.mktemp(name), name, shapes)
    return Golden(name, load_model(directory), tensors)
