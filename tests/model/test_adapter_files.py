"""Adapter files, and the layers that hold them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from realtime_tts.bench.checkpoint import adapter_tensors
from realtime_tts.errors import AdapterError, AdapterNotFound
from realtime_tts.model.adapted import NO_ADAPTER, AdaptedLinear, AdapterBank, AdapterLimits
from realtime_tts.model.adapter_file import read_adapter
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.voxcpm import VoxCPM

from random_adapters import USUAL, write_adapter  # isort: skip
from random_checkpoints import CONFIGS  # isort: skip

LIMITS = AdapterLimits(max_adapters=3, max_rank=8)


@pytest.fixture(scope="module")
def model() -> VoxCPM:
    torch.manual_seed(0)
    return VoxCPM(parse_config(CONFIGS["voxcpm2"])).requires_grad_(False).eval()


@pytest.fixture(scope="module")
def tensors(model: VoxCPM) -> dict[str, Tensor]:
    return adapter_tensors(model, seed=1)


def read(directory: Path, model: VoxCPM, limits: AdapterLimits = LIMITS) -> Any:
    return read_adapter("a", directory, model, limits)


def test_a_whole_adapter_is_read_with_its_scale(model: VoxCPM, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    adapter = read(write_adapter(tmp_path, tensors), model)
    down, up = adapter.updates["base_lm.layers.0.self_attn.k_proj"]
    assert torch.equal(down, tensors["base_lm.layers.0.self_attn.k_proj.lora_A"])
    assert torch.equal(up, 1.5 * tensors["base_lm.layers.0.self_attn.k_proj.lora_B"])
    assert adapter.rank == 4
    assert 2 * len(adapter.updates) == len(tensors)


def test_the_digest_is_of_the_content(model: VoxCPM, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    first = read(write_adapter(tmp_path / "a", tensors), model)
    same = read(write_adapter(tmp_path / "b", tensors), model)
    other_scale = read(write_adapter(tmp_path / "c", tensors, alpha=7), model)
    changed = {**tensors, "lm_to_dit_proj.lora_A": tensors["lm_to_dit_proj.lora_A"] + 1}
    other = read(write_adapter(tmp_path / "d", changed), model)
    assert len({first.digest, other_scale.digest, other.digest}) == 3
    assert first.digest == same.digest


def without(name: str) -> Any:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def with_tensor(name: str, value: Tensor) -> Any:
    return lambda tensors: {**tensors, name: value}


A = "base_lm.layers.1.self_attn.v_proj.lora_A"
FAULTS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "missing": (without(A), {}, "v_proj.lora_A is missing (1 in all)"),
    "unknown": (with_tensor("base_lm.layers.9.self_attn.q_proj.lora_A", torch.zeros(4, 64)), {}, "unknown tensor"),
    "a merged weight": (with_tensor("stop_head.weight", torch.zeros(2, 64)), {}, "unknown tensor 'stop_head.weight'"),
    "another shape": (with_tensor(A, torch.zeros(4, 63)), {}, "is shaped [4, 63], not [4, 64]"),
    "another rank": (lambda tensors: tensors, {"r": 5}, "is shaped [4, 64], not [5, 64]"),
    "integers": (with_tensor(A, torch.zeros(4, 64, dtype=torch.int32)), {}, "is I32, not floating-point"),
    "not finite": (with_tensor(A, torch.full((4, 64), float("nan"))), {}, "v_proj.lora_A is not finite in float32"),
    "too large a rank": (lambda tensors: tensors, {"r": 9}, "r is 9, this server takes up to 8"),
    "no rank": (lambda tensors: tensors, {"r": 0}, "r must be greater than 0"),
    "a rank in words": (lambda tensors: tensors, {"r": "4"}, "r must be a valid integer"),
    "alpha is no number": (lambda tensors: tensors, {"alpha": float("inf")}, "alpha must be a finite number"),
    "an unknown key": (lambda tensors: tensors, {"use_dora": True}, "unknown key 'use_dora'"),
    "no strings": (lambda tensors: tensors, {"target_modules_lm": "q_proj"}, "target_modules_lm must be a valid array"),
    "nothing to change": (
        lambda tensors: tensors,
        {"enable_lm": False, "enable_dit": False, "enable_proj": False},
        "one of enable_lm",
    ),
    "no target": (
        lambda tensors: tensors,
        {"target_modules_lm": [], "target_modules_dit": [], "target_proj_modules": []},
        "it changes no layer",
    ),
    "a target that cannot be": (lambda tensors: tensors, {"target_modules_dit": ["in_proj"]}, "'in_proj'; these can"),
    "a projection that cannot be": (lambda tensors: tensors, {"target_proj_modules": ["stop_proj"]}, "'stop_proj'"),
    "MLPs": (lambda tensors: tensors, {"target_modules_lm": ["up_proj"]}, "--adapter-mlp"),
    "parts left out": (lambda tensors: tensors, {"enable_dit": False}, "unknown tensor 'feat_decoder"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_adapter_is_refused_by_what_is_wrong(
    model: VoxCPM, tensors: dict[str, Tensor], tmp_path: Path, fault: str
) -> None:
    change, config, words = FAULTS[fault]
    directory = write_adapter(tmp_path, change(tensors), **config)
    with pytest.raises(AdapterError) as caught:
        read(directory, model)
    assert words in caught.value.message


def test_a_value_that_the_models_format_cannot_hold_is_refused(
    model: VoxCPM, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    directory = write_adapter(tmp_path, {**tensors, A: torch.full((4, 64), 1e6)})
    assert read(directory, model)
    with pytest.raises(AdapterError, match="not finite in float16"):
        read(directory, copy.deepcopy(model).half())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"lora_config": 3}', "{" * 10_000, " " * 70_000])
def test_an_invalid_adapter_config_is_refused(model: VoxCPM, tmp_path: Path, content: str) -> None:
    (tmp_path / "lora_config.json").write_text(content)
    with pytest.raises(AdapterError, match=r"lora_config\.json"):
        read(tmp_path, model)


def test_files_that_are_missing_pickled_or_cut_off(model: VoxCPM, tensors: dict[str, Tensor], tmp_path: Path) -> None:
    with pytest.raises(AdapterNotFound):
        read(tmp_path / "nothing", model)
    with pytest.raises(AdapterError, match=r"lora_config\.json cannot be read"):
        read(tmp_path, model)
    weights = write_adapter(tmp_path, tensors) / "lora_weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(AdapterError, match="cannot be read"):
        read(tmp_path, model)
    weights.unlink()
    with pytest.raises(AdapterError, match=r"there is no lora_weights\.safetensors"):
        read(tmp_path, model)
    (tmp_path / "lora_weights.ckpt").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(AdapterError, match=r"lora_weights\.ckpt is a pickle"):
        read(tmp_path, model)


def test_a_projection_that_the_generation_has_not_is_left_out_as_the_reference_does(tmp_path: Path) -> None:
    old = VoxCPM(parse_config(CONFIGS["voxcpm_0_5b"])).requires_grad_(False)
    tensors = adapter_tensors(old, seed=1)
    assert not any("fusion" in name for name in tensors)
    assert read(write_adapter(tmp_path, tensors), old)


def layer_with_adapters(*, is_captured: bool) -> tuple[AdaptedLinear, AdapterBank]:
    model = VoxCPM(parse_config(CONFIGS["voxcpm2"])).requires_grad_(False)
    bank = AdapterBank(model, LIMITS, is_captured=is_captured)
    layer = model.base_lm.layers[0].self_attn.qkv_proj
    assert isinstance(layer, AdaptedLinear)
    generator = torch.Generator().manual_seed(0)
    for index, rank in ((0, 8), (2, 3)):
        layer.put(
            index,
            {
                name: (torch.randn(rank, 64, generator=generator), torch.randn(size, rank, generator=generator))
                for name, size in layer.parts
                if index != 2 or not name.endswith("k_proj")
            },
        )
    return layer, bank


@pytest.mark.parametrize("copies", [1, 2])
def test_rows_by_groups_and_masked_rows_are_the_same(copies: int) -> None:
    rows = torch.tensor([2, NO_ADAPTER, 0, 0, 1])  # nothing is loaded as 1
    x = torch.randn(copies * len(rows) * 3, 64)
    results = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        layer, bank = layer_with_adapters(is_captured=is_captured)
        layer.weight.data.zero_()
        with bank.using(rows, copies):
            results.append(layer(x))
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
    by_row = results[0].view(copies, len(rows), 3, -1)
    assert not by_row[:, [1, 4]].any()
    assert by_row[:, [0, 2, 3]].abs().amin(dim=(0, 2)).max() > 0


def test_what_overflows_for_another_row_stays_there() -> None:
    layer, bank = layer_with_adapters(is_captured=True)
    x = torch.ones(2, 64)
    x[0] = float("inf")
    with bank.using(torch.tensor([0, NO_ADAPTER])):
        out = layer(x)
    assert not torch.isfinite(out[0]).all()
    assert torch.equal(out[1:], torch.nn.functional.linear(x, layer.weight)[1:])


def test_the_config_of_the_references_training_is_taken_as_it_is(
    model: VoxCPM, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    """As its LoRAConfig writes itself: integers for alpha, and a model that it was made for."""
    write_adapter(tmp_path, tensors)
    info = json.loads((tmp_path / "lora_config.json").read_text())
    assert set(info["lora_config"]) == set(USUAL)
    assert isinstance(info["lora_config"]["alpha"], int)
    half = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(half, tmp_path / "lora_weights.safetensors")
    assert read(tmp_path, model).updates["lm_to_dit_proj"][0].dtype == torch.float32
