from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
# The small random checkpoints of the parity tests and the worker without a model serve here too.
sys.path[:0] = [str(TESTS / "parity"), str(TESTS / "support")]

from random_checkpoints import write_checkpoint  # noqa: E402
from safetensors import safe_open  # noqa: E402

from realtime_tts.model.checkpoint import LoadedModel, load_model  # noqa: E402


def load_random(name: str, directory: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """A random checkpoint; `name` as in `random_checkpoints.CONFIGS`."""
    with safe_open(TESTS / "parity" / "goldens" / f"{name}.safetensors", "pt") as file:
        shapes = json.loads(file.metadata()["shapes"])
    return load_model(write_checkpoint(directory, name, shapes), dtype=dtype)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Random model of the second generation, which knows isolated references."""
    return load_random("voxcpm2", tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="session")
def tiny_first(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Random model of the first generation: only continuation."""
    return load_random("voxcpm_0_5b", tmp_path_factory.mktemp("tiny_first") / "tiny_first")


@pytest.fixture(scope="session")
def exact(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """As `tiny`, in float64: a prefill and single steps give the same patches, which are float32."""
    return load_random("voxcpm2", tmp_path_factory.mktemp("exact") / "exact", torch.float64)
